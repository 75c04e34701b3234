"""Walltime claims: never below the truth, on the steps, and as telling as they are meant to be."""

import numpy as np
import pytest

from gangline.envs.core.types import NEVER
from gangline.envs.errors import GanglineError
from gangline.envs.workloads.base import JobTrace, gang_rows
from gangline.envs.workloads.claims import (
    MODELS,
    STEPS_MS,
    coarse,
    informative,
    rank_correlation,
    round_up,
    with_claims,
)
from gangline.envs.workloads.traces import load
from gangline.envs.workloads.windows import cut, window

from .files import data

HOUR_MS = 3_600_000


def jobs(*work_gpus_tenant: tuple[float, int, int]) -> JobTrace:
    """From (work h, GPUs, tenant), all submitted at 0."""
    table = np.array(work_gpus_tenant, float)
    rows, pod_sets = gang_rows(
        np.zeros(len(table), np.int64),
        (table[:, 0] * HOUR_MS).astype(np.int64),
        (table[:, 1] * 1000).astype(np.int64),
        table[:, 2].astype(np.int32),
    )
    return JobTrace.build(rows, pod_sets, ["red", "blue"])


@pytest.fixture(scope="module")
def philly():
    return load("philly", data("philly.csv.gz"))


@pytest.mark.parametrize("model", MODELS)
def test_no_claim_is_below_the_truth_and_none_kills(philly, model):
    claimed = with_claims(philly, model)
    assert (claimed.rows["claim_ms"] >= philly.rows["work_ms"]).all()
    assert not claimed.rows["killed_at_claim"].any()
    assert (claimed.rows["work_ms"] == philly.rows["work_ms"]).all()


@pytest.mark.parametrize(
    ("model", "want_milli"), [("none", None), ("coarse", 284), ("informative", 887), ("exact", 1000)]
)
def test_the_rank_correlation_with_the_truth_is_in_the_report(philly, model, want_milli):
    claimed = with_claims(philly, model)
    assert claimed.report.get("claim_spearman_milli") == want_milli
    assert "claim_spearman_milli" not in philly.report


def test_times_are_rounded_up_to_the_steps():
    hours = np.array([0.1, 1, 1.0001, 4, 11, 24, 25, 168, 169, 5000])
    assert (round_up((hours * HOUR_MS).astype(np.int64)) // HOUR_MS).tolist() == [1, 1, 4, 4, 12, 24, 72, 168, 720, 720]


def test_a_coarse_claim_is_the_95th_percentile_of_the_tenant_and_size_rounded_up_and_raised_to_the_truth():
    red = [(h, 1, 0) for h in (*[0.5] * 18, 2, 30)]  # 95th percentile of 20: between the 19th and 20th, so the higher
    blue = [(3, 1, 1)] * 4 + [(9, 8, 1)]
    reference = jobs(*red, *blue)
    trace = coarse(jobs((0.1, 1, 0), (100, 1, 0), (1, 1, 1), (1, 8, 1), (1, 8, 0), (1, 2, 0)), reference=reference)
    want = [
        72,  # red, 1 GPU: 30 h
        100,  # runs longer than the claim of its kind
        4,  # blue, 1 GPU: 3 h
        12,  # blue, 8 GPUs: 9 h
        12,  # red has no job of 8 GPUs: those of all tenants
        12,  # nobody has one of 2: all jobs, 9 h
    ]
    assert (trace.rows["claim_ms"] / HOUR_MS).tolist() == want
    assert trace.report["claims_from_jobs"] == 25
    assert trace.report["claims_from_size"] == 1
    assert trace.report["claims_from_all"] == 1


def test_coarse_claims_know_the_training_weeks_only(philly):
    start_ms, end_ms = window(philly, "train")
    training = cut(philly, start_ms, end_ms)
    claimed = coarse(philly)
    assert claimed.report["claims_from_jobs"] == training.num_jobs == 46_070
    assert (claimed.rows["claim_ms"] == coarse(philly, reference=training).rows["claim_ms"]).all()
    on_steps = np.isin(claimed.rows["claim_ms"], STEPS_MS)
    assert (claimed.rows["claim_ms"] == philly.rows["work_ms"])[~on_steps].all()
    assert on_steps.mean() > 0.9


def test_a_window_without_training_weeks_needs_a_reference(philly):
    test_weeks = cut(philly, *window(philly, "test"))
    with pytest.raises(GanglineError, match="make claims before cutting a window"):
        coarse(test_weeks)
    assert coarse(test_weeks, reference=philly).num_jobs == test_weeks.num_jobs


def test_a_trace_without_dates_is_its_own_reference():
    assert coarse(jobs((3, 1, 0), (5, 1, 0))).rows["claim_ms"].tolist() == [12 * HOUR_MS] * 2


def test_informative_claims_belong_to_the_job_whatever_else_is_in_the_trace(philly):
    claimed = informative(philly, seed=4)
    test_weeks = window(philly, "test")
    assert (
        informative(cut(philly, *test_weeks), seed=4).rows["claim_ms"] == cut(claimed, *test_weeks).rows["claim_ms"]
    ).all()
    assert (informative(philly, seed=5).rows["claim_ms"] != claimed.rows["claim_ms"]).any()
    work = philly.rows["work_ms"]
    free = work * 5 < STEPS_MS[-1]  # below the last step
    assert (claimed.rows["claim_ms"] >= round_up((work * 1.2).astype(np.int64)))[free].all()
    assert (claimed.rows["claim_ms"] <= round_up(work * 5))[free].all()


def test_the_rank_correlation_is_spearmans():
    trace = jobs((1, 1, 0), (2, 1, 0), (3, 1, 0), (4, 1, 0))
    rows = trace.rows.copy()
    for claim_h, want in (
        ([1, 2, 3, 4], 1.0),
        ([4, 3, 2, 1], -1.0),
        ([1, 1, 2, 2], 2 / np.sqrt(5)),
        ([1, 3, 2, 4], 0.8),
    ):
        rows["claim_ms"] = np.array(claim_h) * HOUR_MS
        assert rank_correlation(JobTrace.build(rows, trace.pod_sets, trace.tenants)) == pytest.approx(want)
    assert np.isnan(rank_correlation(trace))
    assert (trace.rows["claim_ms"] == NEVER).all()


def test_an_unknown_model_is_answered_with_the_nearest():
    with pytest.raises(GanglineError, match=r"unknown claim model 'course'; known: .*; did you mean 'coarse'"):
        with_claims(jobs((1, 1, 0)), "course")
