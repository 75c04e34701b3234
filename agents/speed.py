"""How fast it is here: the rows of `gangline speed`, each measured in this process or in fresh ones.

Rates and compile times are per second of CPU time of one core, since other work on a shared machine takes time that
is not ours; starts of a process are by the clock. A replay runs until `least_s` have passed, at least twice, and
counts the best run; stepping counts the best of three stretches.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import gangline
from gangline.baselines import base
from gangline.envs.cluster_env import Batch
from gangline.envs.config import WorldConfig, load_world
from gangline.envs.core.spec import WorldSpec
from gangline.envs.core.trace import JobTrace
from gangline.envs.core.types import NEVER, ONE_GPU
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.workloads.synthetic import Synthetic
from gangline.envs.worlds import build_world

GAP_MS = 3_600_000
WAIT = 0
EIGHT_NODES: dict[str, Any] = {
    "world": "small",
    "episode.num_jobs": 800,
    "episode.horizon_h": None,
    "episode.warm_h": 0,
}
SOME_ENVS, MANY_ENVS = 8, 256  # a batch that fits into a cache, and the one that is asked for
SIXTY_FOUR_NODES: dict[str, Any] = {
    "world": "small",
    "cluster.nodes": [{"count": 64, "gpus": 8}],
    "workload.options": {"num_tenants": 20},
    "episode.num_jobs": 5000,
    "episode.horizon_h": None,
    "episode.warm_h": 0,
}
CONGESTED: dict[str, Any] = {
    "cluster.nodes": [{"count": 64, "gpus": 8}],
    "workload.window": ("2017-10-09", "2017-11-06"),
    "episode.horizon_h": None,
    "episode.warm_h": 0,
}
REAL_SYSTEMS = ("slurm", "volcano", "kueue")
TEXTBOOK = ("easy", "sjf", "las")


@dataclass(frozen=True)
class Row:
    """One measured quantity.

    Attributes:
        name: what was measured.
        value: the figure, None if it could not be measured (`note` says why).
        unit: its unit.
        must, aim: what we ask of ourselves; None = nothing. Rates are floors, seconds are ceilings.
        note: load, queue lengths, placement attempts.
    """

    name: str
    value: float | None
    unit: str
    must: float | None = None
    aim: float | None = None
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the must is reached; None if there is nothing to reach."""
        if self.value is None or self.must is None:
            return None
        return self.value <= self.must if self.unit == "s" else self.value >= self.must


