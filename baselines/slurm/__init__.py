"""Slurm: multifactor priority with decayed fair share, a main loop that stops at the first blocked job, backfill."""

from __future__ import annotations

import dataclasses

from gangline.baselines.slurm.config import SlurmConfig, world_defaults
from gangline.baselines.slurm.scheduler import SlurmScheduler, slurm


def build(
    weight_fairshare: int = 10_000,
    weight_age: int = 1_000,
    half_life_h: float = 168.0,
    bf_interval_s: int = 30,
    bf_max_job_test: int = 500,
    backfill: bool = True,
    config: SlurmConfig | None = None,
) -> SlurmScheduler:
    """Slurm over a world's own tenants as accounts; or exactly as a `SlurmConfig` says, the other options unread."""
    if config is not None:
        return slurm(config)
    base = world_defaults()
    priority = dataclasses.replace(
        base.priority,
        weight_fairshare=weight_fairshare,
        weight_age=weight_age,
        decay_half_life_s=round(half_life_h * 3600),
    )
    parameters = dataclasses.replace(
        base.scheduler,
        scheduler_type="sched/backfill" if backfill else "sched/builtin",
        bf_interval_s=bf_interval_s,
        bf_max_job_test=bf_max_job_test,
    )
    return slurm(dataclasses.replace(base, priority=priority, scheduler=parameters))
