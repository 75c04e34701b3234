"""`gangline benchmark` from end to end on tiny worlds: same bytes, kills, half of it, nothing in it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from gangline.__main__ import main
from gangline.agents import figures, html_report, results
from gangline.agents.private_clusters import sharing_incentive

TENANTS = ("<script>alert(1)</script>", "a & b", "plain")
WORLD = """
cluster: {nodes: [{count: 2, gpus: 4}]}
workload: {name: philly, path: %s, load: null, claims: exact}
episode: {horizon_h: %s, warm_h: 1, random_start: false}
"""


def trace(folder: Path, rows: list[tuple[str, float, int, str]]) -> Path:
    """A Philly file: (time, seconds, GPUs, tenant)."""
    lines = ["timestamp,duration,num_gpus,gpu_time,cluster"]
    lines += [f'2017-10-09 {at},{seconds},{gpus},{seconds * gpus},"{tenant}"' for at, seconds, gpus, tenant in rows]
    file = folder / "philly.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def busy_rows(count: int = 60) -> list[tuple[str, float, int, str]]:
    """Six hours of jobs for 8 GPUs."""
    rng = random.Random(0)
    rows = []
    for _ in range(count):
        minute = rng.randrange(6 * 60)
        at = f"{minute // 60:02}:{minute % 60:02}:00"
        rows.append((at, rng.choice([600, 1800, 7200]), rng.choice([1, 1, 2, 4, 8]), rng.choice(TENANTS)))
    return rows


def world(folder: Path, rows: list[tuple[str, float, int, str]], horizon_h: float = 6) -> Path:
    """A YAML file of a world of 8 GPUs with these jobs."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "world.yaml"
    file.write_text(WORLD % (trace(folder, rows), horizon_h), encoding="utf-8")
    return file


def benchmark(folder: Path, place: Path, *more: str) -> int:
    given = ["--world", str(folder / "world.yaml"), "--schedulers", "fifo,easy,fair_reclaim", "--out", str(place)]
    return main(["benchmark", *given, *(("--workers", "1") if "--workers" not in more else ()), *more])