@dataclass(frozen=True)
class Measurement:
    """All rows, and the machine they were measured on."""

    rows: list[Row]
    machine: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain data: `rows` and `machine`."""
        return {"rows": [asdict(row) for row in self.rows], "machine": self.machine}


def measure(
    trace: str | None,
    *,
    peers: bool = False,
    compiles: bool = True,
    least_s: float = 1.0,
    schedulers: Sequence[str] = (),
    tell: Callable[[str], None],
) -> Measurement:
    """Measure every row.

    Args:
        trace: Philly as CSV, for the replays; None = leave them out.
        peers: also other environments, where they are installed.
        compiles: also compiling from nothing, which takes a minute.
        least_s: how long each rate is measured.
        schedulers: measure only what these do: replays, compiling. Empty = everything.
        tell: called with the name of what is measured next.
    """
    if not 0 < least_s < math.inf:
        raise GanglineError(f"seconds is {least_s}, expected more than 0")
    if trace is not None and not Path(trace).is_file():
        raise GanglineError(f"trace {trace}: no such file, expected Philly as CSV")
    for name in schedulers:
        if name not in base.scheduler_names():
            raise unknown_name("scheduler", name, base.scheduler_names())
    rows: list[Row] = []
    for part in _parts(trace, peers, compiles, least_s, schedulers):
        tell(part.what)
        rows += part.run()
    return Measurement(rows, _machine())


@dataclass(frozen=True)
class _Part:
    what: str
    run: Callable[[], list[Row]]


def _parts(
    trace: str | None, peers: bool, compiles: bool, least_s: float, schedulers: Sequence[str]
) -> Iterator[_Part]:
    everything = not schedulers
    if everything:
        yield _Part("steps of one environment", lambda: _single_rows(least_s))
        yield _Part("resets", lambda: _reset_rows(least_s))
        yield _Part("steps of a batch", lambda: [_batch(least_s, count) for count in (SOME_ENVS, MANY_ENVS)])
        yield _Part("rounds of tenants", lambda: [_tenants(least_s)])
    if trace is not None:
        named = [n for n in ("fifo", *TEXTBOOK, *REAL_SYSTEMS) if n in (schedulers or base.scheduler_names())]
        yield _Part("replays of the whole trace", lambda: _replay_rows("a", trace, named, least_s))
        yield _Part("congested replays", lambda: _replay_rows("b", trace, named, least_s))
    if everything and peers:
        yield _Part("peers", lambda: _peer_rows(least_s))
    if everything:
        yield _Part("start of a process", _start_rows)
    if compiles:
        yield _Part("compiling from nothing (a minute)", lambda: _compile_rows(schedulers or ("easy", *REAL_SYSTEMS)))


# ---------------------------------------------------------------------------------------------------------------
# Stepping
# ---------------------------------------------------------------------------------------------------------------


def _first_start(mask: np.ndarray, queue_rows: int) -> int:
    """Start the first shown job that fits, else wait: the cheapest policy that keeps a cluster busy."""
    slot = int(mask[1 : 1 + queue_rows].argmax()) + 1
    return slot if mask[slot] else WAIT


def _single_rows(least_s: float) -> list[Row]:
    return [
        Row("step, 8 nodes x 8 GPUs, 800 jobs", _steps_per_s(EIGHT_NODES, least_s), "steps/s", 60_000, 120_000),
        Row(
            "step, 64 nodes x 8 GPUs, 20 tenants, 5,000 jobs",
            _steps_per_s(SIXTY_FOUR_NODES, least_s),
            "steps/s",
            30_000,
            80_000,
        ),
    ]


def _steps_per_s(settings: Mapping[str, Any], least_s: float) -> float:
    """One environment through `gymnasium.make`, resets not counted."""
    env = gymnasium.make("gangline/GpuCluster-v0", **settings)
    queue_rows = int(env.unwrapped.batch.agent["queue_rows"])  # type: ignore[attr-defined]
    _, info = env.reset(seed=0)
    best = 0.0
    for _ in range(3):
        steps, spent = 0, 0.0
        while spent < least_s:
            began = time.process_time()
            is_over = False
            for _ in range(1000):
                _, _, terminated, truncated, info = env.step(_first_start(info["action_mask"], queue_rows))
                steps += 1
                is_over = terminated or truncated
                if is_over:
                    break
            spent += time.process_time() - began
            if is_over:
                _, info = env.reset()
        best = max(best, steps / spent)
    return best


def _reset_rows(least_s: float) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.swf"
        write_swf(_eight_hundred_jobs(largest=64), file)
        given = {
            **EIGHT_NODES,
            "episode.num_jobs": None,
            "workload.name": "swf",
            "workload.path": str(file),
            "workload.load": None,
            "workload.options": {},
        }
        value = _resets_per_s(given, least_s)
    return [
        Row("reset, 800 given jobs", value, "resets/s", 10_000, 30_000),
        Row("reset, 800 new jobs each time", _resets_per_s(EIGHT_NODES, least_s), "resets/s"),
    ]


def _resets_per_s(settings: Mapping[str, Any], least_s: float) -> float:
    env = gymnasium.make("gangline/GpuCluster-v0", **settings)
    env.reset(seed=0)
    resets, began = 0, time.process_time()
    while time.process_time() - began < least_s:
        env.reset()
        resets += 1
    return resets / (time.process_time() - began)


def _eight_hundred_jobs(largest: int) -> JobTrace:
    """Generated jobs of at most so many GPUs, always the same ones."""
    return Synthetic(num_jobs=800, max_gpus=largest).sample(np.random.default_rng(0))


def write_swf(trace: JobTrace, path: Path) -> None:
    """Write jobs in the Standard Workload Format: one line per job, whole seconds, a processor per GPU."""
    lines = ["; MaxProcs: 64"]
    for i, (row, gpus) in enumerate(zip(trace.rows, trace.gpus(), strict=True)):
        run, procs = max(1, int(row["work_ms"]) // 1000), int(gpus) // ONE_GPU
        values = [i + 1, int(row["submit_ms"]) // 1000, -1, run, procs, -1, -1, procs, run, -1, 1, int(row["tenant"])]
        lines.append(" ".join(str(v) for v in [*values, -1, -1, -1, -1, -1, -1]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _batch(least_s: float, num_envs: int) -> Row:
    """The native batch; the policy and the resets are not counted.

    What is asked of the large one is not asked of the small one, which is there to tell computing from memory.
    """
    batch = Batch(load_world(**EIGHT_NODES), num_envs)
    queue_rows = int(batch.agent["queue_rows"])
    rng = np.random.default_rng(0)
    for i in range(num_envs):
        batch.reset_one(i, i, {})
    batch.begin(0, num_envs)
    best = 0.0
    everyone = np.arange(num_envs)
    for _ in range(3):
        steps, spent = 0, 0.0
        while spent < least_s:
            starts = batch.masks[:, 1 : 1 + queue_rows]
            slot = starts.argmax(1)
            batch.actions[:, 0] = np.where(starts[everyone, slot] == 1, slot + 1, WAIT)
            began = time.process_time()
            batch.step(0, num_envs)
            spent += time.process_time() - began
            steps += num_envs
            for i in np.flatnonzero(batch.envs["terminated"] | batch.envs["truncated"]).tolist():
                batch.reset_one(i, int(rng.integers(1 << 60)), {})
                batch.begin(i, i + 1)
        best = max(best, steps / spent)
    name = f"batch of {num_envs}, 8 nodes x 8 GPUs"
    return Row(name, best, "steps/s", *((400_000, 800_000) if num_envs == MANY_ENVS else ()))


def _tenants(least_s: float, num_agents: int = 8) -> Row:
    """Rounds of the tenants' ParallelEnv, each an agent-step of every agent; the policy is counted, resets are not."""
    name = f"tenants ParallelEnv, {num_agents} agents"
    if importlib.util.find_spec("pettingzoo") is None:
        return Row(name, None, "agent-steps/s", 60_000, 200_000, "pettingzoo is not installed")
    env = gangline.tenants_env(**{**EIGHT_NODES, "workload.options": {"num_tenants": num_agents}})
    queue_rows = int(env.batch.agent["queue_rows"])
    best = 0.0
    for seed in range(3):
        seen, _ = env.reset(seed=seed)
        steps, spent = 0, 0.0
        while spent < least_s:
            began = time.process_time()
            for _ in range(1000):
                seen, *_ = env.step({a: _first_start(seen[a]["action_mask"], queue_rows) for a in env.agents})
                steps += 1
                if not env.agents:
                    break
            spent += time.process_time() - began
            if not env.agents:
                seen, _ = env.reset()
        best = max(best, steps * num_agents / spent)
    return Row(name, best, "agent-steps/s", 60_000, 200_000)


