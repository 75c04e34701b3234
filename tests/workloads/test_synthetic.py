"""The generator: a seed fixes the jobs, loads come out as asked, and it looks like the trace it was fitted to."""

import time
from dataclasses import replace

import numpy as np
import pytest

from gangline.envs.core.trace import JobTrace
from gangline.envs.core.types import NEVER, Outcome
from gangline.envs.errors import GanglineError
from gangline.envs.workloads.base import run_ms
from gangline.envs.workloads.claims import STEPS_MS, rank_correlation
from gangline.envs.workloads.synthetic import FRACTIONS, HOURS, PROFILES, Synthetic
from gangline.envs.workloads.traces import load
from gangline.envs.workloads.windows import first_of_burst, offered_load, window

from .files import data

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SMALL = Synthetic(num_jobs=800)
PHILLY = Synthetic(mix="philly", capacity_gpus=512, horizon_ms=70 * DAY_MS, max_gpus=32)


def sample(workload: Synthetic, seed: int = 0) -> JobTrace:
    return workload.sample(np.random.default_rng(seed))


@pytest.fixture(scope="module")
def long():
    """Four samples of ten weeks of the eleven tenants."""
    return [sample(PHILLY, seed) for seed in range(4)]


@pytest.fixture(scope="module")
def real():
    """The part of the real trace that the generator was fitted to."""
    trace = load("philly", data("philly.csv.gz"), trivial_tenants="drop")
    start_ms, end_ms = window(trace, ("2017-09-01", "2017-11-13"))
    return trace.select((trace.rows["submit_ms"] >= start_ms) & (trace.rows["submit_ms"] < end_ms))


@pytest.mark.parametrize(
    "workload", [SMALL, Synthetic(horizon_ms=3 * DAY_MS, claims="informative", fail=0.2, hang=0.1)]
)
def test_the_same_seed_gives_the_same_jobs_and_another_seed_others(workload):
    first, again, other = sample(workload, 1), sample(workload, 1), sample(workload, 2)
    assert (first.rows == again.rows).all()
    assert first.report == again.report
    assert len(first.rows) != len(other.rows) or (first.rows != other.rows).any()


@pytest.mark.parametrize(
    "workload",
    [
        SMALL,
        Synthetic(num_jobs=1),
        Synthetic(horizon_ms=HOUR_MS, capacity_gpus=1),  # often no job at all
        Synthetic(num_jobs=300, num_tenants=12, fractional=0.5, gpus_per_pod=4, fail=0.3, cancel=0.1, hang=0.02),
    ],
)
def test_what_is_built_directly_equals_what_build_would_check_and_number(workload):
    for seed in range(5):
        trace = sample(workload, seed)
        want = JobTrace.build(trace.rows, trace.pod_sets, trace.tenants)
        assert (trace.rows == want.rows).all()
        assert not trace.rows.flags.writeable


@pytest.mark.parametrize("num_jobs", [1, 7, 800, 5000])
def test_the_number_of_jobs_is_exact_and_all_arrive_within_the_horizon(num_jobs):
    trace = sample(Synthetic(num_jobs=num_jobs))
    assert trace.num_jobs == num_jobs
    submit = trace.rows["submit_ms"]
    assert submit.min() >= 0 and submit.max() < trace.report["horizon_ms"]
    assert (np.diff(submit) >= 0).all()


def test_the_report_says_what_load_it_came_to():
    for workload in (SMALL, Synthetic(horizon_ms=7 * DAY_MS, fail=0.3)):
        trace = sample(workload)
        measured = offered_load(trace, 64_000, 0, trace.report["horizon_ms"])
        assert trace.report["offered_load_milli"] == round(1000 * measured)


@pytest.mark.parametrize(("load_wanted", "mix_seed"), [(0.7, 0), (0.9, 1), (1.1, 2)])
def test_the_expected_load_is_the_target(load_wanted, mix_seed):
    # a sample's own load spreads by .2 to .7; with light tails (at most a day) the mean of 400 is within .05
    workload = Synthetic(num_jobs=800, load=load_wanted, mix_seed=mix_seed, max_run_ms=DAY_MS)
    loads = [sample(workload, seed).report["offered_load_milli"] / 1000 for seed in range(400)]
    assert np.mean(loads) == pytest.approx(load_wanted, abs=0.05)
    by_time = replace(workload, num_jobs=None, horizon_ms=14 * DAY_MS)
    loads = [sample(by_time, seed).report["offered_load_milli"] / 1000 for seed in range(100)]
    assert np.mean(loads) == pytest.approx(load_wanted, abs=0.05)


