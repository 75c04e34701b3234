"""The `gangline` command: what it prints, and that bad input is one line and exit code 2."""

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