# ---------------------------------------------------------------------------------------------------------------
# Replays
# ---------------------------------------------------------------------------------------------------------------

REPLAYS = {"a": "whole Philly, 300 x 8 GPUs", "b": "congested Philly, 64 x 8 GPUs"}
FLOORS = {  # (must, aim) jobs/s
    ("a", "fifo"): (500_000, 2_000_000),
    ("b", "fifo"): (200_000, 1_000_000),
    **{("a", name): (100_000, 500_000) for name in TEXTBOOK},
    **{("b", name): (30_000, 200_000) for name in TEXTBOOK},
    **{("a", name): (5_000, 20_000) for name in REAL_SYSTEMS},
    **{("b", name): (1_000, 10_000) for name in ("kueue", "volcano")},
    ("b", "slurm"): (100, 1_000),
}
SCALED = ("fifo", "easy")  # schedulers that also replay four times the jobs


def _replay_rows(which: str, path: str, names: list[str], least_s: float) -> list[Row]:
    overrides = {} if which == "a" else CONGESTED
    config = load_world("philly", **{"workload.path": path, **overrides})
    spec, trace = _jobs_of(config)
    rows = []
    for name in names:
        rate, world = replay(spec, trace, base.build(name), least_s)
        must, aim = FLOORS[which, name]
        decisions = int(world.record["totals"]["num_decisions"])
        cost = (
            f"{decisions} decisions of {1e6 * trace.num_jobs / rate / decisions:.1f} us, the simulator's part included"
        )
        note = f"{_described(world, trace)}, {cost}"
        rows.append(Row(f"({which}) {REPLAYS[which]}: {name}", rate, "jobs/s", must, aim, note))
        if which == "b" and name in SCALED:
            longer = repeated(trace, 4, world.now_ms + GAP_MS)
            rate_of_4, larger = replay(spec, longer, base.build(name), least_s)
            rows.append(
                Row(
                    f"({which}) {name}: jobs/s at 4 x the jobs over 1 x",
                    rate_of_4 / rate,
                    "ratio",
                    0.7,
                    0.9,
                    _described(larger, longer),
                )
            )
    return rows


