"""`gangline benchmark`: every scheduler and every trained policy on the same traces, on all cores, resumable.

A *run* is one actor on one trace at one load. Each is played on its own, recorded, measured and written to a file of
its own, which appears whole or not at all: killed at any moment, the same command goes on with what is missing. What
the files say does not depend on the order of the runs, the number of workers or the clock; wall times lie apart, in
`timings/`.

    DIR/benchmark.json                      settings, versions, hashes
    DIR/runs/<load>/<trace>/<actor>.json    metrics and what the report draws
    DIR/runs/<load>/<trace>/<actor>.parquet who held which GPU when (the first trace of each load)
    DIR/timings/...                         wall time of decisions
    DIR/results.json, .parquet, .md         made of all of them: `agents/results.py`
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import platform
import shlex
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import gangline
from gangline import envs
from gangline.agents import private_clusters
from gangline.agents.evaluate import (
    GreedyPolicy,
    Recorded,
    SeveralPolicy,
    batch_behind,
    play_recorded,
    policy_of,
    recordable,
    stage_for,
)
from gangline.baselines import base
from gangline.envs import config as configs
from gangline.envs import timeline
from gangline.envs.cluster_env import Batch
from gangline.envs.config import WorldConfig, from_mapping, load_world
from gangline.envs.core.spec import HOUR_MS
from gangline.envs.core.types import NEVER, ONE_GPU
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.metrics import SIZE_CLASSES, TAU_MS, Window, size_class_of
from gangline.envs.recording import Recording

PRIVATE = "private clusters"  # not an actor: the reference of the sharing incentive
QUANTILES = np.linspace(0, 1, 41)
MOST_SPANS = 60_000  # of a picture; the shortest go first
VERSIONED = ("numpy", "numba", "llvmlite")
POLICY_VERSIONED = ("torch", "stable-baselines3", "sb3-contrib")


@dataclass(frozen=True)
class Actor:
    """A scheduler, or one trained agent.

    Attributes:
        name: of the files and tables.
        group: what it is compared as; agents that differ in their seed form one group.
        seed: of its training; 0 of a scheduler.
        scheduler: a baseline's name or dotted path; None = a policy.
        run_dir: folder of the training run.
        model: its `model.zip`.
    """

    name: str
    group: str
    seed: int = 0
    scheduler: str | None = None
    run_dir: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class Task:
    """One run: what to play and where it goes. `actor` None = the private clusters of a trace."""

    world: str  # JSON
    actor: Actor | None
    load: float | None
    trace: int
    draws: bool
    drain_h: float
    folder: str

    @property
    def place(self) -> str:
        """Path below `runs/` and `timings/`, without an ending."""
        return f"{load_name(self.load)}/{self.trace}/{PRIVATE if self.actor is None else self.actor.name}"

    @property
    def file(self) -> Path:
        """Where its result is: there is one, or there is none."""
        return Path(self.folder) / "runs" / f"{self.place}.json"


@dataclass(frozen=True)
class Settings:
    """What a benchmark is asked to do."""

    world: str
    overrides: Mapping[str, Any]
    schedulers: Sequence[str]
    policies: Sequence[str]
    loads: Sequence[float]
    traces: int
    seed: int
    baseline: str | None
    drain_h: float
    out: str


def run(settings: Settings, workers: int, console: Console, address: str | None = None) -> int:
    """Play what is missing, then write results and print the ranking; returns the exit code, 1 if a run failed.

    Args:
        settings: what is compared.
        workers: processes of this machine.
        console: where progress and the ranking go.
        address: of a Ray cluster that plays instead.

    Raises:
        GanglineError: settings that make no sense, or a folder that holds another benchmark.
    """
    from gangline.agents import ray_pool, results

    _needs("pyarrow")
    world = load_world(settings.world, **settings.overrides)
    actors = actors_of(settings)
    about = _about(settings, world, actors)
    folder = Path(settings.out)
    tasks = _tasks(settings, world, actors)
    cluster = None if address is None else ray_pool.connected(address)
    _claim_folder(folder, about)
    missing = [task for task in tasks if not task.file.exists()]
    console.print(f"{len(tasks)} runs into {folder}, {len(tasks) - len(missing)} of them are there")
    failures = list(_play(missing, workers, console, cluster)) if missing else []
    for line in failures:
        console.print(f"[red]failed[/red]: {line}", highlight=False, markup=True)
    comparison = results.read(folder)
    results.write(comparison, folder)
    results.print_ranking(comparison, console)
    return 1 if failures else 0


# ---------------------------------------------------------------------------------------------------------------
# What is asked for
# ---------------------------------------------------------------------------------------------------------------


def actors_of(settings: Settings) -> list[Actor]:
    """The actors, checked by building each.

    Raises:
        GanglineError: an unknown scheduler, a folder that holds no trained agent, a name twice.
    """
    actors = []
    for name in settings.schedulers:
        base.build(name)
        actors.append(Actor(name, name, scheduler=name))
    for run_dir in settings.policies:
        actors += _policies_in(Path(run_dir))
    if not actors:
        raise GanglineError("nothing to compare, expected --schedulers or --policies with at least one name")
    names = [actor.name for actor in actors]
    for name in names:
        if names.count(name) > 1:
            raise GanglineError(f"{name!r} is there twice, expected different schedulers and run folders")
    groups = list(dict.fromkeys(actor.group for actor in actors))
    if settings.baseline is not None and settings.baseline not in groups:
        raise unknown_name("baseline", settings.baseline, groups)
    return actors


def _policies_in(folder: Path) -> list[Actor]:
    """The trained agents of a run folder, one for each seed."""
    models = [folder / "model.zip"] if (folder / "model.zip").exists() else sorted(folder.glob("seed-*/model.zip"))
    if not models or not (folder / "config.json").exists():
        raise GanglineError(
            f"policy {folder}: no config.json and model.zip there, expected the folder of a training run"
        )
    group = folder.resolve().name
    actors = []
    for model in models:
        seed = int(model.parent.name.removeprefix("seed-")) if model.parent != folder else 0
        name = group if len(models) == 1 else f"{group} seed {seed}"
        actors.append(Actor(name, group, seed, run_dir=str(folder), model=str(model)))
    return actors


def _tasks(settings: Settings, world: WorldConfig, actors: Sequence[Actor]) -> list[Task]:
    """Every run: trace by trace, so that a benchmark that is cut short compares what it has."""
    if settings.traces < 1:
        raise GanglineError(f"traces is {settings.traces}, expected at least 1")
    if settings.seed < 0:
        raise GanglineError(f"seed is {settings.seed}, expected a whole number of at least 0")
    if settings.drain_h < 0:
        raise GanglineError(f"drain_h is {settings.drain_h}, expected at least 0")
    for offered in settings.loads:
        if not offered > 0:
            raise GanglineError(f"load is {offered}, expected more than 0")
    loads: list[float | None] = list(settings.loads) or [None]
    text = _world_text(world)
    traces = range(settings.seed, settings.seed + settings.traces)
    tasks = []
    for trace in traces:
        for load in loads:
            for actor in (*actors, None):
                draws = trace == traces[0] and actor is not None
                tasks.append(Task(text, actor, load, trace, draws, settings.drain_h, settings.out))
    return tasks


def command_of(settings: Settings) -> str:
    """The command that makes these results, without where they go and on how many cores."""
    words = ["gangline benchmark", "--world", settings.world]
    if settings.schedulers:
        words += ["--schedulers", ",".join(settings.schedulers)]
    if settings.policies:
        words += ["--policies", *settings.policies]
    if settings.loads:
        words += ["--loads", ",".join(f"{load:g}" for load in settings.loads)]
    words += ["--traces", str(settings.traces), "--seed", str(settings.seed), "--drain-h", f"{settings.drain_h:g}"]
    return shlex.join([*" ".join(words).split(), *(f"{key}={value}" for key, value in settings.overrides.items())])


def _world_text(world: WorldConfig) -> str:
    return json.dumps(configs.to_mapping(world), sort_keys=True)


def _about(settings: Settings, world: WorldConfig, actors: Sequence[Actor]) -> dict[str, Any]:
    """What `benchmark.json` says: enough to make the same results again."""
    packages = [*VERSIONED, *(POLICY_VERSIONED if settings.policies else ())]
    versions = {name: importlib.metadata.version(name) for name in packages if _is_installed(name)}
    versions |= {"gangline": gangline.__version__, "python": platform.python_version()}
    path = world.workload.path
    files = {} if path is None else {"workload": _hash_of_file(path)}
    files |= {actor.name: _hash_of_file(actor.model) for actor in actors if actor.model is not None}
    text = _world_text(world)
    return {
        "command": command_of(settings),
        "world_name": settings.world,
        "world": json.loads(text),
        "hashes": {"world": hashlib.sha256(text.encode()).hexdigest(), "code": code_hash(), **files},
        "versions": versions,
        "actors": [asdict(actor) for actor in actors],
        "loads": list(settings.loads),
        "traces": [settings.seed + i for i in range(settings.traces)],
        "baseline": settings.baseline or actors[0].group,
        "drain_h": settings.drain_h,
    }


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package.replace("-", "_")) is not None


@cache
def _hash_of_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise GanglineError(f"{path}: {error.strerror}, expected a file that can be read") from None


@cache
def code_hash() -> str:
    """SHA-256 of the simulator and the baselines: what a run's numbers depend on."""
    root = Path(envs.__file__).parent.parent
    digest = hashlib.sha256()
    for folder in ("envs", "baselines"):
        for file in sorted((root / folder).rglob("*.py")):
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _claim_folder(folder: Path, about: dict[str, Any]) -> None:
    """Write `benchmark.json`, or find that the folder's own says the same of what the runs in it depend on."""
    file = folder / "benchmark.json"
    if file.exists():
        try:
            there = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError):
            raise GanglineError(f"{file} cannot be read, expected that of a benchmark; choose another --out") from None
        for name in ("world", "versions", "drain_h"):
            if there.get(name) != about[name]:
                raise GanglineError(
                    f"{folder} holds a benchmark with another {name}, expected the same; choose another --out"
                )
        for name in there.get("hashes", {}).keys() & about["hashes"].keys():
            if there["hashes"][name] != about["hashes"][name]:
                raise GanglineError(f"{folder} holds runs of another {name} (its hash differs); choose another --out")
    elif folder.exists() and any(folder.iterdir()):
        raise GanglineError(
            f"{folder} holds other files, expected a benchmark or an empty folder; choose another --out"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob("**/*.part-*"):
            part.unlink(missing_ok=True)
        write_whole(file, _json(about))
    except OSError as error:
        raise GanglineError(f"{folder}: {error.strerror}, expected a folder that can be written to") from None


# ---------------------------------------------------------------------------------------------------------------
# Playing
# ---------------------------------------------------------------------------------------------------------------


def _play(tasks: Sequence[Task], workers: int, console: Console, cluster: Any) -> Iterator[str]:
    """Play the tasks with a bar; yields a line for each that failed."""
    from gangline.agents.ray_pool import play_on_cluster

    with _progress(console) as bar:
        item = bar.add_task("playing", total=len(tasks), now="compiling")
        if cluster is not None:
            done = play_on_cluster(tasks, cluster)
        else:
            done = _in_this_process(tasks) if workers <= 1 else _in_processes(tasks, workers)
        for name, failure in done:
            bar.update(item, advance=1, now=name)
            if failure is not None:
                yield f"{name}: {failure}"


def _in_this_process(tasks: Sequence[Task]) -> Iterator[tuple[str, str | None]]:
    for task in tasks:
        yield task.place, play(task)


def _in_processes(tasks: Sequence[Task], workers: int) -> Iterator[tuple[str, str | None]]:
    for task in {task.actor: task for task in tasks}.values():
        _compile(task)  # once, before any worker needs it
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_die_with_parent) as pool:
        waiting = {pool.submit(play, task): task for task in tasks}
        try:
            for future in as_completed(waiting):
                yield waiting[future].place, future.result()
        except BrokenProcessPool:
            raise GanglineError("a worker was ended from outside (memory?); the same command goes on") from None
        except (KeyboardInterrupt, GanglineError):
            pool.shutdown(wait=False, cancel_futures=True)  # the runs in hand end, then it stops
            raise


