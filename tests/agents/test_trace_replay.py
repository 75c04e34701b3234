"""`gangline replay --trace`: what it prints and draws, and what is wrong with other arguments."""

import re

import pytest

from agents.test_benchmark import busy_rows, trace, world
from gangline.__main__ import main

pytest.importorskip("matplotlib")


def test_one_run_prints_metrics_the_sum_of_gpu_time_a_rate_and_draws(tmp_path, capsys):
    file, cluster = trace(tmp_path, busy_rows()), world(tmp_path, busy_rows())
    picture = tmp_path / "replay.png"
    given = ["--trace", str(file), "--format", "philly", "--world", str(cluster), "--picture", str(picture)]
    assert main(["replay", *given, "--scheduler", "fair_reclaim", "rules.checkpoint_interval_min=10"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"unfinished_jobs +│ +0 │ jobs", printed)
    assert re.search(r"wait_p95_s +│ +[\d.]+ │ h +│ \d+ started", printed)
    assert re.search(r"GPU-h held [\d.]+ = kept [\d.]+", printed)
    assert re.search(r"\d+ jobs in [\d.]+ s, recorded: [\d,]+ jobs/s", printed)
    assert picture.stat().st_size > 20_000


def test_each_of_several_schedulers_has_its_picture(tmp_path, capsys):
    file, cluster = trace(tmp_path, busy_rows(20)), world(tmp_path, busy_rows(20))
    given = ["--trace", str(file), "--world", str(cluster), "--picture", str(tmp_path / "p.png")]
    assert main(["replay", *given, "--schedulers", "fifo,easy"]) == 0
    assert sorted(p.name for p in tmp_path.glob("*.png")) == ["p_easy.png", "p_fifo.png"]


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["--format", "phily"], "did you mean 'philly'?"),
        (["--format", "swf"], "says nothing of the cluster, expected --world"),
        (["--scheduler", "fofo"], "unknown scheduler 'fofo'"),
        (["episode.horizon=3"], "unknown key in episode"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys, arguments, want):
    file, cluster = trace(tmp_path, busy_rows(3)), world(tmp_path, busy_rows(3))
    more = [] if "swf" in arguments else ["--world", str(cluster)]
    assert main(["replay", "--trace", str(file), *more, *arguments]) == 2
    error = capsys.readouterr().err
    assert want in error and error.count("\n") == 1


def test_without_jobs_it_says_what_it_wants(capsys):
    assert main(["replay"]) == 2
    assert "expected --trace FILE" in capsys.readouterr().err
