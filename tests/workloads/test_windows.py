"""Windows, measured load, and thinning: nearest, nested, repeatable."""

import time

import numpy as np
import pytest
from numba import njit

from gangline.envs.core.simulator import hash_of_row
from gangline.envs.core.types import NEVER
from gangline.envs.errors import GanglineError
from gangline.envs.workloads.base import JobTrace, fit, gang_rows
from gangline.envs.workloads.draws import ALL, job_hash
from gangline.envs.workloads.traces import load
from gangline.envs.workloads.windows import (
    DAY_MS,
    cut,
    first_of_burst,
    offered_load,
    thin,
    thin_nested,
    window,
)

from .files import data

HOUR_MS = 3_600_000
CAPACITY = 128_000  # philly128


def jobs(*submit_work_gpus_tenant: tuple[float, float, int, int], **report: int) -> JobTrace:
    """From (submit h, work h, GPUs, tenant)."""
    table = np.array(submit_work_gpus_tenant, float)
    rows, pod_sets = gang_rows(
        (table[:, 0] * HOUR_MS).astype(np.int64),
        (table[:, 1] * HOUR_MS).astype(np.int64),
        (table[:, 2] * 1000).astype(np.int64),
        table[:, 3].astype(np.int32),
    )
    return JobTrace.build(rows, pod_sets, ["red", "blue"], report=report)


@pytest.fixture(scope="module")
def philly():
    return fit(load("philly", data("philly.csv.gz")), CAPACITY)


def test_load_is_gpu_time_submitted_over_gpu_time_there_is():
    trace = jobs((0, 2, 4, 0), (1, 1, 8, 1), (5, 100, 8, 0))
    assert offered_load(trace, 8000, 0, 4 * HOUR_MS) == (2 * 4 + 1 * 8) / (8 * 4)  # the third comes after the window
    assert offered_load(trace, 8000, 0, 10 * HOUR_MS) == (8 + 8 + 800) / 80  # and counts in full inside it
    assert offered_load(trace, 8000, 0, 10 * HOUR_MS, clip=True) == (8 + 8 + 5 * 8) / 80


def test_a_cut_moves_time_and_keeps_never():
    trace = jobs((0, 2, 4, 0), (3, 1, 8, 1), (5, 1, 8, 0), (9, 1, 8, 0), t0_epoch_ms=1000)
    part = cut(trace, 5 * HOUR_MS, 9 * HOUR_MS, warm_ms=2 * HOUR_MS)
    assert part.rows["submit_ms"].tolist() == [0, 2 * HOUR_MS]
    assert part.rows["eligible_ms"].tolist() == [0, 2 * HOUR_MS]
    assert (part.rows["cancel_ms"] == NEVER).all()
    assert part.rows["source_row"].tolist() == [1, 2]
    assert part.report == {"t0_epoch_ms": 1000 + 3 * HOUR_MS, "rows_kept": 2, "dropped_outside_window": 2}


@pytest.mark.parametrize(
    ("which", "want"),
    [
        ("tran", "unknown window 'tran'; known: test, train, validate; did you mean 'train'"),
        (("2017-10-02", "soon"), "'soon' is not a date"),
        (("2017-10-02", "2017-10-01"), "ends before it starts"),
    ],
)
def test_windows_that_make_no_sense_are_refused(which, want):
    with pytest.raises(GanglineError, match=want):
        window(jobs((0, 1, 1, 0), t0_epoch_ms=0), which)
    with pytest.raises(GanglineError, match="has no dates"):
        window(jobs((0, 1, 1, 0)), "train")


@pytest.mark.parametrize("name", ["train", "validate", "test"])
@pytest.mark.parametrize("mode", ["jobs", "burst"])
@pytest.mark.parametrize("target", [0.7, 0.9, 1.1])
def test_the_measured_load_is_within_a_hundredth_of_the_target(philly, name, mode, target):
    start_ms, end_ms = window(philly, name)
    thinned = thin(philly, 3, target, CAPACITY, start_ms=start_ms, end_ms=end_ms, mode=mode)
    assert abs(thinned.load - target) <= 0.01
    assert thinned.load == pytest.approx(
        offered_load(philly.select(thinned.kept), CAPACITY, start_ms, end_ms), rel=1e-12
    )


def test_the_load_is_the_nearest_that_any_threshold_gives(philly):
    start_ms, end_ms = window(philly, "validate")
    thinned = thin(philly, 0, 0.9, CAPACITY, start_ms=start_ms, end_ms=end_ms, tolerance=1)
    submit = philly.rows["submit_ms"]
    inside = (submit >= start_ms) & (submit < end_ms)
    key = job_hash(0, np.arange(philly.num_jobs))
    room = CAPACITY * (end_ms - start_ms)
    work = philly.gpus() * philly.rows["work_ms"]
    loads = np.cumsum(work[inside][np.argsort(key[inside])]) / room
    assert abs(thinned.load - 0.9) == pytest.approx(np.abs(loads - 0.9).min(), abs=1e-12)


def test_kept_jobs_are_those_whose_hash_is_not_above_the_threshold_also_outside_the_window(philly):
    start_ms, end_ms = window(philly, "train")
    thinned = thin(philly, 11, 0.9, CAPACITY, start_ms=start_ms, end_ms=end_ms)
    want = job_hash(thinned.seed, np.arange(philly.num_jobs)) <= np.uint64(thinned.below)
    assert (thinned.kept == want).all()
    outside = philly.rows["submit_ms"] < start_ms
    assert thinned.kept[outside].mean() == pytest.approx(thinned.below / 2**64, abs=0.02)


