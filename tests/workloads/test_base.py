"""How GPUs become pods, and what is done with jobs that the world could never run."""

import numpy as np
import pytest

from gangline.envs.core.types import NEVER, Outcome
from gangline.envs.errors import GanglineError
from gangline.envs.workloads.base import JobTrace, Replay, Workload, fit, gang_rows, pods_of, run_ms, with_checkpoints
from gangline.envs.workloads.synthetic import Synthetic
from gangline.envs.workloads.toy import day


def trace_of(*gpus: float, gpus_per_pod: int = 8) -> JobTrace:
    """One job each, an hour long, all submitted at 0."""
    milli = np.array([round(g * 1000) for g in gpus])
    rows, pod_sets = gang_rows(
        np.zeros(len(gpus), np.int64),
        np.full(len(gpus), 3_600_000),
        milli,
        np.zeros(len(gpus), np.int32),
        gpus_per_pod=gpus_per_pod,
    )
    return JobTrace.build(rows, pod_sets, ["red"])


def pods(trace: JobTrace, job: int) -> list[tuple[int, int]]:
    first, num = trace.rows["first_pod_set"][job], trace.rows["num_pod_sets"][job]
    return [(int(p["count"]), int(p["request"][0])) for p in trace.pod_sets[first : first + num]]


@pytest.mark.parametrize(
    ("gpus", "per_pod", "want"),
    [
        (1, 8, [(1, 1000)]),
        (8, 8, [(1, 8000)]),
        (16, 8, [(2, 8000)]),
        (12, 8, [(1, 8000), (1, 4000)]),
        (20, 8, [(2, 8000), (1, 4000)]),
        (5, 4, [(1, 4000), (1, 1000)]),
        (3, 1, [(3, 1000)]),
        (0.47, 8, [(1, 470)]),
    ],
)
def test_a_job_is_cut_into_full_pods_and_a_remainder(gpus, per_pod, want):
    trace = trace_of(gpus, gpus_per_pod=per_pod)
    assert pods(trace, 0) == want
    assert trace.rows["min_member"][0] == sum(count for count, _ in want)
    assert trace.gpus()[0] == round(gpus * 1000)


def test_jobs_of_equal_size_share_their_pod_sets_and_their_shape():
    trace = trace_of(8, 12, 8, 12)
    assert len(trace.pod_sets) == 3
    assert trace.rows["shape"].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("milli", [0, -1000, 1500])
def test_amounts_that_are_no_pods_are_refused(milli):
    with pytest.raises(GanglineError, match=f"job 1: {milli} milli-GPU"):
        pods_of(np.array([1000, milli]))


def test_oversized_jobs_are_rejected_capped_or_kept():
    trace = trace_of(4, 12, 8, 20, 64)
    rejected = fit(trace, 8000)
    assert rejected.gpus().tolist() == [4000, 8000]
    assert rejected.report == {"oversized": 3, "dropped_oversized": 3, "rows_kept": 2}
    capped = fit(trace, 18_000, "cap")
    assert capped.gpus().tolist() == [4000, 12_000, 8000, 16_000, 16_000]
    assert [pods(capped, job) for job in (3, 4)] == [[(2, 8000)], [(2, 8000)]]
    assert capped.rows["min_member"].tolist() == [1, 2, 1, 2, 2]
    assert capped.report["repaired_oversized"] == 2
    assert (capped.rows["work_ms"] == trace.rows["work_ms"]).all()
    assert fit(trace, 4000, "cap").gpus().tolist() == [4000] * 5
    kept = fit(trace, 8000, "keep")
    assert (kept.num_jobs, kept.report["oversized"]) == (5, 3)
    assert "oversized" not in trace.report  # the trace that was given is as it was


def test_checkpoints_can_be_set_for_all_jobs():
    trace = with_checkpoints(trace_of(1, 2), 60_000, cost_ms=500, restart_cost_ms=9000)
    assert trace.rows["checkpoint_interval_ms"].tolist() == [60_000] * 2
    assert trace.rows["checkpoint_cost_ms"].tolist() == [500] * 2
    assert trace.rows["restart_cost_ms"].tolist() == [9000] * 2
    assert (with_checkpoints(trace, None).rows["checkpoint_interval_ms"] == NEVER).all()


def test_the_run_time_ends_with_a_failure_or_a_cancellation_but_not_with_a_hang():
    trace = trace_of(1, 1, 1, 1)
    rows = trace.rows.copy()
    rows["outcome"][1], rows["outcome_ms"][1] = Outcome.FAILED, 5000
    rows["outcome"][2], rows["outcome_ms"][2] = Outcome.HANGS, 5000
    rows["cancel_ms"][3] = 7000
    assert run_ms(JobTrace.build(rows, trace.pod_sets, trace.tenants)).tolist() == [3_600_000, 5000, 3_600_000, 7000]


def test_traces_generators_and_toys_are_workloads():
    replay = Replay(trace_of(1))
    for workload in (replay, Synthetic(num_jobs=10), day()):
        assert isinstance(workload, Workload)
    assert replay.sample(np.random.default_rng(0)) is replay.trace
