"""A month of Slurm's accounting, with every kind of row that sacct prints."""

import numpy as np
import pytest

from gangline.envs.config import load_world
from gangline.envs.core.types import NEVER, NONE, Outcome
from gangline.envs.errors import GanglineError
from gangline.envs.files.slurm_site import Submission
from gangline.envs.workloads.claims import with_claims
from gangline.envs.workloads.traces import load
from gangline.envs.workloads.traces.sacct import submissions
from gangline.envs.workloads.windows import window
from gangline.envs.worlds import build_world

from .files import write

TITLES = (
    *("JobID", "JobName", "User", "Account", "Partition", "QOS", "Submit", "Eligible", "Start", "End", "Timelimit"),
    *("State", "NNodes", "AllocTRES", "ReqTRES"),
)
GPUS_8 = "billing=8,cpu=64,gres/gpu:h100=8,gres/gpu=8,mem=512G,node=1"


def day(clock: str) -> str:
    return clock if not clock or clock[0].isalpha() else f"2024-03-01T{clock}"


def row(job: str, submit: str, start: str, end: str, **other: str) -> dict[str, str]:
    """A job of alice in physics on one node of 8 GPUs, times on one day."""
    times = {"Submit": day(submit), "Eligible": day(submit), "Start": day(start), "End": day(end)}
    usual = {"User": "alice", "Account": "physics", "Partition": "gpu", "QOS": "normal", "JobName": "train"}
    asked = {"Timelimit": "1-00:00:00", "State": "COMPLETED", "NNodes": "1", "AllocTRES": GPUS_8, "ReqTRES": GPUS_8}
    return {"JobID": job, **usual, **times, **asked, **other}


def text(*rows: dict[str, str], titles=TITLES) -> str:
    return "\n".join(["|".join(titles), *("|".join(r.get(t, "") for t in titles) for r in rows)]) + "\n"


def read(tmp_path, *rows, **options):
    return load("sacct", write(tmp_path / "march.txt", text(*rows)), **options)


MONTH = (
    row("100", "08:00:00", "08:10:00", "09:10:00"),
    row("100.batch", "08:10:00", "08:10:00", "09:10:00", JobName="batch", User=""),
    row("100.0", "08:10:00", "08:10:00", "09:10:00", JobName="python", User=""),
    # an array: two elements ran, the rest waits
    row("101_4", "08:05:00", "08:20:00", "08:50:00", AllocTRES="cpu=8,gres/gpu=1,mem=64G,node=1"),
    row("101_[5-9]", "08:05:00", "Unknown", "Unknown", State="PENDING", AllocTRES=""),
    row("101_10", "08:05:00", "08:25:00", "08:26:00", AllocTRES="cpu=8,gres/gpu=1,node=1", State="FAILED"),
    # four nodes of 8; a limit that is the partition's; bob is in two accounts
    row(
        "102",
        "08:30:00",
        "09:10:00",
        "12:10:00",
        User="bob",
        AllocTRES="cpu=256,gres/gpu=32,mem=2T,node=4",
        NNodes="4",
        Timelimit="Partition_Limit",
    ),
    row("103", "08:20:00", "08:30:00", "09:30:30", User="bob", Account="chem", Timelimit="01:00:00", State="TIMEOUT"),
    # heterogeneous: 2 nodes x 4 GPUs and 1 node without
    row("104+0", "09:00:00", "10:00:00", "11:00:00", AllocTRES="cpu=16,gres/gpu=8,node=2", NNodes="2"),
    row("104+1", "09:00:00", "10:00:00", "11:00:00", AllocTRES="cpu=32,node=1"),
    row("104+0.0", "09:00:00", "10:00:00", "11:00:00"),
    # cancelled while waiting, cancelled while running, a CPU job, one that still runs
    row("105", "09:05:00", "None", "09:07:00", State="CANCELLED by 1000", AllocTRES=""),
    row("106", "09:06:00", "10:00:00", "10:30:00", State="CANCELLED by 1000", JobName="a|b"),
    row("107", "09:10:00", "09:11:00", "09:12:00", AllocTRES="cpu=4,mem=8G,node=1", ReqTRES="cpu=4"),
    row("108", "09:20:00", "09:30:00", "Unknown", State="RUNNING", Timelimit="UNLIMITED"),
    # --duplicates: preempted, then run again
    row("109", "09:30:00", "09:40:00", "09:50:00", State="PREEMPTED"),
    row("109", "09:50:01", "10:00:00", "11:30:00"),
    row("100", "08:00:00", "08:10:00", "09:10:00"),  # two months overlap
)