def test_the_compiled_core_draws_the_same_numbers():
    @njit
    def compiled(seed, row):
        return hash_of_row(seed, row)

    for seed, row in ((0, 0), (1, 5), (2**63 + 11, 82_246)):
        assert int(compiled(np.uint64(seed), row)) == int(job_hash(seed, row))


@pytest.mark.parametrize("mode", ["jobs", "burst"])
def test_loads_of_one_seed_are_nested_and_other_seeds_differ(philly, mode):
    start_ms, end_ms = window(philly, "test")
    nested = [
        thin_nested(philly, seed, [0.7, 0.9, 1.1], CAPACITY, start_ms=start_ms, end_ms=end_ms, mode=mode)
        for seed in range(4)
    ]
    for low, middle, high in nested:
        assert low.seed == middle.seed == high.seed
        assert not (low.kept & ~middle.kept).any()
        assert not (middle.kept & ~high.kept).any()
        assert [t.load for t in (low, middle, high)] == pytest.approx([0.7, 0.9, 1.1], abs=0.01)
    assert (nested[0][1].kept != nested[1][1].kept).any()
    again = thin_nested(philly, 0, [0.7, 0.9, 1.1], CAPACITY, start_ms=start_ms, end_ms=end_ms, mode=mode)
    assert (again[1].kept == nested[0][1].kept).all()


def test_a_seed_that_misses_is_replaced_by_a_derived_one_and_the_answer_says_so(philly):
    start_ms, end_ms = window(philly, "validate")
    found = [thin(philly, seed, 0.9, CAPACITY, start_ms=start_ms, end_ms=end_ms) for seed in range(12)]
    redrawn = [(seed, t) for seed, t in enumerate(found) if t.redraws]
    assert redrawn, "in these two weeks one job can be a hundredth of the load"
    assert all(t.seed != seed for seed, t in redrawn)
    assert all(t.seed == seed for seed, t in enumerate(found) if not t.redraws)


def test_a_burst_is_a_run_of_one_tenants_jobs_at_most_a_minute_apart():
    minute = 1 / 60
    trace = jobs(
        (0, 1, 1, 0), (minute, 1, 1, 0), (1.5 * minute, 1, 1, 1), (2 * minute, 1, 1, 0), (3.1 * minute, 1, 1, 0)
    )
    assert first_of_burst(trace).tolist() == [0, 0, 2, 0, 4]


def test_bursts_are_kept_or_dropped_whole(philly):
    start_ms, end_ms = window(philly, "test")
    thinned = thin(philly, 5, 0.9, CAPACITY, start_ms=start_ms, end_ms=end_ms, mode="burst")
    first = first_of_burst(philly)
    assert (thinned.kept == thinned.kept[first]).all()
    assert len(np.unique(first)) == pytest.approx(23_326, abs=5)  # 10 oversized jobs are not in this trace


def test_all_jobs_are_kept_when_the_target_is_what_they_offer():
    trace = jobs((0, 2, 4, 0), (1, 1, 8, 1))
    thinned = thin(trace, 0, 0.5, 8000, start_ms=0, end_ms=4 * HOUR_MS)
    assert (thinned.below, thinned.load) == (ALL, 0.5)
    assert thinned.kept.all()


def test_a_target_out_of_reach_is_refused_in_one_line():
    trace = jobs((0, 2, 4, 0), (1, 1, 8, 1))
    with pytest.raises(GanglineError, match=r"target load 0.900, but all 2 jobs of the window offer 0.500 on 8 GPUs"):
        thin(trace, 0, 0.9, 8000, start_ms=0, end_ms=4 * HOUR_MS)
    with pytest.raises(GanglineError, match=r"after 200 seeds the nearest load is off by 0.100, expected at most 0.05"):
        thin(trace, 0, 0.4, 8000, start_ms=0, end_ms=4 * HOUR_MS, tolerance=0.05)  # 0, .25 and .5 are possible


def test_four_weeks_are_thinned_in_milliseconds(philly):
    start_ms, end_ms = window(philly, "train")
    thin(philly, 0, 0.9, CAPACITY, start_ms=start_ms, end_ms=end_ms)
    times = []
    for seed in range(1, 8):
        begin = time.perf_counter()
        thin(philly, seed, 0.9, CAPACITY, start_ms=start_ms, end_ms=end_ms)
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.1  # measured 0.005 s on one core of a busy machine


def test_a_warm_window_of_the_main_experiment_holds_the_week_before(philly):
    start_ms, end_ms = window(philly, "test")
    thinned = thin(philly, 1, 0.9, CAPACITY, start_ms=start_ms, end_ms=end_ms)
    part = cut(philly.select(thinned.kept), start_ms, end_ms, warm_ms=7 * DAY_MS)
    assert part.rows["submit_ms"].min() >= 0
    assert part.rows["submit_ms"].max() < end_ms - start_ms + 7 * DAY_MS
    assert offered_load(part, CAPACITY, 7 * DAY_MS, 35 * DAY_MS) == pytest.approx(thinned.load, rel=1e-12)
