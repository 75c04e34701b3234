"""SWF: the two Lublin traces, and a hand-made file with every kind of dirty row."""

import numpy as np
import pytest

from gangline.envs.core.types import NEVER, NONE, Outcome
from gangline.envs.errors import GanglineError
from gangline.envs.workloads.base import run_ms
from gangline.envs.workloads.traces import load, swf
from gangline.envs.workloads.windows import offered_load, window

from .files import data, write

SAMPLE = "samples/tenants.swf"


def test_the_lublin_trace_has_the_measured_statistics():
    trace = load("swf", data("lublin_256.swf.gz"), tenant="none")
    run_s, procs = trace.rows["work_ms"] / 1000, trace.gpus() // 1000
    assert trace.num_jobs == 10_000
    assert run_s.mean() == pytest.approx(4863, abs=1)
    assert np.percentile(run_s, [50, 90]) == pytest.approx([137, 15_578], abs=1)
    assert (procs.mean(), procs.max()) == (pytest.approx(22.1, abs=0.05), 256)
    assert (procs == 1).mean() == pytest.approx(0.25, abs=0.01)
    load_256 = offered_load(trace, 256_000, 0, int(trace.rows["submit_ms"][-1]))
    assert load_256 == pytest.approx(1.06, abs=0.01)


@pytest.mark.parametrize("name", ["lublin_256.swf.gz", "lublin_256_new2.swf.gz"])
def test_jobs_of_the_lublin_traces_are_gangs_of_single_gpu_pods_that_claim_their_run_time(name):
    trace = load("swf", data(name), tenant="none", procs="max")
    assert trace.report["claim_from_run"] == trace.num_jobs
    assert (trace.rows["claim_ms"] == trace.rows["work_ms"]).all()
    assert (trace.rows["num_pod_sets"] == 1).all()
    assert (trace.pod_sets["request"][:, 0] == 1000).all()
    assert (trace.rows["min_member"] == trace.gpus() // 1000).all()
    assert (trace.rows["checkpoint_interval_ms"] == NEVER).all()


def test_a_trace_without_any_tenant_field_gets_synthetic_tenants_that_a_seed_fixes():
    path = data("lublin_256.swf.gz")
    assert load("swf", path).tenants == ("unknown",)
    assert load("swf", path).report["unknown_tenant"] == 10_000
    trace = load("swf", path, tenant="synthetic", num_tenants=3, seed=5)
    share = np.bincount(trace.rows["tenant"], minlength=3) / trace.num_jobs
    assert share == pytest.approx([1 / 3] * 3, abs=0.02)
    again, other = (load("swf", path, tenant="synthetic", num_tenants=3, seed=seed) for seed in (5, 6))
    assert (trace.rows["tenant"] == again.rows["tenant"]).all()
    assert (trace.rows["tenant"] != other.rows["tenant"]).any()


def test_the_dirty_rows_of_the_sample_are_dropped_and_counted():
    trace = load("swf", data(SAMPLE))
    want = {
        "rows_read": 9,
        "rows_kept": 5,
        "out_of_order": 1,  # job 4 was submitted before job 3
        "dropped_duplicate": 1,  # the second job 6
        "dropped_no_run": 2,  # job 2 never ran, job 3 ran for 0 s
        "dropped_no_procs": 0,
        "oversized": 1,  # job 5 asks for 128 of 64 processors
        "dropped_oversized": 1,
        "max_procs": 64,
        "claim_from_run": 1,  # job 6
        "claim_below_run": 1,  # job 4 ran 1200 s on a request of 1000
        "unknown_tenant": 1,  # job 6
        "t0_epoch_ms": 1_600_000_000_000,
        "status_0": 1,
        "status_2": 1,
        "status_4": 1,
        "status_5": 1,
    }
    assert want.items() <= trace.report.items()
    assert trace.rows["source_row"].tolist() == [0, 3, 5, 7, 8]
    assert trace.rows["submit_ms"].tolist() == [0, 55_000, 120_000, 150_000, 150_000]
    assert (trace.gpus() // 1000).tolist() == [8, 16, 2, 4, 4]
    assert trace.rows["claim_ms"].tolist() == [7_200_000, 1_000_000, 300_000, 100_000, 100_000]
    assert (trace.rows["outcome"] == Outcome.DONE).all()


@pytest.mark.parametrize(
    ("tenant", "want"),
    [
        ("user", ["user1", "user3", "unknown", "user4", "user4"]),
        ("group", ["group1", "group2", "unknown", "group2", "group2"]),
        ("queue", ["queue1", "queue1", "queue1", "queue1", "queue1"]),
        ("partition", ["partition1", "partition2", "unknown", "partition1", "partition1"]),
        ("none", ["all"] * 5),
    ],
)
def test_the_tenant_is_the_field_that_was_asked_for(tenant, want):
    trace = load("swf", data(SAMPLE), tenant=tenant)
    assert [trace.tenants[t] for t in trace.rows["tenant"]] == want


def test_users_belong_to_their_tenant():
    trace = load("swf", data(SAMPLE), tenant="group")
    assert trace.users == ("user1", "user3", "user4")
    assert trace.rows["user"].tolist() == [0, 1, NONE, 2, 2]
    assert [trace.tenants[t] for t in trace.user_tenant] == ["group1", "group2", "group2"]


def test_a_job_waits_for_its_preceding_job_and_its_think_time():
    trace = load("swf", data(SAMPLE))
    assert trace.rows["after_row"].tolist() == [NONE, NONE, 1, NONE, NONE]
    assert trace.rows["eligible_ms"][2] == (55 + 1200 + 60) * 1000  # earliest end of job 4, and a minute of thought
    assert trace.rows["has_dependents"].tolist() == [False, True, False, False, False]
    alone = load("swf", data(SAMPLE), dependencies=False)
    assert (alone.rows["after_row"] == NONE).all()
    assert (alone.rows["eligible_ms"] == alone.rows["submit_ms"]).all()


def test_with_outcomes_failed_jobs_fail_when_they_did_and_cancelled_ones_go_on_until_they_are_cancelled(tmp_path):
    #                 job submit wait run procs ...       asked       status
    lines = [
        " 1 0 10 100 4 -1 -1 4 900 -1 0 1 1 1 1 1 -1 -1",
        " 2 5 20 100 4 -1 -1 4 900 -1 5 1 1 1 1 1 -1 -1",
        " 3 6 20 100 4 -1 -1 4 900 -1 1 1 1 1 1 1 -1 -1",
    ]
    trace = swf.load(write(tmp_path / "x.swf", "\n".join(lines)), outcomes=True)
    failed, cancelled, done = trace.rows
    assert (failed["outcome"], failed["outcome_ms"], failed["work_ms"]) == (Outcome.FAILED, 100_000, 100_001)
    assert (cancelled["cancel_ms"], cancelled["work_ms"]) == (125_000, 900_000)
    assert (done["outcome"], done["work_ms"], done["cancel_ms"]) == (Outcome.DONE, 100_000, NEVER)
    assert run_ms(trace).tolist() == [100_000, 120_000, 100_000]


def test_partial_executions_can_be_dropped():
    trace = load("swf", data(SAMPLE), partial="drop")
    assert trace.report["dropped_partial"] == 2
    assert trace.num_jobs == 3


@pytest.mark.parametrize(("procs", "want"), [("requested", [8, 2, 3]), ("max", [16, 2, 3])])
def test_processors_are_those_requested_or_the_larger_number(tmp_path, procs, want):
    lines = [
        "1 0 0 10 16 -1 -1 8 -1 -1 1 1 1 1 1 1 -1 -1",
        "2 0 0 10 2 -1 -1 -1 -1 -1 1 1 1 1 1 1 -1 -1",
        "3 0 0 10 -1 -1 -1 3 -1 -1 1 1 1 1 1 1 -1 -1",
        "4 0 0 10 -1 -1 -1 0 -1 -1 1 1 1 1 1 1 -1 -1",
    ]
    trace = swf.load(write(tmp_path / "x.swf", "\n".join(lines)), procs=procs)
    assert (trace.gpus() // 1000).tolist() == want
    assert trace.report["dropped_no_procs"] == 1


def test_oversized_jobs_are_kept_or_capped_on_demand_and_a_given_capacity_beats_the_header():
    kept = load("swf", data(SAMPLE), oversized="keep")
    assert 128_000 in kept.gpus()
    capped = load("swf", data(SAMPLE), oversized="cap")
    assert (capped.gpus().max(), capped.report["repaired_oversized"]) == (64_000, 1)
    assert load("swf", data(SAMPLE), capacity_gpus=128).report["dropped_oversized"] == 0


def test_windows_of_dates_work_where_the_header_has_a_start_time(tmp_path):
    trace = load("swf", data(SAMPLE))  # UnixStartTime 1600000000 = 2020-09-13 12:26:40
    assert window(trace, ("2020-09-13T12:26:40", "2020-09-13T12:27:40")) == (0, 60_000)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("; only a comment\n", "no jobs, expected rows of 18 numbers"),
        ("1 2 3\n", "rows of 3 fields, expected 18"),
        ("1 0 0 ten 4 -1 -1 4 9 -1 1 1 1 1 1 1 -1 -1", "swf trace row 1: run is ten, expected a number"),
        ("1 -5 0 10 4 -1 -1 4 9 -1 1 1 1 1 1 1 -1 -1", "swf trace row 1: submit (field 2) is -5, expected >= 0"),
        ("1 0 0 -1 4 -1 -1 4 9 -1 1 1 1 1 1 1 -1 -1", "no job is left of 1 rows"),
        ("1 0 0 10 4 -1 -1 4 9 -1 1 1 1 1 1 1 -1 -1\n2 0 0 10 4\n", "row 2"),
    ],
)
def test_a_file_that_is_not_swf_is_refused_in_one_line(tmp_path, text, want):
    with pytest.raises(GanglineError) as error:
        swf.load(write(tmp_path / "x.swf", text))
    assert want in str(error.value)
    assert "\n" not in str(error.value)
