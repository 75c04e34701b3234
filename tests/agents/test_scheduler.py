"""A trained policy at the Python door does what it does in its environment, for one agent, tenants and roles."""

import pytest

torch = pytest.importorskip("torch", reason="agents need gangline[train]")
pytest.importorskip("gangline.envs.multi_agent_env", reason="several agents need gangline[multiagent]")

from gangline.agents import ppo
from gangline.agents.batches import batch_of
from gangline.agents.evaluate import play, policy_of
from gangline.agents.kernel_net import Layout
from gangline.agents.scheduler import PolicyScheduler, build
from gangline.baselines import base
from gangline.envs.config import load_world
from gangline.envs.core.spec import Command

WORLD = load_world(
    "small", **{"episode.horizon_h": 36, "episode.warm_h": 24, "action.may_reserve": True, "action.min_run_h": 0.25}
)


def model_that_acts(who):
    """A network with random preferences that mostly acts, whatever it is about."""
    torch.manual_seed(1)
    batch = batch_of(WORLD, 1, who)
    net = ppo.PolicyNet(Layout.of(batch.agent, every_kind=True, own_first=who == "tenants"), 8, who=who)
    for parameter in net.kernel.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    ways = net.kernel.kind[-1].bias.data  # wait, place, make room, ...
    ways[0], ways[2] = -1.0, 2.0
    return ppo.Model(net, 0, batch.batch.agents if who != "tenants" else batch.agents)


@pytest.mark.parametrize("who", ["cluster", "tenants", "roles"])
def test_the_door_and_the_environment_end_in_the_same_state(who, tmp_path):
    model = model_that_acts(who)
    ppo.save(model, tmp_path / "model.zip")
    stops = 0
    for trace in (3, 4):
        want = play(WORLD, policy_of(model), trace, {})
        got = play(WORLD, base.build("gangline.agents.scheduler", path=str(tmp_path / "model.zip")), trace, {})
        assert got.values == want.values
        assert got.counts == want.counts
        assert want.counts["started"] > 20
        stops += want.values["preemptions_per_1000_jobs"]
    assert stops > 0  # so that making room, or giving back, was among it


def test_it_answers_with_one_transaction_at_a_time_by_names():
    scheduler = PolicyScheduler(model_that_acts("cluster"))
    asked = []

    class Listening:
        name = "listening"

        def begin(self, world, begin_ms, end_ms):
            scheduler.begin(world, begin_ms, end_ms)

        def decide(self, view):
            asked.append(scheduler.decide(view))
            return asked[-1]

    play(WORLD, Listening(), 3, {})
    spoken = [a for a in asked if a]
    assert spoken and len(spoken) < len(asked)
    assert all(len(a) == 1 and all(isinstance(c, Command) for c in a[0]) for a in spoken)


def test_a_python_scheduler_that_asks_for_the_impossible_for_ever_is_stopped():
    class Stubborn:
        name = "stubborn"

        def decide(self, view):
            return [[Command(op="place", job="job-0", node="nowhere")]]

    with pytest.raises(RuntimeError, match=r"'stubborn' gave .* of which none applies"):
        play(WORLD, Stubborn(), 3, {})


def test_a_path_to_nothing_is_one_line():
    with pytest.raises(ValueError, match="is no model"):
        build("nowhere/model.zip")