def test_with_exact_load_every_sample_has_the_target():
    for seed in range(10):
        trace = sample(Synthetic(num_jobs=800, exact_load=True, fail=0.2, cancel=0.2), seed)
        assert trace.report["offered_load_milli"] == 900


def test_outcomes_count_in_the_expected_load():
    workload = Synthetic(num_jobs=800, max_run_ms=DAY_MS, fail=0.5, cancel=0.3)
    loads = [sample(workload, seed).report["offered_load_milli"] / 1000 for seed in range(400)]
    assert np.mean(loads) == pytest.approx(0.9, abs=0.06)


def test_run_times_have_the_quantiles_of_philly(long, real):
    want = np.quantile(real.rows["work_ms"] / 1000, [0.5, 0.9])
    got = np.quantile(np.concatenate([t.rows["work_ms"] for t in long]) / 1000, [0.5, 0.9])
    assert got == pytest.approx(want, rel=0.2)  # measured: 1,360 and 12,117 s against 1,359 and 10,791 s


def test_sizes_and_gpu_time_by_size_are_those_of_philly(long, real):
    def shares(trace):
        gpus = np.minimum(trace.gpus() // 1000, 16)
        gpu_time = trace.gpus() * trace.rows["work_ms"] / 1e12
        return np.array([[(gpus == g).mean(), gpu_time[gpus == g].sum() / gpu_time.sum()] for g in (1, 2, 4, 8)])

    got, want = np.mean([shares(t) for t in long], axis=0), shares(real)
    assert got[:, 0] == pytest.approx(want[:, 0], abs=0.02)
    assert got[:, 1] == pytest.approx(want[:, 1], abs=0.05)


def test_few_jobs_hold_most_of_the_gpu_time(long):
    for trace in long:
        gpu_time = np.sort(trace.gpus() * trace.rows["work_ms"])
        assert 0.6 < gpu_time[-len(gpu_time) // 100 :].sum() / gpu_time.sum() < 0.8  # Philly: .67


def test_jobs_come_in_batches_like_those_of_philly(long, real):
    def batches(trace):
        size = np.bincount(first_of_burst(trace))
        return size[size > 0]

    got, want = np.concatenate([batches(t) for t in long]), batches(real)
    assert got.mean() == pytest.approx(want.mean(), rel=0.35)  # measured 5.2 against 4.3
    assert (got == 1).mean() == pytest.approx((want == 1).mean(), abs=0.1)
    hourly = np.bincount(long[0].rows["submit_ms"] // HOUR_MS)
    assert 40 < hourly.var() / hourly.mean() < 400  # Fano factor; Philly 160, Venus 39


def test_a_batch_shares_its_size():
    trace = sample(replace(PHILLY, load=0.05))  # so few that two batches seldom run into each other
    first = first_of_burst(trace)
    inside = first != np.arange(trace.num_jobs)
    assert (trace.gpus() == trace.gpus()[first])[inside].mean() > 0.98


def test_tenants_get_their_share_of_gpu_time_in_the_mean(long):
    share = np.mean(
        [np.bincount(t.rows["tenant"], (t.gpus() * run_ms(t)).astype(float), minlength=11) for t in long], axis=0
    )
    demand = np.array([p.demand for p in PROFILES])
    assert share / share.sum() == pytest.approx(demand / demand.sum(), abs=0.05)


def test_arrivals_follow_the_hours_of_the_week():
    workload = Synthetic(num_jobs=40_000, max_batch=1, phase_ms=0, load=0.01)
    trace = sample(workload)
    weeks = trace.report["horizon_ms"] // (7 * DAY_MS)
    assert weeks >= 10
    submit = trace.rows["submit_ms"]
    hour = submit[submit < weeks * 7 * DAY_MS] // HOUR_MS % 24
    got = np.bincount(hour, minlength=24) / len(hour) * 24
    assert got == pytest.approx(np.array(HOURS) / np.mean(HOURS), abs=0.12)


def test_a_trace_begins_at_its_phase_of_the_week():
    noon_thursday = 3 * DAY_MS + 12 * HOUR_MS
    trace = sample(Synthetic(num_jobs=50, phase_ms=noon_thursday))
    assert trace.report["t0_epoch_ms"] == 4 * DAY_MS + noon_thursday  # 1970-01-05 was a Monday
    phases = {sample(SMALL, seed).report["t0_epoch_ms"] for seed in range(20)}
    assert len(phases) > 10


def test_outcomes_have_their_rates_and_strike_within_the_work():
    trace = sample(Synthetic(num_jobs=20_000, fail=0.3, cancel=0.1, hang=0.05))
    rows = trace.rows
    fails, hangs = rows["outcome"] == Outcome.FAILED, rows["outcome"] == Outcome.HANGS
    cancelled = rows["cancel_ms"] < NEVER
    assert fails.mean() == pytest.approx(0.3, abs=0.02)
    assert cancelled.mean() == pytest.approx(0.1, abs=0.02)
    is_long = rows["work_ms"] > HOUR_MS
    assert hangs[is_long].mean() == pytest.approx(0.05, abs=0.02)
    assert not hangs[~is_long].any()
    struck = fails | hangs
    assert (rows["outcome_ms"][struck] <= rows["work_ms"][struck]).all()
    assert (rows["outcome_ms"][~struck] == NEVER).all()
    part = rows["outcome_ms"][fails] / rows["work_ms"][fails]
    assert part.mean() == pytest.approx(1 / 3, abs=0.02)  # Beta(.5, 1)
    after = (rows["cancel_ms"] - rows["submit_ms"])[cancelled]
    assert (after >= 1).all() and (after <= rows["work_ms"][cancelled]).all()


def test_by_default_every_job_completes_and_claims_nothing():
    rows = sample(SMALL).rows
    assert (rows["outcome"] == Outcome.DONE).all()
    for column in ("outcome_ms", "cancel_ms", "claim_ms"):
        assert (rows[column] == NEVER).all()
    assert (rows["checkpoint_interval_ms"] == HOUR_MS // 2).all()


@pytest.mark.parametrize("claims", ["coarse", "informative", "exact"])
def test_claims_are_never_below_the_truth(claims):
    trace = sample(replace(SMALL, claims=claims))
    claim, work = trace.rows["claim_ms"], trace.rows["work_ms"]
    assert (claim >= work).all()
    if claims == "exact":
        assert (claim == work).all()
    else:
        assert (claim == work)[~np.isin(claim, STEPS_MS)].all()
    if claims == "coarse":
        assert np.isin(claim, STEPS_MS).mean() > 0.85
    if claims == "informative":
        assert rank_correlation(trace) > 0.7


def test_asking_for_claims_leaves_the_jobs_as_they_are():
    for claims in ("coarse", "exact", "informative"):
        rows = sample(replace(SMALL, claims=claims)).rows
        for column in ("submit_ms", "work_ms", "tenant", "shape"):
            assert (rows[column] == sample(SMALL).rows[column]).all()


def test_sizes_stay_within_the_limit_and_fractions_come_on_demand():
    assert sample(SMALL).gpus().max() <= 32_000
    trace = sample(Synthetic(num_jobs=20_000, max_gpus=4, max_batch=20, fractional=0.4))
    assert trace.gpus().max() == 4000
    assert set(np.unique(trace.gpus())) <= {*FRACTIONS, 1000, 2000, 4000}
    small = trace.gpus() <= 1000
    assert (trace.gpus() < 1000)[small].mean() == pytest.approx(0.4, abs=0.05)


def test_drawn_mixes_differ_by_mix_seed_only():
    first, other = Synthetic(num_jobs=5), Synthetic(num_jobs=5, mix_seed=1)
    assert first.tenant_profiles == Synthetic(num_jobs=9, load=0.5).tenant_profiles
    assert first.tenant_profiles != other.tenant_profiles
    assert first.entitlements == (64, 64, 64, 32)
    assert [p.name for p in first.tenant_profiles] == ["team0", "team1", "team2", "team3"]
    ratios = [p.demand / p.entitlement for p in Synthetic(num_jobs=5, num_tenants=12).tenant_profiles]
    assert min(ratios) >= 0.3 and max(ratios) <= 2.0


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, "num_jobs None, horizon_ms None; expected one of the two"),
        ({"num_jobs": 5, "horizon_ms": 5}, "expected one of the two"),
        ({"num_jobs": 0}, "num_jobs is 0, expected >= 1"),
        ({"num_jobs": 5, "load": 0.0}, "load is 0.0, expected > 0"),
        ({"num_jobs": 5, "fail": 1.5}, "fail is 1.5, expected 0 to 1"),
        ({"num_jobs": 5, "fail": 0.6, "cancel": 0.6}, "is more than 1"),
        ({"num_jobs": 5, "mix": "phily"}, "did you mean 'philly'"),
        ({"num_jobs": 5, "claims": "course"}, "did you mean 'coarse'"),
        ({"horizon_ms": 5, "exact_load": True}, "expected num_jobs with it"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_line(options, want):
    with pytest.raises(GanglineError, match=want):
        Synthetic(**options)


def test_eight_hundred_jobs_are_drawn_in_about_a_millisecond():
    rng = np.random.default_rng(0)
    SMALL.sample(rng)
    times = []
    for _ in range(50):
        begin = time.perf_counter()
        SMALL.sample(rng)
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.01  # measured 0.6 ms on one core of a busy machine