def _jobs_of(config: WorldConfig) -> tuple[WorldSpec, JobTrace]:
    """World and jobs of a configuration: those of its window, none left out."""
    spec, source = build_world(config)
    episode = source.draw(0, {})
    chosen = np.arange(episode.first_row, episode.end_row)
    if config.workload.window is None:
        return spec, source.layout()
    return spec, source.layout().select(chosen)


def replay(spec: WorldSpec, trace: JobTrace, scheduler: base.CompiledScheduler, least_s: float) -> tuple[float, World]:
    """Jobs per second of a scheduler on a trace from empty to empty, the best of at least two runs, and the world."""
    World(spec, trace).run(scheduler, 1)
    best, spent, runs = 0.0, 0.0, 0
    while runs < 2 or spent < least_s:
        world = World(spec, trace)
        began = time.process_time()
        world.run(scheduler)
        took = time.process_time() - began
        best, spent, runs = max(best, trace.num_jobs / took), spent + took, runs + 1
        if spent > 60:
            break
    return best, world


def repeated(trace: JobTrace, times: int, period_ms: int) -> JobTrace:
    """The jobs of a trace several times, one after another: as long queues, more jobs."""
    parts = []
    for k in range(times):
        rows = trace.rows.copy()
        for column in ("submit_ms", "eligible_ms"):
            rows[column] += k * period_ms
        rows["cancel_ms"][rows["cancel_ms"] < NEVER] += k * period_ms
        rows["after_row"][rows["after_row"] >= 0] += k * trace.num_jobs
        parts.append(rows)
    return JobTrace.build(
        np.concatenate(parts), trace.pod_sets, trace.tenants, trace.users, trace.resources, trace.flavors
    )


def _described(world: World, trace: JobTrace) -> str:
    totals = world.record["totals"]
    length = max(1, int(world.record["areas_ms"]))
    submitted = int(trace.rows["submit_ms"][-1]) - int(trace.rows["submit_ms"][0]) + 1
    work = float((trace.gpus() * trace.rows["work_ms"].astype(float)).sum())
    load = work / (float(world.record["gpus_total"]) * submitted)
    return (
        f"{trace.num_jobs} jobs, load {load:.2f}, mean queue {totals['waiting_area'] / length:.0f}, "
        f"longest {totals['most_waiting']}, {totals['num_attempts']} placement attempts"
    )


# ---------------------------------------------------------------------------------------------------------------
# Processes
# ---------------------------------------------------------------------------------------------------------------

_START = """
import time
clock = time.{clock}
began = clock()
import gangline, gymnasium
imported = clock()
env = gymnasium.make("gangline/GpuCluster-v0", world="small")
env.reset(seed=0)
env.step(0)
stepped = clock()
{more}
import json
print(json.dumps([imported - began, stepped - imported, clock() - stepped]))
"""
_COMPILE_ONE = """
from gangline.baselines import base
base.build({name!r}).compiled(env.unwrapped.batch.size)
"""


def _fresh_process(more: str = "", cache: str | None = None) -> list[float]:
    """Seconds of import, first step and `more`: on the clock, or of CPU with an empty cache of compiled code."""
    environment = dict(os.environ)
    clock = "perf_counter" if cache is None else "process_time"
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = cache
    code = _START.format(more=more, clock=clock)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def _start_rows() -> list[Row]:
    runs = [_fresh_process() for _ in range(4)][1:]  # the first may have to compile
    imports, starts = (min(run[k] for run in runs) for k in (0, 1))
    return [
        Row("import of the package", imports, "s", 0.6, 0.4),
        Row("warm start: import, make, reset, step", imports + starts, "s", 1.5, 0.8),
    ]


