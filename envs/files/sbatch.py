"""`sbatch` command lines and `#SBATCH` scripts: one job request.

    read_command("sbatch --nodes=8 --ntasks-per-node=8 --gres=gpu:h100:8 train.sh")
    read_script("train.sh")

Options on the command line win over those in the script, as in Slurm. Where the script that a command names can be
found, its `#SBATCH` lines count. Source: sbatch(1).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gangline.envs.core.spec import MINUTE_MS, JobSpec, PodSetSpec
from gangline.envs.core.types import ONE_GPU
from gangline.envs.errors import GanglineError
from gangline.envs.files import slurm_values
from gangline.envs.files.slurm_values import gpu_request, hosts, minutes_up, size_bytes, time_ms
from gangline.envs.files.text import (
    Expected,
    count,
    lines_of,
    nearest,
    parsed,
    positive,
    read_text,
    shown,
    whole,
    word,
    words,
)

MAX_LINE = 1 << 16  # characters of a command


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """What a job asks for, in Slurm's words. None = not given."""

    name: str | None = None
    script: str | None = None
    account: str | None = None
    partitions: tuple[str, ...] = ()
    qos: str | None = None
    nodes: int | None = None  # at least
    max_nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    gpus: int | None = None  # of the whole job
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    gpu_type: str | None = None
    cpus_per_gpu: int | None = None
    memory_per_node: int | None = None  # bytes; 0 = all of the node
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None
    time_limit_min: int | None = None  # whole minutes, rounded up
    unlimited: bool = False  # --time=UNLIMITED
    time_min_min: int | None = None
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    constraint: str | None = None
    exclusive: bool = False
    contiguous: bool = False
    oversubscribe: bool = False
    requeue: bool = True
    nice: int = 0
    priority: int | None = None
    hold: bool = False
    begin: str | None = None
    dependency: str | None = None
    array: tuple[int, ...] = ()  # indices
    array_limit: int | None = None  # that run at once
    reservation: str | None = None

    @property
    def spreads_gpus(self) -> bool:
        """It leaves open on how many nodes its GPUs are: --gpus without a number of nodes, or of GPUs on each."""
        return self.gpus is not None and self.nodes is None and self.gpus_per_node is None and not self.ntasks_per_node

    @property
    def num_nodes(self) -> int:
        """Nodes that it takes: those asked for, those that hold its tasks, at least 1."""
        if self.nodes is not None:
            return self.nodes
        if self.ntasks is not None and self.ntasks_per_node:
            return max(1, -(-self.ntasks // self.ntasks_per_node))
        if self.gpus is not None and self.gpus_per_node:
            return max(1, -(-self.gpus // self.gpus_per_node))
        return 1

    @property
    def num_tasks(self) -> int:
        """Tasks of the whole job."""
        if self.ntasks is not None:
            return self.ntasks
        return self.num_nodes * (self.ntasks_per_node or 1)

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole job."""
        if self.gpus is not None:
            return self.gpus
        if self.gpus_per_node is not None:
            return self.gpus_per_node * self.num_nodes
        return (self.gpus_per_task or 0) * self.num_tasks

    @property
    def num_cpus(self) -> int:
        """CPUs of the whole job, at least one a node."""
        per_task = self.cpus_per_task or 1
        by_gpus = (self.cpus_per_gpu or 0) * self.num_gpus
        return max(self.num_tasks * per_task, by_gpus, self.num_nodes)

    def job_spec(
        self,
        name: str,
        *,
        tenant: str | None = None,
        user: str | None = None,
        submit_ms: int = 0,
        work_ms: int,
        with_cpus: bool = True,
    ) -> JobSpec:
        """The job for a `WorldSpec`: a pod is the job's part of one node.

        GPUs, CPUs that do not divide by the nodes: the first nodes get one more. `--gpus` without nodes: a pod is one
        GPU with its part of the CPUs, so that the first node chosen is filled and the rest is on the next.

        Args:
            name: of the job.
            tenant: the job's account where None.
            user: who submits it.
            submit_ms: when.
            work_ms: how long it will run, which no request says.
            with_cpus: count CPUs too; off for worlds that have none.
        """
        nodes = self.num_nodes
        pods: dict[tuple[int, int], int] = {}  # (GPUs, milli-CPU) of a pod -> pods
        if self.spreads_gpus:
            pods[1, -(-self.num_cpus * 1000 // self.num_gpus)] = self.num_gpus
        else:
            for node in range(nodes):
                gpus, cpus = (total // nodes + (node < total % nodes) for total in (self.num_gpus, self.num_cpus))
                pods[gpus, cpus * 1000] = pods.get((gpus, cpus * 1000), 0) + 1
        flavors = None if self.gpu_type is None else [self.gpu_type]
        return JobSpec(
            name=name,
            tenant=tenant or self.account or "default",
            user=user,
            submit_ms=submit_ms,
            work_ms=work_ms,
            claim_ms=None if self.time_limit_min is None else self.time_limit_min * MINUTE_MS,
            killed_at_claim=self.time_limit_min is not None,
            checkpoint_interval_ms=None,
            requeue=self.requeue,
            pod_sets=[
                PodSetSpec(
                    count=number,
                    request={
                        **({"gpu": gpus * ONE_GPU} if gpus else {}),
                        **({"cpu": cpus} if with_cpus else {}),
                    },
                    flavors=flavors,
                )
                for (gpus, cpus), number in pods.items()
            ],
        )

    def job_specs(self, name: str, **fields: Any) -> list[JobSpec]:
        """A job for each element of an array, `name_4` and so on; of no array, the job alone. See `job_spec`."""
        if not self.array:
            return [self.job_spec(name, **fields)]
        return [self.job_spec(f"{name}_{index}", **fields) for index in self.array]


# ---------------------------------------------------------------------------------------------------------------
# Options: what each gives
# ---------------------------------------------------------------------------------------------------------------


def _node_range(text: str) -> dict[str, Any]:
    found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", text.strip())
    if found is None or int(found[1]) < 1 or (found[2] and int(found[2]) < int(found[1])):
        raise Expected("a number of nodes such as 4, or 2-4")
    return {"nodes": int(found[1]), "max_nodes": int(found[2] or found[1])}


def _gres(text: str) -> dict[str, Any]:
    gpus = [entry for entry in slurm_values.gres(text) if entry.name == "gpu"]
    types = {entry.type for entry in gpus}
    if not gpus:
        return {}
    return {"gpus_per_node": sum(e.number for e in gpus), "gpu_type": types.pop() if len(types) == 1 else None}


def _gpus(field: str) -> Any:
    def parse(text: str) -> dict[str, Any]:
        number, kind = gpu_request(text)
        return {field: number, **({"gpu_type": kind} if kind else {})}

    return parse


def _time(text: str) -> dict[str, Any]:
    minutes = minutes_up(time_ms(text))
    return {"time_limit_min": minutes or None, "unlimited": not minutes}  # 0 = unlimited, as in Slurm


def _array(text: str) -> dict[str, Any]:
    spans, _, at_once = text.partition("%")
    indices: list[int] = []
    for span in words(spans):
        found = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?", span)
        if found is None or int(found[3] or 1) < 1:
            raise Expected("indices such as 0-15, 1-9:2 or 1,4,7, with %4 for at most four at once")
        last = int(found[2] or found[1])
        if last - int(found[1]) > 4_000_000:
            raise Expected("at most 4,000,001 indices")
        indices += range(int(found[1]), last + 1, int(found[3] or 1))
    if not indices:
        raise Expected("indices such as 0-15")
    return {"array": tuple(indices), "array_limit": positive(at_once) if at_once else None}


def _as(field: str, parse: Any) -> Any:
    return lambda text: {field: parse(text)}


def _signed(text: str) -> dict[str, Any]:
    return {"nice": whole(text) if text.strip() else 100}


# option: (short form or "", what it gives)
OPTIONS: dict[str, tuple[str, Any]] = {
    "account": ("A", _as("account", lambda text: word(text).lower())),
    "array": ("a", _array),
    "begin": ("b", _as("begin", word)),
    "constraint": ("C", _as("constraint", word)),
    "cpus-per-gpu": ("", _as("cpus_per_gpu", positive)),
    "cpus-per-task": ("c", _as("cpus_per_task", positive)),
    "dependency": ("d", _as("dependency", word)),
    "exclude": ("x", _as("exclude", hosts)),
    "gpus": ("G", _gpus("gpus")),
    "gpus-per-node": ("", _gpus("gpus_per_node")),
    "gpus-per-task": ("", _gpus("gpus_per_task")),
    "gres": ("", _gres),
    "job-name": ("J", _as("name", word)),
    "mem": ("", _as("memory_per_node", size_bytes)),
    "mem-per-cpu": ("", _as("memory_per_cpu", size_bytes)),
    "mem-per-gpu": ("", _as("memory_per_gpu", size_bytes)),
    "nodelist": ("w", _as("nodelist", hosts)),
    "nodes": ("N", _node_range),
    "ntasks": ("n", _as("ntasks", positive)),
    "ntasks-per-node": ("", _as("ntasks_per_node", positive)),
    "partition": ("p", _as("partitions", words)),
    "priority": ("", _as("priority", count)),
    "qos": ("q", _as("qos", word)),
    "reservation": ("", _as("reservation", word)),
    "time": ("t", _time),
    "time-min": ("", lambda text: {"time_min_min": minutes_up(time_ms(text))}),
}
# options whose value may be left out; then it needs an `=`
OPTIONAL: dict[str, tuple[str, Any]] = {
    "exclusive": ("", lambda text: {"exclusive": True}),
    "nice": ("", _signed),
}
FLAGS: dict[str, tuple[str, dict[str, Any]]] = {
    "contiguous": ("", {"contiguous": True}),
    "hold": ("H", {"hold": True}),
    "no-requeue": ("", {"requeue": False}),
    "oversubscribe": ("s", {"oversubscribe": True}),
    "requeue": ("", {"requeue": True}),
}
# Options of sbatch that decide nothing here: with a value, and without.
IGNORED = {
    **{name: "" for name in ("acctg-freq", "batch", "bb", "bbf", "cluster-constraint", "comment", "container")},
    **{name: "" for name in ("container-id", "core-spec", "cores-per-socket", "cpu-freq", "deadline", "delay-boot")},
    **{name: "" for name in ("distribution", "export-file", "extra", "extra-node-info", "gid", "gpu-bind", "gpu-freq")},
    **{
        name: ""
        for name in ("gpus-per-socket", "gres-flags", "hint", "licenses", "mail-type", "mail-user", "mcs-label")
    },
    **{name: "" for name in ("mem-bind", "mincpus", "network", "ntasks-per-core", "ntasks-per-gpu")},
    **{name: "" for name in ("ntasks-per-socket", "open-mode", "power", "prefer", "profile", "resv-ports", "segment")},
    **{name: "" for name in ("signal", "sockets-per-node", "switches", "thread-spec", "threads-per-core", "tmp")},
    **{name: "" for name in ("tres-bind", "tres-per-task", "uid", "wait-all-nodes", "wckey")},
    **{"chdir": "D", "clusters": "M", "error": "e", "export": "", "input": "i", "output": "o", "wrap": ""},
    **{"core-spec": "S", "distribution": "m", "licenses": "L", "extra-node-info": "B"},
}
IGNORED_FLAGS = {
    **{name: "" for name in ("get-user-env", "ignore-pbs", "kill-on-invalid-dep", "no-kill", "overcommit", "parsable")},
    **{name: "" for name in ("propagate", "reboot", "spread-job", "stepmgr", "test-only", "use-min-nodes")},
    **{"no-kill": "k", "overcommit": "O", "quiet": "Q", "verbose": "v", "wait": "W", "quiet-": ""},
}
IGNORED_FLAGS.pop("quiet-")

_SHORT = {short: name for table in (OPTIONS, OPTIONAL, FLAGS) for name, (short, _) in table.items() if short} | {
    short: name for table in (IGNORED, IGNORED_FLAGS) for name, short in table.items() if short
}
_LONG = (*OPTIONS, *OPTIONAL, *FLAGS, *IGNORED, *IGNORED_FLAGS)


def read_command(line: str, *, folder: str | Path | None = None) -> JobRequest:
    """The request of an `sbatch ...` command line.

    Args:
        line: the line; variables before it, a prompt `$` and a continuation with `\\` are accepted.
        folder: where the script is; its `#SBATCH` lines are read if it is there. None = it is not looked for.

    Raises:
        GanglineError: one line: not an sbatch command, an option that sbatch does not have, a wrong value.
    """
    where = "sbatch command"
    parts = _split(re.sub(r"\\\r?\n", " ", line), where)
    while parts and (parts[0] == "$" or re.fullmatch(r"\w+=.*", parts[0], re.DOTALL)):
        parts.pop(0)
    if not parts or parts[0].rpartition("/")[2] != "sbatch":
        raise GanglineError(f"{where}: {shown(line)}, expected sbatch OPTIONS SCRIPT")
    given, rest = _options(parts[1:], where)
    script = rest[0] if rest else None
    request = JobRequest(script=script)
    if script is not None and folder is not None and (Path(folder) / script).is_file():
        request = replace(read_script(Path(folder) / script), script=script)
    return _checked(replace(request, **given), where)


def read_script(path: str | Path) -> JobRequest:
    """The request of a script: its `#SBATCH` lines up to the first command.

    Raises:
        GanglineError: one line with file and line.
    """
    request = JobRequest(script=str(path))
    for number, line in enumerate(lines_of(read_text(path, "script")), 1):
        if line.startswith("#SBATCH"):
            where = f"script {path} line {number}"
            parts = _split(line[len("#SBATCH") :], where, comments=True)
            if parts and parts[0] in ("hetjob", "packjob"):
                raise GanglineError(f"{where}: a heterogeneous job, expected one component")
            given, rest = _options(parts, where)
            if rest:
                raise GanglineError(f"{where}: {shown(rest[0])}, expected options such as --nodes=8")
            request = replace(request, **given)
        elif line.strip() and not line.startswith("#"):
            break
    return _checked(request, f"script {path}")


def _split(line: str, where: str, comments: bool = False) -> list[str]:
    """The words of a line, as a shell would have them."""
    if len(line) > MAX_LINE:
        raise GanglineError(f"{where}: {len(line)} characters, expected at most {MAX_LINE}")
    try:
        return shlex.split(line, comments=comments)
    except ValueError as error:
        raise GanglineError(f"{where}: {shown(line)} has no end ({error}), expected closed quotes") from None


def _options(parts: list[str], where: str) -> tuple[dict[str, Any], list[str]]:
    """(what the options give, the script and its own arguments)."""
    given: dict[str, Any] = {}
    place = 0
    while place < len(parts) and parts[place].startswith("-") and parts[place] != "-":
        part = parts[place]
        place += 1
        if part == "--":
            break
        for name, value in _named(part, where):
            if name in FLAGS:
                given.update(FLAGS[name][1])
            elif name in OPTIONAL:
                given.update(parsed(where, f"--{name}", value or "", OPTIONAL[name][1]))
            elif name in IGNORED_FLAGS:
                pass
            else:
                if value is None:
                    if place == len(parts):
                        raise GanglineError(f"{where}: --{name} has no value, expected one")
                    value = parts[place]
                    place += 1
                if name in OPTIONS:
                    given.update(parsed(where, f"--{name}", value, OPTIONS[name][1]))
    rest = parts[place:]
    if ":" in rest[:1]:
        raise GanglineError(f"{where}: a heterogeneous job, expected one component")
    return given, rest


def _named(part: str, where: str) -> Iterator[tuple[str, str | None]]:
    """(long name, value where it is in the same word) of one word; `-HQ` is two flags."""
    if part.startswith("--"):
        name, equals, value = part[2:].partition("=")
        if name not in _LONG:
            found = [known for known in _LONG if known.startswith(name)] if name else []
            if len(found) != 1:  # an unambiguous beginning will do, as in Slurm
                known = ", ".join(f"--{n}" for n in found) or "the options of sbatch(1)"
                raise GanglineError(f"{where}: no option {shown('--' + name)}; known: {known}{nearest(name, _LONG)}")
            name = found[0]
        yield name, value if equals else None
        return
    letters = part[1:]
    while letters:
        if letters[0] not in _SHORT:
            raise GanglineError(f"{where}: no option {shown('-' + letters[0])}, expected the options of sbatch(1)")
        name = _SHORT[letters[0]]
        if name in FLAGS or name in IGNORED_FLAGS:
            letters = letters[1:]
            yield name, None
        else:
            yield name, letters[1:] or None
            return


def _checked(request: JobRequest, where: str) -> JobRequest:
    """Refuse requests that contradict themselves."""
    if request.gpus_per_task is not None and request.ntasks is None and request.ntasks_per_node is None:
        raise GanglineError(f"{where}: --gpus-per-task without a number of tasks, expected --ntasks with it")
    if request.nodes is not None and request.ntasks is not None and request.ntasks < request.nodes:
        request = replace(request, nodes=request.ntasks)  # Slurm warns and takes fewer nodes
    each, nodes = request.gpus_per_node, request.num_nodes
    if request.gpus is not None and each is not None and request.gpus != each * nodes:
        raise GanglineError(
            f"{where}: {request.gpus} GPUs in all and {each} on each of {nodes} nodes, expected one number"
        )
    return request
