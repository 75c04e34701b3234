"""Parts of a trace: windows of dates, the load they offer, and thinning to a load that is measured, not intended.

start_ms, end_ms = window(trace, "train")
trace = fit(trace, 128_000)
thinned = thin(trace, 7, 0.9, 128_000, start_ms=start_ms, end_ms=end_ms)
jobs = cut(trace.select(thinned.kept), start_ms, end_ms, warm_ms=7 * DAY_MS)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from gangline.envs.core.types import NEVER
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.workloads.base import JobTrace, chosen, fresh, run_ms
from gangline.envs.workloads.draws import ALL, job_hash, sub_seed

DAY_MS = 86_400_000
BURST_GAP_MS = 60_000
MAX_REDRAWS = 200

# Philly: two thirds of the file's busy weeks to learn from, the later ones to be judged by. Ends are exclusive.
WINDOWS = {
    "train": ("2017-10-02", "2017-10-30"),
    "validate": ("2017-10-30", "2017-11-13"),
    "test": ("2017-11-13", "2017-12-11"),
}


def window(trace: JobTrace, which: str | tuple[str, str]) -> tuple[int, int]:
    """Start and end of a window in the trace's own time.

    Args:
        trace: a trace with dates.
        which: a key of `WINDOWS`, or two ISO dates or times, naive ones in UTC, the end exclusive.

    Returns: (start_ms, end_ms); may lie outside the trace.

    Raises:
        GanglineError: unknown name, not a date, no dates in the trace, an end that is not after the start.
    """
    if isinstance(which, str):
        if which not in WINDOWS:
            raise unknown_name("window", which, WINDOWS)
        which = WINDOWS[which]
    if "t0_epoch_ms" not in trace.report:
        raise GanglineError(f"window {which[0]} to {which[1]}: the trace has no dates; give times in ms instead")
    start, end = (_epoch_ms(date) - trace.report["t0_epoch_ms"] for date in which)
    if end <= start:
        raise GanglineError(f"window {which[0]} to {which[1]}: ends before it starts, expected start < end")
    return start, end


def cut(trace: JobTrace, start_ms: int, end_ms: int, *, warm_ms: int = 0) -> JobTrace:
    """The jobs submitted in [start_ms - warm_ms, end_ms), with time moved so that `start_ms - warm_ms` is 0."""
    origin = start_ms - warm_ms
    submit = trace.rows["submit_ms"]
    part = trace.select((submit >= origin) & (submit < end_ms))
    rows = part.rows.copy()
    for column in ("submit_ms", "eligible_ms", "cancel_ms"):
        rows[column][rows[column] < NEVER] -= origin
    report = {**trace.report, "rows_kept": len(rows), "dropped_outside_window": trace.num_jobs - len(rows)}
    if "t0_epoch_ms" in report:
        report["t0_epoch_ms"] += origin
    return fresh(part, rows, report)


def offered_load(trace: JobTrace, capacity_milli_gpus: int, start_ms: int, end_ms: int, *, clip: bool = False) -> float:
    """Load offered in a window: `sum g_j W_j / (C H)` over the jobs submitted in it.

    `W` is the run time at full speed, as `base.run_ms` counts it. A job of two weeks counts in full even in a window
    of three days: in short windows the number hangs on a few jobs. With `clip` only the part that could be run before
    the window ends counts.

    Source: the usual definition of offered load in queueing, measured over the arrivals.
    """
    inside = _inside(trace, start_ms, end_ms)
    return int(_gpu_time(trace, inside, end_ms, clip).sum()) / _room(capacity_milli_gpus, start_ms, end_ms)


@dataclass(frozen=True)
class Thinning:
    """Which jobs are left.

    Attributes:
        kept: (num_jobs,) bool, over the whole trace, not only the window.
        load: measured in the window.
        below: a job is kept when its key is not above this: `job_hash(seed, row) <= below`; `draws.ALL` keeps all.
            In mode `jobs` this and `seed` are the world's `thin_below` and `thin_seed`.
        seed: that the keys were drawn with: the caller's, or one derived from it when that missed the target.
        redraws: seeds that were tried before.
    """

    kept: np.ndarray
    load: float
    below: int
    seed: int
    redraws: int


def thin(
    trace: JobTrace,
    seed: int,
    target_load: float,
    capacity_milli_gpus: int,
    *,
    start_ms: int,
    end_ms: int,
    mode: str = "jobs",
    clip: bool = False,
    tolerance: float = 0.01,
) -> Thinning:
    """Keep jobs in order of a uniform draw each, until the measured load of the window is nearest to the target.

    The draw is `job_hash(seed, row)`, `row` the place of the job in this trace, so the compiled core can repeat it.
    When the nearest load is off by more than `tolerance` (one job can be that large) the next derived seed is tried.

    Args:
        trace: jobs that the world can run at all; see `base.fit`.
        seed: 0 <= seed < 2^64.
        target_load: share of the capacity.
        capacity_milli_gpus: GPUs of the world.
        start_ms: window in which the load is measured.
        end_ms: its end, exclusive.
        mode: `jobs`, or `burst`: jobs of a tenant at most 60 s apart stay together, under their first job's draw.
        clip: see `offered_load`.
        tolerance: largest miss.

    Raises:
        GanglineError: all jobs together offer less, or no seed comes near enough.
    """
    return thin_nested(
        trace,
        seed,
        [target_load],
        capacity_milli_gpus,
        start_ms=start_ms,
        end_ms=end_ms,
        mode=mode,
        clip=clip,
        tolerance=tolerance,
    )[0]


def thin_nested(
    trace: JobTrace,
    seed: int,
    target_loads: Sequence[float],
    capacity_milli_gpus: int,
    *,
    start_ms: int,
    end_ms: int,
    mode: str = "jobs",
    clip: bool = False,
    tolerance: float = 0.01,
) -> list[Thinning]:
    """`thin` at several loads under one seed, redrawn until all of them are near: a lower load's jobs are a subset."""
    chosen("mode", mode, ("jobs", "burst"))
    inside = np.flatnonzero(_inside(trace, start_ms, end_ms))
    gpu_time = _gpu_time(trace, inside, end_ms, clip)
    room = _room(capacity_milli_gpus, start_ms, end_ms)
    most = int(gpu_time.sum()) / room
    if max(target_loads) > most + tolerance or min(target_loads) < 0:
        raise GanglineError(
            f"thinning: target load {max(target_loads):.3f}, but all {len(inside)} jobs of the window offer {most:.3f} "
            f"on {capacity_milli_gpus / 1000:g} GPUs; expected a target between 0 and that, or fewer GPUs"
        )
    key_row = np.arange(trace.num_jobs) if mode == "jobs" else first_of_burst(trace)
    worst = np.inf
    for redraws in range(MAX_REDRAWS):
        used_seed = seed if redraws == 0 else sub_seed(seed, "redraw", redraws)
        key = job_hash(used_seed, key_row)
        order = np.argsort(key[inside])
        sorted_key = key[inside][order]
        # cumulative[i] = load of the i jobs with the smallest keys; cuts only between different keys
        cumulative = np.concatenate([[0], np.cumsum(gpu_time[order])]) / room
        is_cut = np.ones(len(cumulative), bool)
        is_cut[1:-1] = sorted_key[1:] != sorted_key[:-1]
        cuts = np.flatnonzero(is_cut)
        found = []
        for target in target_loads:
            num = int(cuts[np.argmin(np.abs(cumulative[cuts] - target))])
            below = ALL if num == len(inside) else int(sorted_key[num - 1]) if num else 0
            found.append((num, below, float(cumulative[num])))
        miss = max(abs(load - target) for (_, _, load), target in zip(found, target_loads, strict=True))
        worst = min(worst, miss)
        if miss <= tolerance:
            return [Thinning(key <= np.uint64(below), load, below, used_seed, redraws) for _, below, load in found]
    raise GanglineError(
        f"thinning: after {MAX_REDRAWS} seeds the nearest load is off by {worst:.3f}, expected at most {tolerance}; "
        "the window holds too few jobs for that: take a longer one, more GPUs, clip=True or a larger tolerance"
    )