def _die_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever. Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _compile(task: Task) -> None:
    """Make the machine code that a task needs, so that it lies in the cache."""
    if task.actor is None:
        return
    stage, actor = _stage(task.world, task.actor)
    stage.reset_one(0, task.trace, {} if task.load is None else {"load": task.load})
    stage.begin(0, 1)
    batch = batch_behind(stage)
    if isinstance(actor, base.CompiledScheduler):
        actor.compiled(batch.size)
        Recording(batch.world_of(0)).run(actor, batch.world_of(0).now_ms)


def play(task: Task) -> str | None:
    """Play a task and write its files; returns a line if that went wrong."""
    try:
        if task.actor is None:
            write_whole(task.file, _json(_private(task)))
            return None
        stage, actor = _stage(task.world, task.actor)
        batch = batch_behind(stage)
        options = {} if task.load is None else {"load": task.load}
        drain_ms = min(round(task.drain_h * HOUR_MS), NEVER // 2)
        played = play_recorded(stage, actor, task.trace, options, drain_ms=drain_ms)
        if not played.report.identity_holds:
            return "the GPU time does not add up: held is not the sum of its parts"
        if task.draws:
            _write_spans(played.recording, task.file.with_suffix(".parquet"))
        timings = Path(task.folder) / "timings" / f"{task.place}.json"
        write_whole(timings, _json(_timing(played)))
        write_whole(task.file, _json(content_of(task, played, batch.names.tenants)))
    except OSError as error:
        raise GanglineError(f"{task.file}: {error.strerror}, expected a folder that can be written to") from None
    except (GanglineError, RuntimeError) as error:
        return " ".join(str(error).split())
    return None


@lru_cache(maxsize=4)
def _batch(world: str) -> Batch:
    return Batch(from_mapping(WorldConfig, json.loads(world)), 1, keep_log=True)


@lru_cache(maxsize=64)
def _stage(world: str, actor: Actor) -> tuple[Any, Any]:
    """The batch that an actor plays on, and what decides in it."""
    if actor.scheduler is not None:
        return _batch(world), base.build(actor.scheduler)
    return _policy_stage(world, actor)


def _policy_stage(world: str, actor: Actor) -> tuple[Any, GreedyPolicy | SeveralPolicy]:
    """A trained agent sees and acts as in its training; cluster and jobs are the benchmark's."""
    from gangline.agents import training

    assert actor.run_dir is not None and actor.model is not None
    try:
        saved = json.loads((Path(actor.run_dir) / "config.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        raise GanglineError(f"policy {actor.run_dir}: config.json cannot be read, expected that of a run") from None
    trained = from_mapping(training.TrainConfig, saved)
    own = training.world_of(trained)
    config = from_mapping(WorldConfig, json.loads(world))
    config = replace(config, observation=own.observation, action=own.action, time=own.time, reward=own.reward)
    config = recordable(replace(config, multi_agent=own.multi_agent))
    name = str(trained.agent.get("name", "maskable_ppo"))
    try:
        module = importlib.import_module(name if "." in name else f"gangline.agents.{name}")
    except ImportError as error:
        raise GanglineError(f'policy {actor.name}: {error}, expected pip install "gangline[train]"') from None
    import torch

    torch.set_num_threads(1)  # runs are played side by side
    policy = policy_of(module.load(Path(actor.model)))
    stage = stage_for(config, policy)
    expected, found = policy.model.observation_space.shape, stage.observations.shape[-1:]
    if expected != found:
        raise GanglineError(
            f"policy {actor.name} was trained on observations of shape {expected}, this world has {found}; "
            "expected the same number of tenants, nodes and rows"
        )
    return stage, policy


def _private(task: Task) -> dict[str, Any]:
    batch = _batch(task.world)
    options = {"trace": task.trace} | ({} if task.load is None else {"load": task.load})
    episode = batch.source.draw(task.trace, options)
    times = private_clusters.private_times(batch.spec, episode)
    return {
        "jct_weighted_s": {name: None if t is None else ("never" if np.isinf(t) else t) for name, t in times.items()}
    }


def _timing(played: Recorded) -> dict[str, Any]:
    """Wall time, ms: of an instant of a baseline (events, decisions, some 30 us of overhead), of a policy's choice."""
    ms = played.decision_s * 1000
    return {
        "count": len(ms),
        "total_s": float(ms.sum() / 1000),
        "p50_ms": float(np.percentile(ms, 50)) if len(ms) else None,
        "p99_ms": float(np.percentile(ms, 99)) if len(ms) else None,
        "jobs": played.report.counts["jobs"],
    }


# ---------------------------------------------------------------------------------------------------------------
# What a run's file says
# ---------------------------------------------------------------------------------------------------------------


def content_of(task: Task, played: Recorded, tenants: Sequence[str]) -> dict[str, Any]:
    """Metrics of a run, and what is drawn of it, reduced."""
    assert task.actor is not None
    window, line = played.window, played.window.timeline
    content: dict[str, Any] = {
        "actor": task.actor.name,
        "group": task.actor.group,
        "seed": task.actor.seed,
        "load": task.load,
        "trace": task.trace,
        "measured_load": played.episode.load,
        "report": played.report.to_dict(),
        "distributions": distributions(window, tenants),
    }
    if line is not None:
        content["lent_gpu_h"] = _rounded(line.flows / (ONE_GPU * HOUR_MS))
        content["stopped_gpus"] = _rounded(line.stop_flows / ONE_GPU)
        if task.draws:
            content["series"] = series_of(line, tenants)
    return content


def series_of(line: timeline.Timeline, tenants: Sequence[str]) -> dict[str, Any]:
    """Means over NUM_BUCKETS equal stretches of the window, GPUs; times in hours since its beginning."""
    return {
        "edges_h": _rounded((line.edges_ms - line.start_ms) / HOUR_MS),
        "tenants": list(tenants),
        **{name: _rounded(line.series[i].T) for i, name in enumerate(timeline.SERIES)},
        "cluster": {name: _rounded(line.cluster_series[i]) for i, name in enumerate(timeline.CLUSTER_AREAS)},
    }


def distributions(window: Window, tenants: Sequence[str]) -> dict[str, Any]:
    """Quantiles of wait (h) and bounded slowdown of every job, so far where it is unfinished, by size and tenant."""
    wait_h = window.wait_so_far_ms / HOUR_MS
    slowdown = np.maximum(window.jct_so_far_ms / np.maximum(window.jobs["work_ms"], TAU_MS), 1.0)
    size = size_class_of(window.jobs)
    groups = {"all": np.ones(len(wait_h), bool)}
    groups |= {f"size {name}": size == i for i, name in enumerate(SIZE_CLASSES)}
    groups |= {f"tenant {name}": window.jobs["tenant"] == k for k, name in enumerate(tenants)}
    return {
        group: {
            "jobs": int(chosen.sum()),
            "wait_h": _rounded(np.quantile(wait_h[chosen], QUANTILES)),
            "slowdown": _rounded(np.quantile(slowdown[chosen], QUANTILES)),
        }
        for group, chosen in groups.items()
        if chosen.any()
    }


def _write_spans(recording: Recording, file: Path) -> None:
    """Who held which GPU, for the Gantt chart: one row for each pod that did one thing; times in ms since the start."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    spans = recording.spans
    length = spans["end_ms"] - spans["begin_ms"]
    if len(spans) > MOST_SPANS:
        spans = spans[np.sort(np.argsort(-length, kind="stable")[:MOST_SPANS])]
    names = recording.world.names
    rows = {
        "job": [recording.world.job_name(int(row)) for row in spans["row"]],
        "tenant": [names.tenants[k] for k in spans["tenant"]],
        "row": spans["row"],
        "node": spans["node"],
        "gpu_mask": spans["gpu_mask"],
        "gpu_milli": spans["gpu_milli"],
        "kind": spans["kind"],
        "begin_ms": spans["begin_ms"] - recording.begin_ms,
        "end_ms": spans["end_ms"] - recording.begin_ms,
    }
    nodes = recording.world.record["nodes"][: len(names.nodes)]
    about = {"node_gpus": json.dumps(nodes["num_gpus"].tolist()), "nodes": json.dumps(list(names.nodes))}
    table = pa.table(rows).replace_schema_metadata(about)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = _part_of(file)
    pq.write_table(table, part, compression="zstd")
    part.replace(file)


def _rounded(values: np.ndarray) -> Any:
    """Nested lists with five significant digits: what is drawn needs no more."""
    flat = [float(f"{value:.5g}") for value in np.asarray(values, float).reshape(-1).tolist()]
    shape = np.shape(values)
    return np.array(flat).reshape(shape).tolist()


# ---------------------------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------------------------


def load_name(load: float | None) -> str:
    """Name of a load's folder."""
    return "own load" if load is None else f"load {load:g}"


def write_whole(file: Path, content: str | bytes) -> None:
    """Write a file beside its place and put it there at once; text as UTF-8."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = _part_of(file)
    with part.open("wb") as out:
        out.write(content.encode() if isinstance(content, str) else content)
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)


def _part_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.part-{os.getpid()}")


def _json(content: Any) -> str:
    return json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":")) + "\n"


def _needs(package: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError:
        raise GanglineError(f'a benchmark needs {package}, expected pip install "gangline[report]"') from None


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}"),
        console=console,
        refresh_per_second=2,
    )


def default_workers() -> int:
    """One for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
