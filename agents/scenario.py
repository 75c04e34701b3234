"""Scenarios: worked questions about shared clusters as worlds that run, `gangline scenario list | run | compare`.

A scenario is one file, `configs/scenario/<name>.yaml`: a world (which is an RL environment of the same name too), a few
cases that are played one beside the other, and what to print of them. `run` tells a small story, before and after;
`compare` puts more schedulers, or a longer stream of jobs, side by side. Every number comes from a run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gangline.agents.timeline import Timeline, follow
from gangline.baselines.base import CompiledScheduler, build
from gangline.baselines.kueue import files as kueue_files
from gangline.baselines.slurm import files as slurm_files
from gangline.baselines.slurm.config import Request, RowRequests
from gangline.baselines.volcano import files as volcano_files
from gangline.envs import metrics
from gangline.envs.config import (
    WorldConfig,
    beside,
    folder,
    from_mapping,
    load_world,
    merged,
    read_yaml,
    scenario_names,
)
from gangline.envs.core.spec import HOUR_MS, WorldSpec
from gangline.envs.core.trace import JobTrace
from gangline.envs.core.types import NEVER, ONE_GPU
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.worlds import ListedSource, build_world

MOST_STORY_LINES = 24
NUM_LOOKS = 1400  # at a long run: as many as the picture has columns


@dataclass(frozen=True)
class Files:
    """A system's own files, beside the scenario's."""

    kueue: str | None = None  # manifests of ClusterQueues
    volcano: str | None = None  # volcano-scheduler.conf
    volcano_queues: str | None = None  # manifests of Queues
    slurm: str | None = None  # slurm.conf
    slurm_qos: str | None = None  # sacctmgr -P show qos


@dataclass(frozen=True)
class Case:
    """One way of doing it."""

    scheduler: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    files: Files = Files()
    world: dict[str, Any] = field(default_factory=dict)  # on top of the part's
    says: str = ""  # what is done here, in words


@dataclass(frozen=True)
class Part:
    """Cases to be set side by side."""

    says: str = ""
    world: dict[str, Any] = field(default_factory=dict)  # on top of the scenario's
    cases: dict[str, Case] = field(default_factory=dict)
    measures: tuple[str, ...] = ("work", "stuck", "lost", "idle", "wait", "finished")
    looks_h: tuple[float, ...] = ()  # when to say who holds what
    story: bool = True  # tell what happens, job by job
    seeds: int = 1  # draws of the streams of jobs; figures are means over them
    answer: str = ""  # what the figures show


@dataclass(frozen=True)
class Scenario:
    """A question, the world that it is about, and the cases that answer it."""

    title: str = ""
    text: str = ""  # example or exercise
    question: str = ""
    world: dict[str, Any] = field(default_factory=dict)
    run: Part = Part()
    compare: Part = Part()


@dataclass(frozen=True, eq=False)
class Played:
    """A case that has been played.

    Attributes:
        label: of the case.
        case: as the scenario has it.
        config: of its world.
        spec: of its world.
        report: the metrics.
        jobs: (num_jobs,) lines of the metrics' job table, by row.
        timeline: what happened.
        names: of the jobs, by row.
    """

    label: str
    case: Case
    config: WorldConfig
    spec: WorldSpec
    report: metrics.Report
    jobs: np.ndarray
    timeline: Timeline
    names: tuple[str, ...]

    @property
    def tenants(self) -> tuple[str, ...]:
        """Names of the teams."""
        return tuple(tenant.name for tenant in self.spec.tenants)

    def row(self, job: str) -> int:
        """Row of a job by name."""
        if job not in self.names:
            raise unknown_name("job", job, self.names)
        return self.names.index(job)


def load(scenario: str | Path) -> tuple[Scenario, Path]:
    """A scenario by name or file, and where it stands.

    Raises:
        GanglineError: no such scenario, an unknown key, a case without a scheduler.
    """
    if str(scenario).endswith((".yaml", ".yml")):
        path = Path(scenario)
    elif scenario in scenario_names():
        path = folder("scenario") / f"{scenario}.yaml"
    else:
        raise unknown_name("scenario", scenario, scenario_names())
    found = from_mapping(Scenario, read_yaml(path))
    for name, part in (("run", found.run), ("compare", found.compare)):
        if not part.cases:
            raise GanglineError(f"scenario {path.name}: {name}.cases is empty, expected at least one case")
        for label, case in part.cases.items():
            if not case.scheduler:
                raise GanglineError(f"scenario {path.name}: {name}.cases.{label} has no scheduler, expected one")
        if part.seeds < 1:
            raise GanglineError(f"scenario {path.name}: {name}.seeds is {part.seeds}, expected at least 1")
        for measure in part.measures:
            words_of(measure)
    return found, path


def play(scenario: Scenario, path: Path, part: Part, label: str, *, seed: int = 0) -> Played:
    """Play one case of a part from the first job to the end of the world's horizon."""
    case = part.cases[label]
    world = merged(merged(scenario.world, part.world), case.world)
    config = load_world(beside(world, path))
    spec, source = build_world(config)
    if not isinstance(source, ListedSource):
        raise GanglineError(f"workload {config.workload.name!r} in a scenario, expected 'listed'")
    episode = source.draw(seed, {})
    trace = episode.jobs()
    names = source.listing.names_of(episode.trace)
    scheduler = scheduler_of(case, path, source, trace)
    the_world = World(spec, trace)
    start = metrics.snapshot(the_world)
    until_ms = None if episode.end_ms >= NEVER else episode.end_ms
    every_ms = None if part.story or until_ms is None else max(1, until_ms // NUM_LOOKS)
    timeline = follow(the_world, scheduler, until_ms, names, every_ms=every_ms)
    window = metrics.window_of(the_world, start)
    return Played(
        label=label,
        case=case,
        config=config,
        spec=spec,
        report=metrics.report_of(window, the_world.names.tenants),
        jobs=window.jobs[np.argsort(window.jobs["row"])],
        timeline=timeline,
        names=names,
    )


def scheduler_of(case: Case, path: Path, source: ListedSource, trace: JobTrace) -> CompiledScheduler:
    """The scheduler of a case with its options, and its own files where it has some."""
    options = dict(case.options)
    files = case.files
    beside_it = {key: None if name is None else path.parent / name for key, name in vars(files).items()}
    first, _, second = case.scheduler.partition("+")
    if beside_it["kueue"] is not None:
        options["config"] = kueue_files.read_config(beside_it["kueue"])
    if beside_it["volcano"] is not None or beside_it["volcano_queues"] is not None:
        queues = [] if beside_it["volcano_queues"] is None else [beside_it["volcano_queues"]]
        config = volcano_files.read_config(beside_it["volcano"], *queues)
        options["volcano_config" if second else "config"] = config
    if beside_it["slurm"] is not None:
        site = slurm_files.read_config(beside_it["slurm"], qos=beside_it["slurm_qos"], any_nodes=True)
        options["config"] = replace(site, requests=_requests(source, trace))
    for key, system in (("kueue", "kueue"), ("slurm", "slurm")):
        if beside_it[key] is not None and first != system:
            raise GanglineError(f"files.{key} beside scheduler {case.scheduler!r}, expected {system!r}")
    return build(case.scheduler, **options)


def _requests(source: ListedSource, trace: JobTrace) -> RowRequests:
    """What each job's `sbatch` line asks of Slurm."""
    distinct = [Request() if r is None else slurm_files.request_of(r) for r in source.listing.requests]
    return RowRequests(distinct=distinct, of_row=trace.rows["source_row"].astype(int).tolist())


# ---------------------------------------------------------------------------------------------------------------
# What is printed of a case
# ---------------------------------------------------------------------------------------------------------------


def _idle(played: Played) -> float | None:
    share = played.report.values["idle_with_demand"]
    window = played.report.window
    hours = ((window["now_ms"] or 0) - (window["start_ms"] or 0)) / HOUR_MS
    return None if share is None else share * (window["gpus"] or 0) * hours


def _value(name: str, scale: float = 1.0) -> Callable[[Played], float | None]:
    def read(played: Played) -> float | None:
        value = played.report.values[name]
        return None if value is None else value * scale

    return read


def _count(name: str) -> Callable[[Played], tuple[float, float]]:
    return lambda played: (played.report.counts[name], played.report.counts["jobs"])


def _stops(played: Played) -> int:
    return int(played.jobs["preemptions"].sum())


MEASURES: dict[str, tuple[str, Callable[[Played], Any]]] = {
    "work": ("GPU-hours of work done and safe", _value("productive_gpu_h")),
    "stuck": ("GPU-hours held without progress (half-started)", _value("wasted_hang_gpu_h")),
    "lost": ("GPU-hours of work lost, to be done again", _value("wasted_lost_gpu_h")),
    "idle": ("GPU-hours free although somebody waited", _idle),
    "overhead": ("GPU-hours of restarts", _value("wasted_overhead_gpu_h")),
    "wait": ("mean wait until the start, hours", _value("wait_so_far_mean_s", 1 / 3600)),
    "longest": ("longest wait until the start, hours", _value("wait_max_s", 1 / 3600)),
    "finished": ("jobs finished", _count("finished")),
    "started": ("jobs started", _count("started")),
    "stops": ("times that a job was stopped", _stops),
    "over_share": ("held beyond the fair share while others lacked theirs, %", _value("over_share", 100)),
}


def words_of(measure: str) -> tuple[str, Callable[[Played], Any]]:
    """A measure's words and function: a key of MEASURES; `wait of X` with X a team, a job, `64-GPU jobs` or
    `small jobs`, the jobs of a stream; `end of JOB`; `GPU-hours of TEAM`.

    Raises:
        GanglineError: there is no such measure.
    """
    if measure in MEASURES:
        return MEASURES[measure]
    what, of, whom = measure.partition(" of ")
    if of and what in _OF:
        words, read = _OF[what]
        return words.format(whom), lambda played: read(played, whom)
    raise unknown_name("measure", measure, [*MEASURES, *(f"{name} of ..." for name in _OF)])


def _chosen(played: Played, whom: str) -> np.ndarray:
    """(num_jobs,) bool: the jobs of a team, of a size (`64-GPU jobs`), of a stream (`small jobs`), or one by name."""
    kind = whom.removesuffix(" jobs")
    sized = re.fullmatch(r"(\d+)-GPU", kind)
    if kind != whom and sized:
        return played.jobs["gpus"] == int(sized[1]) * ONE_GPU  # type: ignore[no-any-return]
    if kind != whom:
        rows = [row for row, name in enumerate(played.names) if re.fullmatch(rf"{re.escape(kind)}-\d+", name)]
        return np.isin(played.jobs["row"], rows)
    if whom in played.tenants:
        return played.jobs["tenant"] == played.tenants.index(whom)  # type: ignore[no-any-return]
    if whom not in played.names:
        raise unknown_name("team or job", whom, [*played.tenants, *played.names])
    return played.jobs["row"] == played.names.index(whom)  # type: ignore[no-any-return]


def wait_h(played: Played, whom: str) -> float | None:
    """Mean wait until the first start, hours; of jobs that never started, what they have waited so far."""
    jobs = played.jobs[_chosen(played, whom)]
    if not len(jobs):
        return None
    stop_ms = played.timeline.end_ms
    started = np.minimum(jobs["first_start_ms"], np.minimum(jobs["end_ms"], stop_ms))
    return float((started - jobs["submit_ms"]).mean() / HOUR_MS)


def end_h(played: Played, job: str) -> float | None:
    """When a job ended, hours; None if it has not."""
    end_ms = played.jobs["end_ms"][_chosen(played, job)]
    return None if not len(end_ms) or end_ms[0] >= NEVER else float(end_ms[0] / HOUR_MS)


def held_gpu_h(played: Played, tenant: str) -> float | None:
    """GPU-hours that a team held."""
    if tenant not in played.tenants:
        raise unknown_name("team", tenant, played.tenants)
    return played.report.tenants[tenant]["held_gpu_h"]


_OF: dict[str, tuple[str, Callable[[Played, str], Any]]] = {
    "wait": ("wait of {} until the start, hours", wait_h),
    "end": ("{} ends at hour", end_h),
    "GPU-hours": ("GPU-hours held by {}", held_gpu_h),
}


def table(cases: Sequence[Sequence[Played]], measures: Sequence[str]) -> list[str]:
    """A line for each measure, a column for each case: the mean over the runs of a case."""
    rows = []
    for measure in measures:
        words, read = words_of(measure)
        rows.append((words, [_cell([read(played) for played in runs]) for runs in cases]))
    width = max(len(words) for words, _ in rows)
    labels = [runs[0].label for runs in cases]
    columns = [max(len(label), *(len(cells[i]) for _, cells in rows)) for i, label in enumerate(labels)]
    head = " " * width + "".join(f"  {label:>{c}}" for label, c in zip(labels, columns, strict=True))
    lines = [
        f"{words:<{width}}" + "".join(f"  {cell:>{c}}" for cell, c in zip(cells, columns, strict=True))
        for words, cells in rows
    ]
    return [head, *lines]


def _cell(values: Sequence[Any]) -> str:
    """The mean of what is defined; counts are whole, `3 of 5`, numbers have a decimal."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    mean = np.mean(known, axis=0)
    if isinstance(known[0], tuple):
        return f"{mean[0]:.0f} of {mean[1]:.0f}"
    return f"{mean:.0f}" if isinstance(known[0], int) else f"{mean:,.1f}"


def who_holds(played: Played, hour: float) -> str:
    """`team-a 12 GPUs (8 its own, 4 borrowed), team-b 2 of its 8`, at an hour."""
    held = played.timeline.held(round(hour * HOUR_MS))
    nominal = {
        queue.name: sum(quota.nominal for quota in queue.quotas.values()) / ONE_GPU
        for queue in played.spec.queues
        if not queue.is_cohort
    }
    parts = []
    for tenant, gpus in sorted(zip(played.tenants, held, strict=False)):
        own = nominal.get(tenant)
        if own is None:
            parts.append(f"{tenant} {gpus} GPUs")
        elif gpus > own:
            parts.append(f"{tenant} {gpus} GPUs ({own:g} its own, {gpus - own:g} borrowed)")
        else:
            parts.append(f"{tenant} {gpus} of its {own:g} GPUs")
    return ", ".join(parts)


def clock(time_ms: int) -> str:
    """`6:05`, hours and minutes."""
    minutes = time_ms // 60_000
    return f"{minutes // 60}:{minutes % 60:02d}"


def told(played: Played) -> Iterator[str]:
    """The story of a case, a line for each thing that happened to a job."""
    timeline = played.timeline
    for time_ms, row, text in timeline.story[:MOST_STORY_LINES]:
        team = played.tenants[int(timeline.tenants[row])]
        yield f"{clock(time_ms):>6}  {timeline.names[row]} ({team}, {timeline.gpus[row]:g} GPUs) {text}"
    if len(timeline.story) > MOST_STORY_LINES:
        yield f"        ... and {len(timeline.story) - MOST_STORY_LINES} lines more"


# ---------------------------------------------------------------------------------------------------------------
# The command
# ---------------------------------------------------------------------------------------------------------------


def print_list(names_only: bool = False) -> None:
    """Print the scenarios that ship, one a line."""
    for name in scenario_names():
        found, _ = load(name)
        print(name if names_only else f"{name:<20} {found.title}")


def print_part(scenario: str, which: str, out: str | None, seed: int, tell: Callable[[str], None] = print) -> None:
    """Play the cases of a part, print table and story, and write the picture.

    Args:
        scenario: name, or YAML file.
        which: `run` or `compare`.
        out: PNG file; None = `NAME-WHICH.png` in the current folder.
        seed: of the streams of jobs.
        tell: prints a line.
    """
    if seed < 0:
        raise GanglineError(f"seed is {seed}, expected at least 0")
    found, path = load(scenario)
    part: Part = getattr(found, which)
    tell(f"{path.stem}: {found.title}")
    for words in (found.question, part.says):
        if words:
            tell(words)
    runs = []
    for label, case in part.cases.items():
        if case.says:
            tell(f"  {label}: {case.says}")
        runs.append([play(found, path, part, label, seed=seed + i) for i in range(part.seeds)])
    tell("")
    if part.seeds > 1:
        tell(f"means over seeds {seed} to {seed + part.seeds - 1}; the picture is of seed {seed}")
    for line in table(runs, part.measures):
        tell(line)
    played = [of_case[0] for of_case in runs]
    for hour in part.looks_h:
        tell(f"at {clock(round(hour * HOUR_MS))}")
        for p in played:
            tell(f"  {p.label}: {who_holds(p, hour)}")
    if part.story:
        for p in played:
            tell(f"{p.label}:")
            for line in told(p):
                tell(line)
    if part.answer:
        tell(part.answer)
    from gangline.agents.scenario_picture import write_picture

    tell(f"picture: {write_picture(found.title, played, out or f'{path.stem}-{which}.png')}")