def bytes_of(place: Path) -> dict[str, bytes]:
    """Every file of a benchmark but the wall times."""
    files = [file for file in place.rglob("*") if file.is_file() and "timings" not in file.parts]
    return {file.relative_to(place).as_posix(): file.read_bytes() for file in sorted(files)}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a world and a finished benchmark in `out`."""
    folder = tmp_path_factory.mktemp("benchmark")
    world(folder, busy_rows())
    assert benchmark(folder, folder / "out", "--traces", "3") == 0
    return folder


def test_every_run_adds_up_and_misses_nothing(played: Path) -> None:
    comparison = results.read(played / "out")
    assert len(comparison.runs) == 9 and comparison.missing == 0
    for run in comparison.runs:
        report = run["report"]
        assert report["identity_holds"] and report["is_recorded"]
        parts = {name: value for name, value in report["gpu_time"].items() if name != "held"}
        assert sum(parts.values()) == report["gpu_time"]["held"]
        assert run["values"]["sharing_incentive"] is not None
    assert {run["group"] for run in comparison.runs} == {"fifo", "easy", "fair_reclaim"}
    jobs = [run["report"]["counts"]["jobs"] for run in comparison.runs]
    assert len(set(jobs)) == 1 and jobs[0] > 20  # the same jobs for all


def test_two_runs_give_the_same_bytes_on_one_core_and_on_two(played: Path) -> None:
    assert benchmark(played, played / "again", "--traces", "3", "--workers", "2") == 0
    first, second = bytes_of(played / "out"), bytes_of(played / "again")
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_results_name_settings_versions_hashes_and_units(played: Path) -> None:
    content = json.loads((played / "out" / "results.json").read_text())
    assert content["complete"] and content["runs"] == 9
    assert set(content["hashes"]) == {"world", "code", "workload"} and len(content["hashes"]["workload"]) == 64
    assert {"numpy", "numba", "gangline", "python"} <= set(content["versions"])
    entry = content["loads_compared"][0]["groups"]["easy"]["productive_utilization"]
    assert entry["low"] <= entry["iqm"] <= entry["high"] and entry["count"] == 3
    assert content["units"]["wait_p95_s"] == {"unit": "s", "better": "lower", "headline": False}
    page = (played / "out" / "results.md").read_text()
    assert page.count("\n| ") == 4 and "| easy | " in page and "mean wait (h)" in page
    assert page.startswith("```bash\ngangline benchmark --world ") and "--traces 3 --seed 0" in page.splitlines()[1]
    import pyarrow.parquet as pq

    table = pq.read_table(played / "out" / "results.parquet").to_pandas()
    assert len(table) == 9 * len(results.UNITS)
    row = table[(table.metric == "over_share") & (table.group == "easy") & (table.trace == 0)]
    assert row.value.item() == next(
        r["values"]["over_share"] for r in results.read(played / "out").runs if r["group"] == "easy" and r["trace"] == 0
    )


def test_it_goes_on_where_it_was_and_refuses_another(
    played: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert benchmark(played, played / "out", "--traces", "3") == 0
    assert "9 of them" not in capsys.readouterr().out.splitlines()[0]
    for more, want in (
        (["episode.horizon_h=5"], "another world"),
        (["--drain-h", "1"], "another drain_h"),
        (["--baseline", "eazy"], "did you mean 'easy'?"),
        (["--traces", "0"], "expected at least 1"),
        (["--loads", "none"], "expected numbers with commas"),
        (["--policies", "nowhere"], "expected the folder of a training run"),
    ):
        assert benchmark(played, played / "out", *more) == 2
        error = capsys.readouterr().err
        assert want in error and error.count("\n") == 1, error
    (played / "other").mkdir(exist_ok=True)
    (played / "other" / "thesis.txt").write_text("my own")
    assert benchmark(played, played / "other") == 2
    assert "choose another --out" in capsys.readouterr().err


def test_half_a_benchmark_says_so(played: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import shutil

    half = tmp_path / "half"
    shutil.copytree(played / "out", half)
    for file in [*half.glob("runs/*/2/*.json"), *half.glob("runs/*/1/easy.json")]:
        file.unlink()
    comparison = results.read(half)
    assert comparison.missing == 4 and "INCOMPLETE: 5 of 9 runs" in comparison.status()
    assert main(["report", str(half)]) == 0
    assert "INCOMPLETE" in capsys.readouterr().out
    data = html_report.data_of(comparison)
    assert not data["complete"] and "INCOMPLETE" in data["status"]
    assert list(figures.write_all(comparison, tmp_path / "figures", "png"))
    for file in half.glob("runs/**/*.json"):
        file.unlink()
    assert main(["report", str(half)]) == 0
    assert main(["figures", str(half)]) == 2
    assert "holds no run yet" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("rows", "horizon_h"),
    [
        ([("00:30:00", 600, 1, "plain")], 6),
        ([("00:30:00", 600, 1, TENANTS[0]), ("05:00:00", 90_000, 8, TENANTS[0])], 6),
        ([("05:00:00", 90_000, 4, "plain")], 6),
        ([("05:00:00", 90_000, 8, "plain")], 6),
        ([("00:30:00", 600, 1, "plain"), ("23:00:00", 600, 1, "plain")], 0.001),
    ],
    ids=["one job", "one tenant", "no job ends", "every job is rejected", "no job in the window"],
)
def test_next_to_nothing_is_a_sensible_report(
    tmp_path: Path, rows: list[tuple[str, float, int, str]], horizon_h: float
) -> None:
    world(tmp_path, rows, horizon_h)
    assert benchmark(tmp_path, tmp_path / "out", "--traces", "1", "--drain-h", "0") == 0
    comparison = results.read(tmp_path / "out")
    for run in comparison.runs:
        assert run["report"]["identity_holds"]
        for name, value in run["values"].items():
            assert value is None or abs(value) < 1e12, name
    text = (tmp_path / "out" / "results.json").read_text() + json.dumps(html_report.data_of(comparison))
    assert "NaN" not in text and "Infinity" not in text
    assert main(["report", str(tmp_path / "out")]) == 0
    assert main(["figures", str(tmp_path / "out"), "--format", "png"]) == 0


def test_a_horizon_of_nothing_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world(tmp_path, busy_rows(), 0)
    assert benchmark(tmp_path, tmp_path / "out") == 2
    assert "episode.horizon_h is 0" in capsys.readouterr().err


def test_what_users_call_things_stays_text(played: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in (played / "out").glob("runs/*/0/*.parquet"):
        table = pq.read_table(file)
        names = ["</script><script>alert(1)</script>"] * table.num_rows
        pq.write_table(table.set_column(table.schema.get_field_index("job"), "job", pa.array(names)), file)
    assert main(["report", str(played / "out"), "--out", str(played / "hostile.html")]) == 0
    page = (played / "hostile.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page and "</script><script>a" not in page
    assert page.count("</script>") == 3 and "\\u003cscript\\u003ealert(1)" in page
    assert "http://" not in page.split('<script id="data"')[0] and len(page) < 10_000_000


def test_figures_are_the_same_bytes_twice(played: Path, tmp_path: Path) -> None:
    comparison = results.read(played / "out")
    for folder in ("a", "b"):
        assert len(list(figures.write_all(comparison, tmp_path / folder, "pdf"))) >= 7
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")


@pytest.mark.slow
def test_killed_twenty_times_it_ends_with_the_same_bytes(played: Path, tmp_path: Path) -> None:
    """kill -9 at random moments: while it starts, plays, or writes. Some 1.5 s a try, mostly Python's start."""
    command = [sys.executable, "-m", "gangline", "benchmark", "--world", str(played / "world.yaml"), "--workers", "1"]
    command += ["--schedulers", "fifo,easy,fair_reclaim", "--traces", "12", "--out", str(tmp_path / "killed")]
    rng = random.Random(4)
    kills = 0
    for _ in range(20):
        before = count_of(tmp_path / "killed")
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wanted, give_up = before + rng.randrange(0, 3), time.monotonic() + 20
        while process.poll() is None and count_of(tmp_path / "killed") < wanted and time.monotonic() < give_up:
            time.sleep(0.002)
        time.sleep(rng.random() * (0.02 if wanted > before else 1.0))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 15  # the others had ended before
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ)
    assert benchmark(played, tmp_path / "whole", "--traces", "12") == 0
    killed, whole = bytes_of(tmp_path / "killed"), bytes_of(tmp_path / "whole")
    assert killed.keys() == whole.keys()
    assert [name for name in whole if killed[name] != whole[name]] == []


def count_of(place: Path) -> int:
    """Runs that are there."""
    return sum(1 for _ in place.glob("runs/*/*/*.json"))


def test_the_sharing_incentive_counts_tenants_that_are_no_worse_off() -> None:
    def shared(**times: float | None) -> dict[str, dict[str, Any]]:
        return {name: {"jct_so_far_weighted_s": time} for name, time in times.items()}

    share, worst = sharing_incentive(
        shared(a=50.0, b=300.0, c=9.0, d=None), {"a": 100.0, "b": 100.0, "c": float("inf"), "d": None}
    )
    assert (share, worst) == (2 / 3, 3.0)
    assert sharing_incentive({}, {}) == (None, None)
