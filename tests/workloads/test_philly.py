"""The Philly CSV: what the public file holds, and what happens to each kind of dirty row."""

import csv
from datetime import UTC, datetime

import numpy as np
import pytest

from gangline.envs.core.types import NEVER, Outcome
from gangline.envs.errors import GanglineError
from gangline.envs.workloads.traces import load, philly
from gangline.envs.workloads.windows import WINDOWS, offered_load, window

from .files import data, write

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"
CLEAN = HEADER + (
    "2017-10-09 07:01:55,66.0,1,66.0,blue\n"
    "2017-10-09 06:00:00,3600.0,16,57600.0,red\n"
    "2017-10-09 07:01:55,66.0,1,66.0,blue\n"
    "2017-10-09 08:00:00,10.5,12,126.0,red\n"
    "\n"
)


@pytest.fixture(scope="module")
def real():
    return load("philly", data("philly.csv.gz"))


def test_the_public_file_has_the_known_number_of_rows_duplicates_and_steps_back(real):
    assert real.report["rows_read"] == real.report["rows_kept"] == real.num_jobs == 82_247
    assert real.report["duplicate_rows"] == 65
    assert real.report["out_of_order"] == 44_878
    assert real.report["gpu_time_mismatch"] == 0
    assert real.report["repaired_zero_duration"] == 0
    assert len(real.tenants) == 15


