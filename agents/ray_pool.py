"""Runs of a benchmark on a Ray cluster: each is played on whatever machine is free, and its files come back.

`gangline benchmark --address HOST:6379` uses it. Other machines need Gangline and nothing else: the trace and the
models go with the runs, so no folder has to be shared. What is written is what a pool of this machine would write.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gangline.agents.benchmark import Actor, Task, code_hash, play, write_whole
from gangline.envs.errors import GanglineError

Files = dict[str, bytes]  # by path: of the machine that asked, or below a folder


def play_on_cluster(tasks: Sequence[Task], ray: Any) -> Iterator[tuple[str, str | None]]:
    """Play tasks on the cluster that `connected` has joined; yields each one's place, and a line if it went wrong.

    Raises:
        GanglineError: the cluster has gone.
    """
    try:
        inputs = ray.put(_inputs_of(tasks))
        remote = ray.remote(num_cpus=1)(_play_elsewhere)
        waiting = {remote.remote(task, inputs, code_hash()): task for task in tasks}
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1)
            task = waiting.pop(done[0])
            failure, files = ray.get(done[0])
            for name, content in files.items():
                write_whole(Path(task.folder) / name, content)
            yield task.place, failure
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split())[-200:]
        raise GanglineError(f"the Ray cluster gave up ({reason}); the same command goes on") from None
    finally:
        ray.shutdown()


def connected(address: str) -> Any:
    """The `ray` module, joined to the cluster at an address.

    Raises:
        GanglineError: Ray is not installed, or nobody answers.
    """
    try:
        import ray
    except ImportError:
        raise GanglineError('--address needs ray, expected pip install "gangline[rllib]" (docs/rllib.md)') from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise GanglineError(
            f"address={address}: no Ray cluster answers there ({reason}), expected `auto` or host:port"
        ) from None
    return ray


def _inputs_of(tasks: Sequence[Task]) -> Files:
    """The trace and what is read of training runs."""
    paths = {json.loads(world)["workload"]["path"] for world in {task.world for task in tasks}}
    for actor in {task.actor for task in tasks if task.actor is not None}:
        if actor.run_dir is not None:
            paths |= {str(Path(actor.run_dir) / "config.json"), actor.model}
    return {path: Path(path).read_bytes() for path in paths if path is not None}


def _play_elsewhere(task: Task, inputs: Files, expected_code: str) -> tuple[str | None, Files]:
    """Play a task on the machine that this runs on; returns a line if it went wrong, and what it has written."""
    if code_hash() != expected_code:
        return "the machine that played it has another version of gangline, expected the same on all", {}
    with tempfile.TemporaryDirectory() as folder:
        failure = play(_moved(task, _unpacked(inputs), folder))
        written = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return failure, {path.relative_to(folder).as_posix(): path.read_bytes() for path in written}


def _unpacked(inputs: Files) -> Path:
    """A folder of this machine that holds the inputs; one that a task before has made is used again."""
    digest = hashlib.sha256(b"".join(name.encode() + content for name, content in sorted(inputs.items()))).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"gangline-{digest[:16]}"
    for name, content in inputs.items():
        file = folder / _name_here(name)
        if not file.exists() or file.read_bytes() != content:
            write_whole(file, content)
    return folder


def _name_here(path: str) -> str:
    """Where an input lies below the folder: its own folder by a hash, its name as it is."""
    return f"{hashlib.sha256(str(Path(path).parent).encode()).hexdigest()[:16]}/{Path(path).name}"


def _moved(task: Task, inputs: Path, folder: str) -> Task:
    """The same task with its inputs and its results elsewhere."""
    world = json.loads(task.world)
    if world["workload"]["path"] is not None:
        world["workload"]["path"] = str(inputs / _name_here(world["workload"]["path"]))
    actor: Actor | None = task.actor
    if actor is not None and actor.run_dir is not None and actor.model is not None:
        config = _name_here(str(Path(actor.run_dir) / "config.json"))
        actor = replace(actor, run_dir=str((inputs / config).parent), model=str(inputs / _name_here(actor.model)))
    return replace(task, world=json.dumps(world, sort_keys=True), actor=actor, folder=folder)
