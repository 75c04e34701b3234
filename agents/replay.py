"""A site's own month under other rules: `gangline replay march.txt --slurm-conf slurm.conf`.

The jobs come from `sacct`, the nodes from `slurm.conf`, weights from the account tree. Each scheduler runs all the jobs
to their end on the same empty cluster; `slurm` as the site has configured it. The first line is what the site's own
scheduler did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from gangline.baselines.base import build, scheduler_names
from gangline.baselines.slurm import files as slurm_files
from gangline.baselines.volcano import files as volcano_files
from gangline.envs import metrics
from gangline.envs.core.spec import WorldSpec
from gangline.envs.core.trace import JobTrace
from gangline.envs.core.types import ONE_GPU
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.files import sacctmgr, slurm_conf, slurm_site
from gangline.envs.files.slurm_site import Submission
from gangline.envs.workloads.traces import load
from gangline.envs.workloads.traces.sacct import submissions

COLUMNS = {
    "mean wait (h)": "wait_so_far_mean_s",
    "p95 wait (h)": "wait_p95_s",
    "mean JCT (h)": "jct_so_far_mean_s",
}


@dataclass(frozen=True)
class Month:
    """The jobs and the cluster of a site, and what its Slurm is configured with."""

    conf: slurm_conf.SlurmConf
    trace: JobTrace
    spec: WorldSpec
    accounts: sacctmgr.Accounts | None = None
    asked: Sequence[Submission] = ()

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        return sum(node.amounts.get("gpu", 0) for node in self.spec.nodes) // ONE_GPU


def read_month(
    sacct: str | Path,
    conf: str | Path,
    accounts: str | Path | None = None,
    options: Mapping[str, object] | None = None,
) -> Month:
    """Read a site's files.

    Args:
        sacct: output of `sacct -P`.
        conf: `slurm.conf`, with `gres.conf` beside it.
        accounts: output of sacctmgr; None = tenants weigh the same.
        options: of the `sacct` loader.

    Raises:
        GanglineError: one line about the first value that makes no sense.
    """
    site = slurm_conf.read(conf)
    if accounts is not None and (options or {}).get("tenant", "account") != "account":
        raise GanglineError(
            f"tenant is {(options or {})['tenant']!r} beside --accounts, expected account, or no --accounts"
        )
    tree = None if accounts is None else sacctmgr.read_accounts(accounts)
    trace = load("sacct", sacct, **{"resources": counted(site), **(options or {})})
    if site.value("JobRequeue") == 0:  # jobs stopped by a failing node or by preemption do not come back
        rows = trace.rows.copy()
        rows["requeue"] = False
        trace = replace(trace, rows=rows)
    return Month(site, trace, slurm_site.world_of(site, trace, tree), tree, submissions(sacct, trace))


def counted(conf: slurm_conf.SlurmConf) -> str:
    """What nodes run out of, as slurm.conf tells: GPUs; CPUs where it counts them; memory where it is handed out."""
    with_gpus = [node for node in conf.nodes if node.num_gpus]
    if any(node.cpus < node.num_gpus for node in with_gpus):
        return "gpu"
    hands_out_memory = any("MEMORY" in word.upper() for word in conf.value("SelectTypeParameters"))
    has_memory = all(node.memory_mib > 1 for node in with_gpus)
    return "gpu_cpu_memory" if hands_out_memory and has_memory else "gpu_cpu"


def replay(month: Month, scheduler: str, options: Mapping[str, object] | None = None) -> metrics.Report:
    """All jobs of a month, from the first to the end of the last that runs, under a scheduler."""
    rules = build(scheduler, **(options or {}))
    until_ms: int | None = None
    while True:
        world = World(month.spec, month.trace)
        start = metrics.snapshot(world)
        world.run(rules, until_ms)
        last_ms = int(world.ended()["end_ms"].max(initial=0))
        if until_ms is not None or world.now_ms <= last_ms:
            return metrics.measure(world, start)
        until_ms = last_ms  # some jobs never start: what came after the last that did is nobody's time


def print_replay(
    sacct: str | Path,
    conf: str | Path,
    accounts: str | Path | None,
    qos: str | Path | None,
    schedulers: Sequence[str],
    options: Mapping[str, object],
    *,
    volcano_conf: str | Path | None = None,
    volcano_queues: Sequence[str | Path] = (),
) -> None:
    """Print what was read, then a line for each scheduler.

    Args:
        sacct, conf, accounts, options: as `read_month` takes them.
        qos: output of sacctmgr; None = `normal` alone.
        schedulers: names of baselines.
        volcano_conf: `volcano-scheduler.conf` for `volcano`; None = what the Helm chart installs.
        volcano_queues: manifests of Queues with the names of the tenants.
    """
    for name in schedulers:
        if name not in scheduler_names():
            raise unknown_name("scheduler", name, scheduler_names())
    if not schedulers:
        raise GanglineError("schedulers is empty, expected at least one name")
    month = read_month(sacct, conf, accounts, options)
    levels = None if qos is None else sacctmgr.read_qos(qos)
    own: dict[str, Mapping[str, object]] = {}
    if "slurm" in schedulers:
        site = slurm_files.config_of_month(month.conf, month.trace, month.asked, month.accounts, levels)
        own["slurm"] = {"config": site}
    if "volcano" in schedulers:
        own["volcano"] = {"config": volcano_files.read_config(volcano_conf, *volcano_queues)}
    elif volcano_conf is not None or volcano_queues:
        raise GanglineError(f"files of Volcano without the scheduler 'volcano', expected it among {schedulers}")
    report = month.trace.report
    begin = datetime.fromtimestamp(report["t0_epoch_ms"] / 1000, UTC)
    left_out = ", ".join(
        f"{key.removeprefix('dropped_').replace('_', ' ')} {count}"
        for key, count in report.items()
        if key.startswith("dropped_") and count
    )
    print(
        f"{month.trace.num_jobs} jobs of {len(month.trace.tenants)} tenants from {begin:%Y-%m-%d %H:%M}, "
        f"{len(month.spec.nodes)} nodes with {month.gpus} GPUs; counted: {', '.join(month.trace.resources)}; "
        f"left out: {left_out or 'nothing'}"
    )
    print(f"{'scheduler':<14}" + "".join(f"{title:>15}" for title in (*COLUMNS, "finished", "allocated")))
    recorded = [report["recorded_wait_mean_s"] / 3600, report["recorded_wait_p95_s"] / 3600]
    print(f"{'as recorded':<14}" + "".join(f"{hours:>15.2f}" for hours in recorded))
    notes: list[str] = []
    for name in schedulers:
        result = replay(month, name, own.get(name))
        notes += _notes(name, result.counts)
        cells = [_hours(result.values[column]) for column in COLUMNS.values()]
        cells.append(str(result.counts["finished"]))
        cells.append(_share(result.values["allocation_utilization"]))
        print(f"{name:<14}" + "".join(f"{cell:>15}" for cell in cells), flush=True)
    print("\n".join(notes), end="\n" if notes else "")


def _notes(scheduler: str, counts: Mapping[str, int]) -> Iterator[str]:
    """What became of the jobs that are not among the finished."""
    for number, what in (
        (counts["rejected"], "rejected, no node of this cluster holds them"),
        (
            counts["killed"],
            "stopped for good: preempted by a rule that does not requeue, or not taken by the scheduler",
        ),
        (
            counts["unfinished"] - counts["killed"],
            "never started: a limit of the configuration is below what they ask for",
        ),
    ):
        if number:
            yield f"{scheduler}: {number} jobs {what}"


def _hours(seconds: object) -> str:
    return "-" if not isinstance(seconds, int | float) else f"{seconds / 3600:.2f}"


def _share(value: object) -> str:
    return "-" if not isinstance(value, int | float) else f"{value:.3f}"
