"""Trained agents in a benchmark: seeds of a run are one group, recorded like all, refused where they do not fit."""

import json

import pytest

pytest.importorskip("sb3_contrib", reason="training needs gangline[train]")
pytest.importorskip("pyarrow")

from test_train import TINY

from gangline.__main__ import main
from gangline.agents import results, training


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """Two agents of a few hundred steps."""
    folder = tmp_path_factory.mktemp("runs") / "two_seeds"
    assert training.main([*TINY, "seeds=2", f"run_dir={folder}"]) == 0
    return folder


def test_seeds_are_repetitions_of_one_group(run_dir, tmp_path, capsys):
    given = ["--schedulers", "fifo", "--policies", str(run_dir), "--loads", ".8", "--traces", "2", "--workers", "1"]
    out = tmp_path / "out"
    world = ["--world", "small", "--set", "episode.horizon_h=12", "episode.warm_h=6"]
    assert main(["benchmark", *world, *given, "--out", str(out)]) == 0
    comparison = results.read(out)
    assert comparison.groups == ["fifo", "two_seeds"] and len(comparison.runs) == 6
    assert all(run["report"]["is_recorded"] and run["report"]["identity_holds"] for run in comparison.runs)
    assert len({run["report"]["counts"]["jobs"] for run in comparison.runs if run["trace"] == 0}) == 1
    assert comparison.interval(0.8, "score", "two_seeds").count == 4
    assert comparison.interval(0.8, "score", "fifo").count == 2
    about = json.loads((out / "benchmark.json").read_text())
    assert {"two_seeds seed 0", "two_seeds seed 1"} <= set(about["hashes"]) and "torch" in about["versions"]
    assert main(["report", str(out)]) == 0


def test_a_policy_of_another_world_is_named_and_the_others_go_on(run_dir, tmp_path, capsys):
    given = ["--schedulers", "fifo", "--policies", str(run_dir), "--traces", "1", "--workers", "1"]
    assert main(["benchmark", "--world", "toy", *given, "--out", str(tmp_path / "out")]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "was trained on observations of shape" in printed and "INCOMPLETE: 1 of 3 runs" in printed


@pytest.mark.parametrize("arguments", [["agent=ppo"], ["agent=mappo"], ["agent=ppo", "agent.who=roles"]])
def test_our_own_agents_tenants_and_roles_take_part(arguments, tmp_path, capsys):
    folder, out = tmp_path / "mine", tmp_path / "out"
    given = [*TINY, "agent.total_steps=256", *arguments, "evaluation.traces=1", f"run_dir={folder}"]
    assert training.main(given) == 0
    world = ["--world", "small", "--set", "episode.horizon_h=12", "episode.warm_h=6"]
    asked = ["--schedulers", "fifo", "--policies", str(folder), "--loads", ".8", "--traces", "1", "--workers", "1"]
    assert main(["benchmark", *world, *asked, "--out", str(out)]) == 0
    comparison = results.read(out)
    assert comparison.groups == ["fifo", "mine"] and len(comparison.runs) == 2
    assert all(run["report"]["identity_holds"] for run in comparison.runs)
    assert len({run["report"]["counts"]["jobs"] for run in comparison.runs}) == 1
