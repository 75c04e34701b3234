"""RLlib on a Ray cluster of this machine: one agent and tenants, stopped and resumed, and back as a Scheduler."""

import pytest

ray = pytest.importorskip("ray", reason="ray is not installed: it has an environment of its own (docs/rllib.md)")

from gangline.agents import rllib
from gangline.agents.evaluate import play, policy_of
from gangline.agents.keeper import Keeper, Stopped
from gangline.agents.scheduler import PolicyScheduler
from gangline.agents.training import main
from gangline.envs.config import load_world
from gangline.envs.errors import GanglineError

TICKS = {"time.mode": "tick", "time.tick_s": 600.0, "episode.horizon_h": 24, "episode.warm_h": 0}
FEW = {"steps_per_update": 400, "batch_size": 200, "epochs": 2, "num_envs": 2, "num_env_runners": 0}


@pytest.fixture(scope="module", autouse=True)
def _ray_of_this_machine():
    rllib._connect(None, 1)
    yield
    ray.shutdown()


def ignore(steps, score):
    pass


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("who", ["cluster", "tenants"])
def test_it_trains_is_stopped_goes_on_and_comes_back_as_a_scheduler(who, tmp_path):
    world = load_world("small", **TICKS)
    told = []
    with pytest.raises(Stopped):
        rllib.train(world, total_steps=5000, seed=0, report=ignore, keeper=Keeper(tmp_path, stop=True), who=who, **FEW)
    keeper = Keeper(tmp_path, resume=True)
    model = rllib.train(
        world, total_steps=800, seed=0, report=lambda steps, _: told.append(steps), keeper=keeper, who=who, **FEW
    )
    assert keeper.steps_before >= 400
    assert told and told[0] > keeper.steps_before and model.num_timesteps >= 800
    rllib.save(model, tmp_path / "model.zip")
    again = rllib.load(tmp_path / "model.zip")
    event_world = load_world("small", **{"episode.horizon_h": 24, "episode.warm_h": 0})
    by_step = play(event_world, policy_of(again), 7, {})
    by_door = play(event_world, PolicyScheduler(again), 7, {})
    assert by_step.counts["finished"] == by_door.counts["finished"] > 0


@pytest.mark.filterwarnings("ignore")
def test_the_command_trains_with_env_runners_of_their_own(tmp_path, capfd):
    arguments = ["engine=rllib", "num_env_runners=1", "env=small", "env.time.mode=tick", "env.episode.horizon_h=24"]
    few = ["agent.total_steps=400", "agent.steps_per_update=400", "agent.batch_size=200", "evaluation.traces=1"]
    assert main([*arguments, *few, f"run_dir={tmp_path / 'run'}"]) == 0
    assert (tmp_path / "run" / "results.json").exists() and "trained" in capfd.readouterr().out


def test_bad_settings_are_one_line(tmp_path, capsys):
    assert main(["num_env_runners=2", f"run_dir={tmp_path / 'a'}"]) == 2
    assert capsys.readouterr().err == "train.py: num_env_runners=2 without engine=rllib, expected both\n"
    assert main(["engine=horovod", f"run_dir={tmp_path / 'b'}"]) == 2
    assert "engine" in capsys.readouterr().err
    with pytest.raises(GanglineError, match=r"agent\.num_env_runners is -1"):
        rllib.check(load_world("small"), num_env_runners=-1)
