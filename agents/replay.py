"""A site's own month under other rules: `gangline replay march.txt --slurm-conf slurm.conf`.

The jobs come from `sacct`, the nodes from `slurm.conf`, weights from the account tree. Each scheduler runs all the jobs
to their end on the same empty cluster; `slurm` as the site has configured it. The first line is what the site's own
scheduler did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from gangline.envs.workloads.traces import load

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
    trace = load("sacct", sacct, **(options or {}))
    tree = None if accounts is None else sacctmgr.read_accounts(accounts)
    return Month(site, trace, slurm_site.world_of(site, trace, tree), tree)


def replay(month: Month, scheduler: str, options: Mapping[str, object] | None = None) -> metrics.Report:
    """All jobs of a month, from the first to the last, under a scheduler."""
    world = World(month.spec, month.trace)
    start = metrics.snapshot(world)
    world.run(build(scheduler, **(options or {})))
    return metrics.measure(world, start)


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
        own["slurm"] = {"config": slurm_files.config_of(month.conf, month.accounts, levels)}
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
        f"{len(month.spec.nodes)} nodes with {month.gpus} GPUs; left out: {left_out or 'nothing'}"
    )
    print(f"{'scheduler':<14}" + "".join(f"{title:>15}" for title in (*COLUMNS, "finished", "allocated")))
    recorded = [report["recorded_wait_mean_s"] / 3600, report["recorded_wait_p95_s"] / 3600]
    print(f"{'as recorded':<14}" + "".join(f"{hours:>15.2f}" for hours in recorded))
    for name in schedulers:
        result = replay(month, name, own.get(name))
        cells = [_hours(result.values[column]) for column in COLUMNS.values()]
        cells.append(str(result.counts["finished"]))
        cells.append(_share(result.values["allocation_utilization"]))
        print(f"{name:<14}" + "".join(f"{cell:>15}" for cell in cells), flush=True)


def _hours(seconds: object) -> str:
    return "-" if not isinstance(seconds, int | float) else f"{seconds / 3600:.2f}"


def _share(value: object) -> str:
    return "-" if not isinstance(value, int | float) else f"{value:.3f}"
