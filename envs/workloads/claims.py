"""Walltime claims for traces that have none: what a user would ask for, seen by schedulers and agents alike.

    none          no claim: endless.
    coarse        the same for all jobs of a tenant and size: the 95th percentile of their run times in the training
                  weeks, rounded up to `STEPS_H` hours, raised to the truth where the job runs longer. The headline.
    informative   the truth x U(1.2, 5), rounded up to the same steps.
    exact         the truth.
    own           those that the trace has, killing or not: what users really asked for.

A modelled claim never kills a job (`killed_at_claim` stays false), so a claim is never below the truth, which is
`work_ms`. How much a claim tells is `rank_correlation`, which each model leaves in the report as
`claim_spearman_milli` (thousandths).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gangline.envs.core.spec import HOUR_MS
from gangline.envs.core.types import NEVER
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.workloads.base import JobTrace, fresh
from gangline.envs.workloads.draws import job_uniform, sub_seed
from gangline.envs.workloads.windows import WINDOWS, window

STEPS_H = (1, 4, 12, 24, 72, 168, 720)
STEPS_MS = np.array(STEPS_H, np.int64) * HOUR_MS
COARSE_PERCENTILE = 95
INFORMATIVE_FACTOR = (1.2, 5.0)


def with_claims(trace: JobTrace, model: str, *, seed: int = 0, reference: JobTrace | None = None) -> JobTrace:
    """The same jobs with claims of the named model.

    Args:
        trace: any trace.
        model: a key of `MODELS`.
        seed: of `informative`.
        reference: of `coarse`.

    Raises:
        GanglineError: no such model.
    """
    if model not in MODELS:
        raise unknown_name("claim model", model, MODELS)
    return MODELS[model](trace, seed, reference)


def none(trace: JobTrace) -> JobTrace:
    """No claims."""
    return _claimed(trace, np.full(trace.num_jobs, NEVER, np.int64), {})


def exact(trace: JobTrace) -> JobTrace:
    """Claims that are the truth."""
    return _claimed(trace, trace.rows["work_ms"].copy(), {})


def coarse(trace: JobTrace, *, reference: JobTrace | None = None) -> JobTrace:
    """Claims by tenant and size, known from the training weeks.

    Where the reference has no job of that tenant and size, that size of all tenants stands in, then all jobs.

    Args:
        trace: any trace. Make claims before cutting a window out of it.
        reference: the jobs that percentiles are taken from. By default those of the trace that were submitted in the
            training weeks (`windows.WINDOWS["train"]`), or, for a trace without dates, all of it.

    Returns: the trace; the report counts `claims_from_jobs` (jobs in the reference), `claims_from_size` and
        `claims_from_all` (jobs that had to fall back).

    Raises:
        GanglineError: a dated trace without a job in the training weeks, and no reference.
    """
    if reference is None:
        reference = _training_jobs(trace)
    place = {name: k for k, name in enumerate(trace.tenants)}
    known_tenant = np.array([place.get(name, -1) for name in reference.tenants], np.int64)[reference.rows["tenant"]]
    known_work = reference.rows["work_ms"]
    sizes, size = np.unique(np.concatenate([trace.gpus(), reference.gpus()]), return_inverse=True)
    size, known_size = size[: trace.num_jobs], size[trace.num_jobs :]

    everything = _percentile_by(np.zeros(len(known_work), np.int64), known_work, 1)[0]
    by_size = _percentile_by(known_size, known_work, len(sizes))
    is_ours = known_tenant >= 0
    cell = known_tenant[is_ours] * len(sizes) + known_size[is_ours]
    by_cell = _percentile_by(cell, known_work[is_ours], len(trace.tenants) * len(sizes))

    own, general = by_cell[trace.rows["tenant"].astype(np.int64) * len(sizes) + size], by_size[size]
    claim = np.where(own > 0, own, np.where(general > 0, general, everything))
    counts = {
        "claims_from_jobs": len(known_work),
        "claims_from_size": int(((own == 0) & (general > 0)).sum()),
        "claims_from_all": int(((own == 0) & (general == 0)).sum()),
    }
    return _claimed(trace, np.maximum(round_up(claim), trace.rows["work_ms"]), counts)


def informative(trace: JobTrace, *, seed: int = 0) -> JobTrace:
    """Claims of users who overestimate by a factor of 1.2 to 5, drawn per job by (seed, `source_row`)."""
    low, high = INFORMATIVE_FACTOR
    factor = low + (high - low) * job_uniform(sub_seed(seed, "claims"), trace.rows["source_row"])
    claim = round_up(np.ceil(trace.rows["work_ms"] * factor).astype(np.int64))
    return _claimed(trace, np.maximum(claim, trace.rows["work_ms"]), {})


def round_up(time_ms: np.ndarray) -> np.ndarray:
    """(n,) int64: the next of `STEPS_H`; beyond the last, the last."""
    return STEPS_MS[np.minimum(np.searchsorted(STEPS_MS, time_ms, side="left"), len(STEPS_MS) - 1)]


def rank_correlation(trace: JobTrace) -> float:
    """Spearman's rank correlation of claim and truth, mean ranks for ties; nan when all claims are equal."""
    claim, truth = _ranks(trace.rows["claim_ms"]), _ranks(trace.rows["work_ms"])
    spread = claim.std() * truth.std() if trace.num_jobs else 0.0
    return float(((claim - claim.mean()) * (truth - truth.mean())).mean() / spread) if spread else float("nan")