def first_of_burst(trace: JobTrace, gap_ms: int = BURST_GAP_MS) -> np.ndarray:
    """(num_jobs,) int64: row of the first job of each job's burst: a tenant's jobs at most `gap_ms` apart."""
    order = np.argsort(trace.rows["tenant"], kind="stable")  # rows are in order of submission already
    tenant, submit = trace.rows["tenant"][order], trace.rows["submit_ms"][order]
    starts = np.ones(len(order), bool)
    starts[1:] = (np.diff(tenant) != 0) | (np.diff(submit) > gap_ms)
    first = np.empty(len(order), np.int64)
    first[order] = order[np.flatnonzero(starts)][np.cumsum(starts) - 1]
    return first


def _inside(trace: JobTrace, start_ms: int, end_ms: int) -> np.ndarray:
    submit = trace.rows["submit_ms"]
    return (submit >= start_ms) & (submit < end_ms)


def _gpu_time(trace: JobTrace, inside: np.ndarray, end_ms: int, clip: bool) -> np.ndarray:
    """Milli-GPU x ms of the jobs inside."""
    run = run_ms(trace)[inside]
    if clip:
        run = np.minimum(run, end_ms - trace.rows["submit_ms"][inside])
    return trace.gpus()[inside] * run


def _room(capacity_milli_gpus: int, start_ms: int, end_ms: int) -> int:
    if capacity_milli_gpus < 1 or end_ms <= start_ms:
        raise GanglineError(
            f"load of {capacity_milli_gpus} milli-GPU from {start_ms} to {end_ms} ms: expected GPUs and start < end"
        )
    return int(capacity_milli_gpus) * int(end_ms - start_ms)


def _epoch_ms(date: str) -> int:
    try:
        time = datetime.fromisoformat(date)
    except (TypeError, ValueError):
        raise GanglineError(f"window: {date!r} is not a date, expected YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS") from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