def test_a_month_is_read_and_everything_left_out_is_counted(tmp_path):
    trace = read(tmp_path, *MONTH)
    want = {
        "rows_read": 18,
        "step_lines": 3,
        "rows_kept": 8,
        "dropped_duplicate": 1,
        "dropped_never_started": 2,  # the waiting elements, and the job cancelled in the queue
        "dropped_running": 1,
        "dropped_no_gpu": 1,
        "repaired_requeued": 1,
        "het_jobs": 1,
        "claim_partition_limit": 1,
        "claim_below_run": 1,  # the time-out ran 30 s past its limit
        "out_of_order": 1,  # job 103
        "unknown_tenant": 0,
        "uneven_jobs": 0,
        "state_cancelled": 2,
        "t0_epoch_ms": 1_709_280_000_000,  # 2024-03-01 08:00 UTC
        "recorded_wait_mean_s": 1792,  # (10 + 15 + 20 + 10 + 40 + 60 + 54 + 30 min) / 8
    }
    assert want.items() <= trace.report.items()
    assert trace.tenants == ("chem", "physics")
    assert (trace.gpus() // 1000).tolist() == [8, 1, 1, 8, 32, 8, 8, 8]
    assert (trace.rows["submit_ms"] // 60_000).tolist() == [0, 5, 5, 20, 30, 60, 66, 90]
    assert (trace.rows["work_ms"] // 1000).tolist() == [3600, 1800, 60, 3630, 10_800, 3600, 1800, 5400]
    hour = 3_600_000
    assert trace.rows["claim_ms"].tolist() == [
        24 * hour,
        24 * hour,
        24 * hour,
        hour,
        NEVER,
        24 * hour,
        24 * hour,
        24 * hour,
    ]
    assert (trace.rows["outcome"] == Outcome.DONE).all() and (trace.rows["cancel_ms"] == NEVER).all()
    assert trace.users == ("alice", "bob@chem", "bob@physics")
    assert trace.rows["user"].tolist() == [0, 0, 0, 1, 2, 0, 0, 0]
    assert window(trace, ("2024-03-01", "2024-03-02")) == (-8 * hour, 16 * hour)


def test_a_pod_is_what_a_job_had_on_a_node(tmp_path):
    trace = read(tmp_path, *MONTH, resources="gpu_cpu_memory", cpu_jobs="keep")
    assert trace.resources == ("gpu", "cpu", "memory")
    by_job = [
        [tuple(int(v) for v in (p["count"], *p["request"][:3])) for p in trace.pod_sets[f : f + n]]
        for f, n in zip(trace.rows["first_pod_set"], trace.rows["num_pod_sets"], strict=True)
    ]
    gib = 1 << 30
    assert by_job[4] == [(4, 8000, 64_000, 512 * gib)]
    assert by_job[5] == [(2, 4000, 8000, 0), (1, 0, 32_000, 0)]  # the heterogeneous job: one gang
    assert trace.rows["min_member"][5] == 3
    assert by_job[7] == [(1, 0, 4000, 8 * gib)]  # the CPU job, kept
    assert trace.report["rows_kept"] == 9


def test_gpus_that_do_not_divide_by_the_nodes_fill_one_node_after_the_other(tmp_path):
    uneven = row("1", "08:00:00", "08:00:00", "09:00:00", AllocTRES="cpu=24,gres/gpu=12,node=5", NNodes="5")
    trace = read(tmp_path, uneven, resources="gpu_cpu")
    assert trace.report["uneven_jobs"] == 1
    assert trace.pod_sets["count"].tolist() == [1, 1]
    assert trace.pod_sets["request"][:, :2].tolist() == [[8000, 16_000], [4000, 8000]]


def test_a_job_that_asked_for_a_type_gets_no_other(tmp_path):
    rows = (
        row("1", "08:00:00", "08:00:00", "09:00:00", ReqTRES="cpu=1,gres/gpu:H100=8,gres/gpu=8"),
        row("2", "08:00:00", "08:00:00", "09:00:00", ReqTRES="cpu=1,gres/gpu=8"),  # got h100, asked for any
        row("3", "08:00:00", "08:00:00", "09:00:00", ReqTRES="cpu=1,gres/gpu:a100=8"),
    )
    trace = read(tmp_path, *rows, gpu_types="requested")
    assert trace.flavors == ("H100", "a100")
    allowed = trace.pod_sets["flavors"][trace.rows["first_pod_set"]]
    assert [[f for f in row if f != NONE] for row in allowed.tolist()] == [[0], list(range(8)), [1]]
    assert read(tmp_path, *rows).flavors == ("default",)


def test_with_outcomes_jobs_fail_are_cancelled_and_run_into_their_limit_as_they_did(tmp_path):
    trace = read(tmp_path, *MONTH, outcomes=True)
    failed, timed_out, cancelled = trace.rows[2], trace.rows[3], trace.rows[6]
    assert (failed["outcome"], failed["outcome_ms"], failed["work_ms"]) == (Outcome.FAILED, 60_000, 60_001)
    assert timed_out["killed_at_claim"] and timed_out["work_ms"] > timed_out["claim_ms"]
    assert (cancelled["cancel_ms"], cancelled["work_ms"]) == (150 * 60_000, 24 * 3_600_000)
    assert trace.rows["killed_at_claim"].sum() == 1


def test_jobs_that_still_run_may_be_cut_at_the_end_of_the_file(tmp_path):
    trace = read(tmp_path, *MONTH, running="cut")
    assert trace.report["repaired_running"] == 1 and trace.num_jobs == 9
    job = trace.rows[trace.rows["source_row"] == 14]
    assert job["work_ms"][0] == (2 * 60 + 40) * 60_000  # from 09:30 to 12:10, the last moment
    assert job["claim_ms"][0] == NEVER


@pytest.mark.parametrize(
    ("tenant", "want"), [("user", ("alice", "bob")), ("qos", ("normal",)), ("partition", ("gpu",)), ("none", ("all",))]
)
def test_the_tenant_is_the_field_that_was_asked_for(tmp_path, tenant, want):
    assert read(tmp_path, *MONTH, tenant=tenant).tenants == want


def test_a_job_waits_for_its_begin_time(tmp_path):
    later = row("1", "08:00:00", "10:00:00", "11:00:00", Eligible="2024-03-01T09:30:00")
    assert read(tmp_path, later).rows["eligible_ms"][0] == 90 * 60_000
    assert read(tmp_path, later, eligible=False).rows["eligible_ms"][0] == 0


def test_an_old_sacct_without_tres_and_an_id_that_was_used_again(tmp_path):
    titles = ["JobID", "Submit", "Start", "End", "State", "NNodes", "AllocGRES", "NCPUS"]
    rows = [
        row("7", "08:00:00", "08:00:00", "09:00:00", NNodes="2", AllocGRES="gpu:v100:4", NCPUS="80"),
        row("7", "12:00:00", "12:00:00", "13:00:00", NNodes="1", AllocGRES="gpu:2", NCPUS="8"),
    ]
    trace = load("sacct", write(tmp_path / "old.txt", text(*rows, titles=titles)), resources="gpu_cpu")
    assert (trace.gpus() // 1000).tolist() == [8, 2]
    assert trace.amounts("cpu").tolist() == [80_000, 8000]
    assert trace.tenants == ("unknown",) and trace.report["unknown_tenant"] == 2
    assert trace.rows["user"].tolist() == [NONE, NONE]


@pytest.mark.parametrize("name", ["march.txt", "march.txt.gz"])
def test_windows_ends_a_byte_order_mark_and_packed_files(tmp_path, name):
    path = write(tmp_path / name, text(*MONTH), newline="\r\n", bom=True)
    assert load("sacct", path).num_jobs == 8


def test_a_job_name_in_another_encoding_does_not_cost_the_month(tmp_path):
    path = tmp_path / "march.txt"
    path.write_bytes(text(*MONTH).replace("train", "tr\xe4in").encode("latin-1"))
    assert load("sacct", path).num_jobs == 8


def test_users_real_limits_are_the_claims_that_schedulers_see(tmp_path):
    trace = read(tmp_path, *MONTH, outcomes=True)
    own = with_claims(trace, "own")
    assert (own.rows["claim_ms"] == trace.rows["claim_ms"]).all() and own.rows["killed_at_claim"].any()
    assert not np.array_equal(with_claims(trace, "exact").rows["claim_ms"], trace.rows["claim_ms"])


def test_the_preset_makes_a_world_of_the_file(tmp_path):
    path = write(tmp_path / "march.txt", text(*MONTH))
    config = load_world(
        {"cluster": {"nodes": [{"count": 5}]}, "workload_preset": "sacct"}, **{"workload.path": str(path)}
    )
    spec, source = build_world(config)
    assert [tenant.name for tenant in spec.tenants] == ["chem", "physics"]
    assert source.layout().rows["claim_ms"][3] == 3_600_000


TIME = "expected a time such as 2024-03-01T12:00:00"


def one(job: str = "2", submit: str = "08:00:00", start: str = "08:00:00", end: str = "09:00:00", **other: str) -> str:
    return text(row(job, submit, start, end, **other))


@pytest.mark.parametrize(
    ("content", "want"),
    [
        ("", "no column JobID; expected those of sacct -P"),
        ("JobID|Submit|Start|End\n", "no column State; expected those of sacct -P"),
        ("JobID|Submit|Start|End|State\n", "no column AllocTRES or ReqTRES"),
        ("       JobID      State\n------------ ----------\n", "no column JobID"),
        ("JobID\tSubmit\tStart\tEnd\tState\tAllocTRES\n", "no column JobID"),
        (
            text(row("x1", "08:00:00", "08:00:00", "09:00:00")),
            "line 2: JobID is 'x1', expected an id such as 123, 123_4",
        ),
        (text(MONTH[0], row("2", "yesterday", "08:00:00", "09:00:00")), f"line 3: Submit is 'yesterday', {TIME}"),
        (one(submit="Unknown"), f"line 2: Submit is 'Unknown', {TIME}"),
        (
            one(end="07:30:00"),
            "line 2: End is '2024-03-01T07:30:00', expected a time not before",
        ),
        (one(State="FINE"), "line 2: State is 'FINE', expected a state"),
        (
            one(Timelimit="long"),
            "line 2: Timelimit is 'long', expected a time",
        ),
        (
            one(AllocTRES="gpu"),
            "line 2: AllocTRES is 'gpu', expected resources",
        ),
        (
            one(AllocTRES="mem=lots"),
            "AllocTRES is 'mem=lots', expected a size",
        ),
        (text(*MONTH)[:-150], "line 19: 10 fields, expected 15, as in the first line; cut off?"),
        (text(MONTH[4]), "no job is left of 1 rows; expected at least one that ran on GPUs"),
        (one("2" * 3_000_000), "line 2: JobID is"),
        ("JobID|Submit" * 500_000, "no column Start"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, content, want):
    with pytest.raises(GanglineError) as error:
        load("sacct", write(tmp_path / "x.txt", content))
    assert want in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 700


def test_cpu_jobs_need_a_world_with_cpus(tmp_path):
    with pytest.raises(GanglineError, match="expected resources=gpu_cpu"):
        read(tmp_path, *MONTH, cpu_jobs="keep")


def test_what_each_job_asked_for_is_kept_by_row(tmp_path):
    titles = (*TITLES, "Constraints")
    rows = [
        row("7_1", "08:00:00", "08:10:00", "09:10:00", Partition="gpu", QOS="high", Constraints="a100|h100"),
        row("7_2", "08:00:00", "08:10:00", "09:10:00", Partition="gpu", QOS="high", Constraints="a100|h100"),
        row("7_[3-9%2]", "08:00:00", "Unknown", "Unknown", State="PENDING", AllocTRES=""),
        row("8+0", "08:01:00", "08:10:00", "09:10:00", Partition="long,gpu"),
        row("8+1", "08:01:00", "08:10:00", "09:10:00", AllocTRES="gres/gpu=3,node=2", NNodes="2"),
    ]
    path = write(tmp_path / "m.txt", text(*rows, titles=titles))
    first, second, het = submissions(path, load("sacct", path))
    assert first == second == Submission(("gpu",), "high", "a100|h100", array="7", array_limit=2, whole_nodes=True)
    assert het == Submission(("long", "gpu"), "normal", whole_nodes=False)  # three GPUs on two nodes: nobody knows how


def test_times_as_slurm_writes_them(tmp_path):
    limits = {
        "7-0": 7 * 86_400,
        "1-12:00:00": 36 * 3600,
        "UNLIMITED": None,
        "00:20:00": 1200,
        "45": 2700,
        "Partition_Limit": None,
    }
    rows = [row(str(i), "08:00:00", "08:10:00", "09:10:00", Timelimit=limit) for i, limit in enumerate(limits)]
    trace = load("sacct", write(tmp_path / "m.txt", text(*rows)))
    assert trace.rows["claim_ms"].tolist() == [NEVER if s is None else s * 1000 for s in limits.values()]
