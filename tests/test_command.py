"""The `gangline` command: what it prints, and that bad input is one line and exit code 2."""

import json

import pytest

from gangline.__main__ import main
from gangline.baselines.base import scheduler_names
from gangline.envs.config import preset_names


def test_worlds_and_schedulers_are_listed(capsys):
    assert main(["worlds"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in preset_names())
    assert main(["schedulers"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in scheduler_names())


def test_a_picture_is_written(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="pictures need gangline[train]")
    assert main(["picture", "--world", "toy", "--steps", "30", "--out", str(tmp_path / "p.png")]) == 0
    assert (tmp_path / "p.png").stat().st_size > 5_000


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["picture", "--world", "smal"], "did you mean 'small'"),
        (["picture", "time.tick=3"], "unknown key in time 'tick'"),
        (["rewards", "--traces", "0"], "traces is 0, expected at least 1"),
        (["picture", "nonsense"], "expected key=value"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, want, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert want in error and error.count("\n") == 1


def test_speed_prints_rows_with_musts_and_the_machine_as_json(capsys):
    assert main(["speed", "--json", "--no-compile", "--seconds", "0.02"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in found["rows"]}
    assert {"name", "value", "unit", "must", "aim", "note"} == set(found["rows"][0])
    assert rows["step, 8 nodes x 8 GPUs, 800 jobs"]["must"] == 60_000
    assert all(row["value"] > 0 for row in found["rows"])
    assert {"processor", "cores", "python", "numba"} <= set(found["machine"])


def test_speed_replays_a_given_trace_at_one_and_four_times_the_jobs(tmp_path):
    from gangline.agents import speed

    trace = speed._eight_hundred_jobs(largest=8)
    again = speed.repeated(trace, 3, 10**9)
    assert again.num_jobs == 3 * trace.num_jobs
    gaps = again.rows["submit_ms"][trace.num_jobs :] - again.rows["submit_ms"][: -trace.num_jobs]
    assert (gaps == 10**9).all()


def test_speed_of_a_trace_that_is_not_there_is_one_line(capsys):
    assert main(["speed", "--trace", "nowhere.csv", "--no-compile", "--seconds", "0.01"]) == 2
    assert "nowhere.csv" in capsys.readouterr().err
    assert main(["speed", "--seconds", "0"]) == 2
    assert capsys.readouterr().err == "gangline: seconds is 0.0, expected more than 0\n"
