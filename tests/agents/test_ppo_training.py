"""`train.py agent=ppo` from outside: the same run folder, checkpoints, resume and comparison as any agent's."""

import json

import pytest

pytest.importorskip("sb3_contrib", reason="training needs gangline[train]")

from gangline.agents import ppo
from gangline.agents.training import main

TINY = (
    "agent=ppo",
    "scheduler=few",
    "agent.total_steps=1024",
    "agent.num_envs=8",
    "agent.steps_per_rollout=32",
    "evaluation.traces=1",
    "env.episode.horizon_h=12",
    "env.episode.warm_h=6",
)


def test_a_run_writes_what_every_run_writes_and_a_resumed_one_ends_the_same(tmp_path, capsys, monkeypatch):
    cloning = ("agent.clone=drf_greedy", "agent.clone_steps=256", "agent.paired=2")
    assert main([*TINY, *cloning, f"run_dir={tmp_path / 'whole'}"]) == 0
    printed = capsys.readouterr().out
    assert "trained 1,024 steps" in printed
    for name in ("model.zip", "config.json", "curve.csv", "learning.png", "frontier.png"):
        assert (tmp_path / "whole" / name).stat().st_size > 0, name
    assert list((tmp_path / "whole").glob("tensorboard*/events*"))

    after_updates = []
    improve = ppo.Learner.improve

    def interrupted(self):
        if len(after_updates) == 2:
            raise KeyboardInterrupt
        after_updates.append(self.num_steps)
        return improve(self)

    monkeypatch.setattr(ppo.Learner, "improve", interrupted)
    broken = tmp_path / "broken"
    assert main([*TINY, *cloning, "checkpoint_every_s=0", f"run_dir={broken}"]) == 130
    assert (broken / "checkpoint.pt").exists() and not (broken / "model.zip").exists()
    monkeypatch.undo()
    assert main([f"resume={broken}"]) == 0
    whole, resumed = (json.loads((tmp_path / f"{n}/results.json").read_text()) for n in ("whole", "broken"))
    assert resumed["runs"] == whole["runs"]
    assert (broken / "curve.csv").read_text() == (tmp_path / "whole/curve.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["agent.clone=drf"], "unknown scheduler 'drf'; known: "),
        (["agent.paired=3"], "agent.paired is 3, expected a divisor of num_envs 8"),
        (["agent.epochs=two"], "epochs is 'two', expected a whole number"),
        (["agent.hidden=0"], "agent.hidden is 0, expected a whole number of at least 1"),
        (["agent.who=nobody"], "unknown agent.who 'nobody'; known: cluster, roles, tenants"),
        (["agent.central_value=true"], "agent.central_value is true, expected false"),
        (["env.observation.blocks=[cluster, queue]"], "observation.blocks lacks 'tenants'"),
        (["env.time.mode=tick", "env.time.commands_per_tick=2"], "time.commands_per_tick is 2, expected 1"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(arguments, want, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main([*TINY, *arguments, f"run_dir={folder}"]) == 2
    error = capsys.readouterr().err
    assert want in error and error.count("\n") == 1
    assert not folder.exists()


OWN = """
from gangline.agents import ppo
from gangline.agents.ppo import load, save

def train(world, *, total_steps, seed, report, log_dir=None, keeper=None, boldness=1):
    assert boldness == 3
    return ppo.train(world, total_steps=total_steps, seed=seed, report=report, num_envs=4, steps_per_rollout=16)
"""


def test_an_agent_of_ones_own_is_a_module_with_three_functions(tmp_path, monkeypatch, capsys):
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "my_agent.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = ["agent=own", "agent.name=my_package.my_agent", "agent.total_steps=64", *TINY[1:2], *TINY[5:]]
    assert main([*run, "agent.boldness=3", f"run_dir={tmp_path / 'run'}"]) == 0
    assert "trained 64 steps" in capsys.readouterr().out
    assert main([*run, "agent.baldness=3", f"run_dir={tmp_path / 'other'}"]) == 2
    assert "did you mean 'boldness'?" in capsys.readouterr().err
    assert main(["agent=own", f"run_dir={tmp_path / 'other'}"]) == 2
    assert "agent.name is None, expected a module of yours" in capsys.readouterr().err