def _compile_rows(names: Sequence[str]) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        rows.append(Row("first compile: core and environment", _fresh_process(cache=cache)[1], "s", 30, 10))
        for name in names:
            if name in base.scheduler_names():
                took = _fresh_process(_COMPILE_ONE.format(name=name), cache)[2]
                rows.append(Row(f"first compile: {name}", took, "s", 20, 8))
    return rows


# ---------------------------------------------------------------------------------------------------------------
# Others
# ---------------------------------------------------------------------------------------------------------------


def _peer_rows(least_s: float) -> list[Row]:
    """Other environments in the same run, where they are installed."""
    if importlib.util.find_spec("gpu_choochoo") is None:
        return [_cartpole(least_s), Row("peer: gpu-choochoo", None, "steps/s", note="not installed")]
    with contextlib.redirect_stdout(sys.stderr):  # it prints, and what we print may be JSON
        rows = _choochoo_rows(least_s)
    return [_cartpole(least_s), *rows]


def _cartpole(least_s: float, num_envs: int = 256) -> Row:
    """Gymnasium's vectorised CartPole, four floats of observation: what numpy can do with no simulator to speak of."""
    envs = gymnasium.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point")
    envs.reset(seed=0)
    actions = np.zeros(num_envs, np.int64)
    steps, began = 0, time.process_time()
    while time.process_time() - began < least_s:
        envs.step(actions)
        steps += num_envs
    return Row(f"peer: Gymnasium CartPole, batch of {num_envs}", steps / (time.process_time() - began), "steps/s")


def _choochoo_rows(least_s: float) -> list[Row]:
    """gpu-choochoo's environment on 8 nodes x 8 GPUs and 800 generated jobs, starting the first job of the queue."""
    from gpu_choochoo import GPUSchedulerEnv  # type: ignore[import-not-found]

    trace = _eight_hundred_jobs(largest=8)
    jobs = [
        {
            "job_id": f"J{i}",
            "arrival_time": row["submit_ms"] / 1000.0,
            "gpus_required": int(gpus) // ONE_GPU,
            "vram_required_gb": 1.0,
            "duration_sec": row["work_ms"] / 1000.0,
            "gpu_type_required": "ANY",
        }
        for i, (row, gpus) in enumerate(zip(trace.rows, trace.gpus(), strict=True))
    ]
    nodes = [{"node_id": f"n{i}", "gpu_type": "A100", "total_gpus": 8, "total_vram_gb": 640.0} for i in range(8)]
    env = GPUSchedulerEnv(nodes, jobs, max_nodes=8, max_steps=1_000_000)
    env.reset(seed=0)
    steps, began = 0, time.process_time()
    while time.process_time() - began < 2 * least_s:
        _, _, terminated, truncated, _ = env.step(1)
        steps += 1
        if terminated or truncated:
            env.reset()
    stepping = steps / (time.process_time() - began)
    resets, began = 0, time.process_time()
    while time.process_time() - began < least_s:
        env.reset()
        resets += 1
    resetting = resets / (time.process_time() - began)
    return [
        Row("peer: gpu-choochoo, step, 8 nodes x 8 GPUs, 800 jobs", stepping, "steps/s"),
        Row("peer: gpu-choochoo, reset, 800 given jobs", resetting, "resets/s"),
    ]


def _machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import numba

    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "gymnasium": gymnasium.__version__,
    }


def write_table(found: Measurement) -> str:
    """The rows as a Markdown table, and the machine."""
    lines = ["| what | here | must | aim |", "|---|---|---|---|"]
    for row in found.rows:
        mark = {None: "", True: "", False: " (missed)"}[row.is_met]
        cells = (row.name, _number(row.value, row.unit) + mark, _number(row.must, ""), _number(row.aim, ""))
        lines.append(f"| {' | '.join(cells)} |")
    notes = [f"- {row.name}: {row.note}" for row in found.rows if row.note]
    machine = ", ".join(f"{k} {v}" for k, v in found.machine.items())
    return "\n".join([*lines, "", *notes, "", machine])


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "" if not unit else "-"
    digits = 0 if value >= 100 else 2
    return f"{value:,.{digits}f} {unit}".strip()
