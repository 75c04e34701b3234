"""Tenants and roles from outside: `train.py agent=mappo env=tenants_small`, with the run folder of any agent."""

import json

import numpy as np
import pytest

pytest.importorskip("sb3_contrib", reason="training needs gangline[train]")
pytest.importorskip("gangline.envs.multi_agent_env", reason="several agents need gangline[multiagent]")

from gangline.agents import mappo, ppo
from gangline.agents.batches import batch_of
from gangline.agents.evaluate import play, policy_of
from gangline.agents.training import main
from gangline.envs.config import load_world

TINY = (
    "env=tenants_small",
    "scheduler=few",
    "agent.total_steps=1024",
    "agent.num_envs=8",
    "agent.steps_per_rollout=32",
    "evaluation.traces=1",
    "env.episode.horizon_h=12",
    "env.episode.warm_h=6",
)
WORLD = load_world("tenants_small", **{"episode.horizon_h": 24, "episode.warm_h": 12})
QUICK = {"num_envs": 4, "steps_per_rollout": 32, "batch_size": 64, "epochs": 2}


@pytest.mark.parametrize("arguments", [["agent=ippo"], ["agent=mappo"], ["agent=ppo", "agent.who=roles"]])
def test_a_run_trains_and_is_compared_with_baselines(arguments, tmp_path, capsys):
    assert main([*TINY, *arguments, f"run_dir={tmp_path}"]) == 0
    assert "trained 1,024 steps" in capsys.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text())
    assert {r["scheduler"] for r in results["runs"]} == {"fifo", "sjf", "drf_greedy", "trained"}
    assert all(r["identity_holds"] for r in results["runs"])
    assert len({r["load"] for r in results["runs"]}) == 1  # all played the same jobs


@pytest.mark.parametrize("settings", [{"who": "tenants", "central_value": True}, {"who": "roles"}])
def test_a_run_that_is_taken_up_again_goes_on_exactly(settings):
    def learner():
        import torch

        torch.manual_seed(0)
        batch = batch_of(WORLD, 4, settings["who"])
        layout = ppo.Layout.of(batch.agent, every_kind=True, own_first=settings["who"] == "tenants")
        net = ppo.PolicyNet(layout, 8, **settings)
        return ppo.Learner(batch, net, ppo.Settings(steps_per_rollout=32, batch_size=64, epochs=1), seed=0)

    whole, first, second = learner(), learner(), learner()
    whole.begin()
    first.begin()
    for _ in range(4):
        whole.improve()
    for _ in range(2):
        first.improve()
    second.restore(first.state())
    second.begin()
    for _ in range(2):
        second.improve()
    for name, values in whole.net.state_dict().items():
        assert np.array_equal(values, second.net.state_dict()[name]), name


def test_a_tenants_value_and_choice_are_its_own_whatever_its_index():
    """Agents share one network: two tenants that see the same do the same."""
    model = mappo.train(WORLD, total_steps=128, seed=0, report=lambda *_: None, **QUICK)
    batch = batch_of(WORLD, 8, "tenants")
    for i in range(8):
        batch.reset_one(i, i, {})
    batch.begin(0, 8)
    seen, masks = (
        batch.observations.reshape(-1, batch.observations.shape[2]),
        batch.masks.reshape(-1, batch.masks.shape[2]),
    )
    order = np.random.default_rng(0).permutation(len(seen))
    actions, _ = model.predict(seen, action_masks=masks)
    moved, _ = model.predict(seen[order], action_masks=masks[order])
    assert np.array_equal(moved, actions[order])
    assert np.take_along_axis(masks, actions[:, None], axis=1).all()


def test_only_the_role_that_has_the_turn_decides():
    batch = batch_of(WORLD, 4, "roles")
    for i in range(4):
        batch.reset_one(i, i, {})
    batch.begin(0, 4)
    rng = np.random.default_rng(0)
    turns = set()
    for _ in range(60):
        deciding = batch.masks.sum(axis=2) > 1
        idle = np.ones_like(deciding)
        idle[np.arange(4), batch.turns] = False
        assert not (deciding & idle).any()
        turns |= set(batch.turns.tolist())
        batch.actions[:] = (rng.random(batch.masks.shape) * batch.masks).argmax(axis=2)
        batch.step(0, 4)
        assert (batch.rewards == batch.rewards[:, :1]).all()
        if (batch.terminated | batch.truncated).any():
            break
    assert turns == {0, 1, 2}


def test_a_model_of_tenants_plays_the_same_episode_again_the_same(tmp_path):
    model = ppo.train(WORLD, total_steps=128, seed=0, report=lambda *_: None, who="tenants", **QUICK)
    ppo.save(model, tmp_path / "model.zip")
    first = play(WORLD, policy_of(model), 5, {})
    again = play(WORLD, policy_of(ppo.load(tmp_path / "model.zip")), 5, {})
    assert first.values == again.values
