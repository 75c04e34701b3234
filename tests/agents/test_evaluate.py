"""Policies and baselines played with a recording: the same run as without one, nothing missed, drains only end jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gangline.agents.evaluate import play_on, play_recorded, recordable
from gangline.baselines import base
from gangline.envs.cluster_env import Batch
from gangline.envs.config import WorldConfig, load_world
from gangline.envs.core.spec import HOUR_MS


class Eager:
    """Takes the first legal action that does something, making room at times."""

    def act(self, observation: np.ndarray, mask: np.ndarray) -> int:
        legal = np.flatnonzero(mask)
        return int(legal[1] if observation.sum() % 0.01 < 0.005 else legal[-1])


@pytest.fixture(scope="module")
def config() -> WorldConfig:
    return load_world("small", **{"episode.horizon_h": 24, "episode.warm_h": 12, "workload.load": 1.1})


def plain_values(report: Any) -> dict[str, Any]:
    return {name: value for name, value in report.values.items() if value is not None}


@pytest.mark.parametrize("name", ["policy", "fair_reclaim"])
def test_a_recorded_run_is_the_run_without_and_misses_nothing(config: WorldConfig, name: str) -> None:
    actor: Any = Eager() if name == "policy" else base.build(name)
    batches = [Batch(c, 1, keep_log=True) for c in (config, recordable(config))]
    plain, _ = play_on(batches[0], actor, 3, {})
    recorded = play_recorded(batches[1], actor, 3, {})
    assert recorded.report.is_recorded and recorded.report.identity_holds
    logs = [batch.world_of(0).ended() for batch in batches]
    assert len(logs[0]) > 100 and (logs[0] == logs[1]).all()
    assert recorded.report.window["start_ms"] == batches[1].begins[0]
    if name != "policy":  # whose other way begins to count at its first choice
        want = plain_values(plain)
        assert {n: recorded.report.values[n] for n in want} == want
        assert recorded.report.counts | {"reclaims": 0} == plain.counts
    assert plain.values["lent_gpu_h"] is None and recorded.report.values["lent_gpu_h"] > 0
    assert len(recorded.decision_s) > 10


@pytest.mark.parametrize("name", ["policy", "easy"])
def test_a_drain_ends_jobs_and_leaves_the_integrals(config: WorldConfig, name: str) -> None:
    actor: Any = Eager() if name == "policy" else base.build(name)
    batch = Batch(recordable(config), 1, keep_log=True)
    cut = play_recorded(batch, actor, 3, {}).report
    drained = play_recorded(batch, actor, 3, {}, drain_ms=30 * 24 * HOUR_MS).report
    assert drained.is_recorded and drained.identity_holds
    assert cut.counts["unfinished"] > 0 and drained.counts["unfinished"] == 0
    assert drained.counts["jobs"] == cut.counts["jobs"]
    assert drained.gpu_time == cut.gpu_time
    for metric in (
        "productive_utilization",
        "over_share",
        "deficit",
        "jain",
        "lent_gpu_h",
        "fragmentation",
        "envy_max",
    ):
        assert drained.values[metric] == cut.values[metric], metric
    assert drained.values["jct_so_far_mean_s"] > cut.values["jct_so_far_mean_s"]


def test_a_policy_on_ticks_is_measured_without_what_needs_every_instant(config: WorldConfig) -> None:
    ticks = replace(config, time=replace(config.time, mode="tick", tick_s=600.0))
    recorded = play_recorded(Batch(recordable(ticks), 1, keep_log=True), Eager(), 3, {})
    assert recorded.report.identity_holds and not recorded.report.is_recorded
    assert recorded.report.values["over_share"] is not None and recorded.report.values["envy_max"] is None
