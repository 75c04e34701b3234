"""A benchmark on a Ray cluster writes what a pool of this machine writes, and says in one line what is wrong."""

import pytest

ray = pytest.importorskip("ray", reason="ray is not installed: it has an environment of its own (docs/rllib.md)")
pytest.importorskip("pyarrow")

from ray.cluster_utils import Cluster

from agents.test_benchmark import busy_rows, bytes_of, world
from gangline.__main__ import main
from gangline.agents import training

TRAINED = ["agent=ppo", "agent.total_steps=256", "agent.num_envs=2", "agent.steps_per_rollout=64"]
SHORT = ["env.episode.horizon_h=12", "env.episode.warm_h=6", "evaluation.traces=1"]


@pytest.fixture(scope="module")
def address():
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    yield cluster.address
    ray.shutdown()
    cluster.shutdown()


def test_a_trace_of_ones_own_gives_the_same_bytes_as_here(address, tmp_path):
    file = world(tmp_path, busy_rows())
    asked = ["benchmark", "--world", str(file), "--schedulers", "fifo,fair_reclaim", "--traces", "2"]
    assert main([*asked, "--workers", "1", "--out", str(tmp_path / "here")]) == 0
    assert main([*asked, "--address", address, "--out", str(tmp_path / "there")]) == 0
    here, there = bytes_of(tmp_path / "here"), bytes_of(tmp_path / "there")
    assert here.keys() == there.keys()
    assert [name for name in here if here[name] != there[name]] == []


def test_trained_agents_travel_with_their_runs(address, tmp_path):
    run = tmp_path / "mine"
    assert training.main([*TRAINED, *SHORT, "scheduler.fifo={}", f"run_dir={run}"]) == 0
    given = ["--world", "small", "--policies", str(run), "--traces", "1", "--out", str(tmp_path / "out")]
    short = ["episode.horizon_h=12", "episode.warm_h=6"]
    assert main(["benchmark", *given, "--address", address, "--set", *short]) == 0
    assert (tmp_path / "out" / "runs" / "own load" / "0" / "mine.json").exists()


def test_an_address_where_nobody_answers_is_one_line(tmp_path, capsys):
    file = world(tmp_path, busy_rows(5))
    asked = ["benchmark", "--world", str(file), "--schedulers", "fifo", "--out", str(tmp_path / "out")]
    assert main([*asked, "--address", "nonsense"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("gangline: address=nonsense: no Ray cluster answers there")
    assert not (tmp_path / "out").exists()