def own(trace: JobTrace) -> JobTrace:
    """The claims that the trace has."""
    return fresh(trace, trace.rows)


def _claimed(trace: JobTrace, claim_ms: np.ndarray, counts: dict[str, int]) -> JobTrace:
    """The trace with these claims, none of which kills."""
    rows = trace.rows.copy()
    rows["claim_ms"] = claim_ms
    rows["killed_at_claim"] = False
    told = {k: v for k, v in trace.report.items() if not k.startswith("claim")}
    claimed = fresh(trace, rows, {**told, **counts})
    correlation = rank_correlation(claimed)
    if np.isfinite(correlation):
        claimed.report["claim_spearman_milli"] = round(1000 * correlation)
    return claimed


def _training_jobs(trace: JobTrace) -> JobTrace:
    """The jobs of the training weeks; all of a trace without dates."""
    if "t0_epoch_ms" not in trace.report or trace.report.get("dates_are_made_up"):
        return trace
    start_ms, end_ms = window(trace, "train")
    submit = trace.rows["submit_ms"]
    training = (submit >= start_ms) & (submit < end_ms)
    if not training.any():
        raise GanglineError(
            f"coarse claims: no job was submitted in the training weeks {' to '.join(WINDOWS['train'])}; "
            "make claims before cutting a window, or give a reference trace"
        )
    return trace.select(training)


def _percentile_by(cell: np.ndarray, value: np.ndarray, num_cells: int) -> np.ndarray:
    """(num_cells,) int64: the 95th percentile (an observed value, the next higher one) per cell; 0 where empty."""
    order = np.lexsort((value, cell))
    count = np.bincount(cell, minlength=num_cells)
    start = np.cumsum(count) - count
    rank = -(-COARSE_PERCENTILE * (count - 1) // 100)  # rounded up
    found = np.zeros(num_cells, np.int64)
    some = count > 0
    found[some] = value[order][(start + rank)[some]]
    return found


def _ranks(value: np.ndarray) -> np.ndarray:
    """(n,) float64: ranks from 0, ties share their mean rank."""
    _, index, count = np.unique(value, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count + 1) / 2)[index]


MODELS: dict[str, Callable[[JobTrace, int, JobTrace | None], JobTrace]] = {
    "none": lambda trace, seed, reference: none(trace),
    "coarse": lambda trace, seed, reference: coarse(trace, reference=reference),
    "informative": lambda trace, seed, reference: informative(trace, seed=seed),
    "exact": lambda trace, seed, reference: exact(trace),
    "own": lambda trace, seed, reference: own(trace),
}