def test_the_public_file_holds_978_078_gpu_hours(real):
    gpu_ms = int((real.gpus() * real.rows["work_ms"]).sum())
    assert gpu_ms // 3_600_000_000 == 978_078
    assert int(real.rows["work_ms"].max()) == 4_628_226_000
    assert sorted(np.unique(real.gpus() // 1000).tolist()) == [1, 2, 4, 8, 12, 16, 24, 32, 64, 128]


def test_the_reference_month_has_38_463_jobs_without_duplicates_and_trivial_tenants_and_offers_568_gpus():
    trace = load("philly", data("philly.csv.gz"), drop_duplicates=True, trivial_tenants="drop")
    start_ms, end_ms = window(trace, ("2017-10-09", "2017-11-06"))
    submit = trace.rows["submit_ms"]
    assert int(((submit >= start_ms) & (submit < end_ms)).sum()) == 38_463
    assert offered_load(trace, 1000, start_ms, end_ms) == pytest.approx(568, abs=0.5)
    assert trace.report["dropped_duplicate"] == 65
    assert trace.report["dropped_trivial_tenant"] == 18
    assert len(trace.tenants) == 11


@pytest.mark.parametrize(
    ("name", "want_jobs", "want_gpus"),
    [("train", 46_070, 600.4), ("validate", 10_196, 428.6), ("test", 17_908, 303.8)],
)
def test_the_named_windows_hold_these_jobs_and_offer_these_gpus(real, name, want_jobs, want_gpus):
    start_ms, end_ms = window(real, name)
    submit = real.rows["submit_ms"]
    assert int(((submit >= start_ms) & (submit < end_ms)).sum()) == want_jobs
    assert offered_load(real, 1000, start_ms, end_ms) == pytest.approx(want_gpus, abs=0.05)
    first = datetime.fromtimestamp((start_ms + real.report["t0_epoch_ms"]) / 1000, UTC)
    assert first.isoformat().startswith(WINDOWS[name][0] + "T00:00:00")


def test_reading_is_exact_and_keeps_the_row_of_the_file(real):
    # first two rows of the file: 2017-10-09 07:01:55 66 s 1 GPU 11cb48; 2017-10-09 06:13:03 2951 s 1 GPU 6214e9
    by_source = {int(s): i for i, s in enumerate(real.rows["source_row"])}
    first, second = real.rows[by_source[0]], real.rows[by_source[1]]
    assert first["submit_ms"] - second["submit_ms"] == 48 * 60_000 + 52_000
    assert (first["work_ms"], second["work_ms"]) == (66_000, 2_951_000)
    assert [real.tenants[j["tenant"]] for j in (first, second)] == ["11cb48", "6214e9"]


def test_the_known_nodes_per_tenant_are_those_of_the_data_file():
    with open(data("philly_vc_nodes.csv"), encoding="utf-8") as file:
        want = {row["vc"]: int(row["node num"]) for row in csv.DictReader(file)}
    assert want == philly.NODES_BY_TENANT


def test_jobs_of_a_clean_file_are_sorted_and_start_at_zero(tmp_path):
    trace = philly.load(write(tmp_path / "philly.csv", CLEAN))
    assert trace.rows["submit_ms"].tolist() == [0, 3_715_000, 3_715_000, 7_200_000]
    assert trace.rows["source_row"].tolist() == [1, 0, 2, 3]  # stable: equal times stay in file order
    assert trace.rows["work_ms"].tolist() == [3_600_000, 66_000, 66_000, 10_500]
    assert trace.gpus().tolist() == [16_000, 1000, 1000, 12_000]
    assert [trace.tenants[t] for t in trace.rows["tenant"]] == ["red", "blue", "blue", "red"]
    assert (trace.rows["claim_ms"] == NEVER).all()
    assert (trace.rows["outcome"] == Outcome.DONE).all()
    assert trace.report["t0_epoch_ms"] == int(datetime(2017, 10, 9, 6, tzinfo=UTC).timestamp() * 1000)


def test_16_gpus_are_two_pods_of_8_and_12_gpus_are_8_and_4(tmp_path):
    trace = philly.load(write(tmp_path / "philly.csv", CLEAN))
    assert _pods(trace, 0) == [(2, 8000)]
    assert _pods(trace, 3) == [(1, 8000), (1, 4000)]
    assert trace.rows["min_member"].tolist() == [2, 1, 1, 2]
    small_nodes = philly.load(tmp_path / "philly.csv", gpus_per_pod=4)
    assert _pods(small_nodes, 0) == [(4, 4000)]


@pytest.mark.parametrize("name", ["philly.csv", "philly.csv.gz"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [False, True])
def test_packed_files_windows_line_ends_and_byte_order_marks_make_no_difference(tmp_path, name, newline, bom):
    want = philly.load(write(tmp_path / "plain.csv", CLEAN))
    trace = philly.load(write(tmp_path / name, CLEAN, newline=newline, bom=bom))
    assert (trace.rows == want.rows).all()
    assert trace.report == want.report


def test_duplicates_are_counted_and_dropped_only_on_demand(tmp_path):
    path = write(tmp_path / "philly.csv", CLEAN)
    kept, dropped = philly.load(path), philly.load(path, drop_duplicates=True)
    assert (kept.num_jobs, kept.report["duplicate_rows"]) == (4, 1)
    assert (dropped.num_jobs, dropped.report["dropped_duplicate"]) == (3, 1)


@pytest.mark.parametrize(
    ("oversized", "want_gpus", "want_counts"),
    [
        ("reject", [1000, 1000], {"oversized": 2, "dropped_oversized": 2, "rows_kept": 2}),
        ("cap", [8000, 1000, 1000, 8000], {"oversized": 2, "repaired_oversized": 2, "rows_kept": 4}),
        ("keep", [16_000, 1000, 1000, 12_000], {"oversized": 2, "rows_kept": 4}),
    ],
)
def test_jobs_larger_than_the_cluster_are_dropped_capped_or_left_to_the_simulator(
    tmp_path, oversized, want_gpus, want_counts
):
    trace = philly.load(write(tmp_path / "philly.csv", CLEAN), oversized=oversized, capacity_gpus=8)
    assert trace.gpus().tolist() == want_gpus
    assert want_counts.items() <= trace.report.items()


def test_time_begins_with_the_first_job_that_is_kept(tmp_path):
    trace = philly.load(write(tmp_path / "philly.csv", CLEAN), capacity_gpus=8)  # drops the 6:00 job
    assert trace.rows["submit_ms"][0] == 0
    assert trace.report["t0_epoch_ms"] == int(datetime(2017, 10, 9, 7, 1, 55, tzinfo=UTC).timestamp() * 1000)


def test_trivial_tenants_are_kept_merged_or_dropped(tmp_path):
    text = CLEAN.strip() + "\n2017-10-09 09:00:00,5,1,5,23dbec\n2017-10-09 09:00:01,5,1,5,51b7ef\n"
    path = write(tmp_path / "philly.csv", text)
    assert philly.load(path).tenants == ("23dbec", "51b7ef", "blue", "red")
    merged = philly.load(path, trivial_tenants="merge")
    assert merged.tenants == ("blue", "other", "red")
    assert merged.report["merged_trivial_tenant"] == 2
    dropped = philly.load(path, trivial_tenants="drop")
    assert dropped.tenants == ("blue", "red")
    assert dropped.report["dropped_trivial_tenant"] == 2


def test_a_job_of_no_length_is_given_a_second_or_dropped(tmp_path):
    path = write(tmp_path / "philly.csv", HEADER + "2017-10-09 07:00:00,0,1,0,red\n2017-10-09 08:00:00,7,1,7,red\n")
    repaired = philly.load(path)
    assert repaired.rows["work_ms"].tolist() == [1000, 7000]
    assert repaired.report["repaired_zero_duration"] == 1
    assert philly.load(path, zero_duration="drop").report["dropped_zero_duration"] == 1


@pytest.mark.parametrize(
    ("row", "want"),
    [
        ("2017-10-09 07:00:00,5,-1,5,red", "philly trace row 2: num_gpus is -1, expected >= 1"),
        ("2017-10-09 07:00:00,5,0,5,red", "philly trace row 2: num_gpus is 0, expected >= 1"),
        ("2017-10-09 07:00:00,5,1.5,5,red", "philly trace row 2: num_gpus is 1.5, expected a whole number"),
        ("2017-10-09 07:00:00,5,many,5,red", "philly trace row 2: num_gpus is many, expected a whole number"),
        ("2017-10-09 07:00:00,-3,1,5,red", "philly trace row 2: duration is -3, expected >= 0"),
        ("2017-10-09 07:00:00,,1,5,red", "philly trace row 2: duration is empty, expected a number"),
        ("2017-10-09 07:00:00,inf,1,5,red", "philly trace row 2: duration is inf, expected a number"),
        ("2017-10-09 07:00:00,nan,1,5,red", "philly trace row 2: duration is nan, expected a number"),
        ("2017/10/09,5,1,5,red", "philly trace row 2: timestamp is 2017/10/09, expected YYYY-MM-DD HH:MM:SS"),
        ("2017-10-09 07:00:00,5,1,5,", "philly trace row 2: cluster is empty, expected the name of a virtual cluster"),
    ],
)
def test_a_value_that_makes_no_sense_is_named_with_its_row(tmp_path, row, want):
    path = write(tmp_path / "philly.csv", HEADER + "2017-10-09 07:01:55,66.0,1,66.0,blue\n" + row + "\n")
    with pytest.raises(GanglineError) as error:
        philly.load(path)
    assert str(error.value) == want


@pytest.mark.parametrize(
    ("name", "text", "want"),
    [
        ("philly.csv", "timestamp,duration,gpus,cluster\n", "no column 'num_gpus'; expected timestamp"),
        ("philly.csv", "", "is empty, expected the columns timestamp"),
        ("philly.csv", HEADER, "no job is left of 0 rows"),
    ],
)
def test_a_file_of_the_wrong_shape_is_refused_in_one_line(tmp_path, name, text, want):
    with pytest.raises(GanglineError) as error:
        philly.load(write(tmp_path / name, text))
    assert want in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_a_false_gz_and_other_encodings_are_refused_in_one_line(tmp_path):
    with pytest.raises(GanglineError, match="no such file"):
        philly.load(tmp_path / "nowhere.csv")
    (tmp_path / "false.csv.gz").write_text(CLEAN)
    with pytest.raises(GanglineError, match="cannot be unpacked"):
        philly.load(tmp_path / "false.csv.gz")
    (tmp_path / "latin.csv").write_bytes(HEADER.encode() + "2017-10-09 07:00:00,5,1,5,réd".encode("latin-1"))
    with pytest.raises(GanglineError, match="is not UTF-8"):
        philly.load(tmp_path / "latin.csv")


def test_a_misspelt_format_or_option_is_answered_with_the_nearest_one():
    with pytest.raises(GanglineError, match=r"'phily'; known: philly, sacct, swf; did you mean 'philly'"):
        load("phily", "x.csv")
    with pytest.raises(
        GanglineError, match=r"unknown option of the philly loader 'oversize'.*did you mean 'oversized'"
    ):
        load("philly", "x.csv", oversize="cap")
    with pytest.raises(GanglineError, match=r"unknown value of oversized 'crop'; known: cap, keep, reject"):
        load("philly", "x.csv", oversized="crop")
    with pytest.raises(GanglineError, match="expected capacity_gpus"):
        load("philly", "x.csv", oversized="cap")


def _pods(trace, job):
    """(count, milli-GPU of each) of a job's pod sets."""
    first, num = trace.rows["first_pod_set"][job], trace.rows["num_pod_sets"][job]
    return [(int(p["count"]), int(p["request"][0])) for p in trace.pod_sets[first : first + num]]
