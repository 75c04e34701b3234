"""Kueue: recorded cases of the real system, and stories for what the text says about it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders import minutes
from golden.worlds import GOLDEN

from baselines.kueue_scenarios import EXAMPLE_8_4, EXERCISE_8_2, Scenario
from gangline.baselines.base import build
from gangline.baselines.conformance.kueue import run_case
from gangline.baselines.kueue import kueue
from gangline.baselines.kueue.config import ClusterQueue, KueueConfig, Preemption
from gangline.envs.core.spec import (
    JobSpec,
    NodeSpec,
    OptionsSpec,
    PodSetSpec,
    QueueSpec,
    QuotaSpec,
    TenantSpec,
    WorldSpec,
)
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError

HOUR = 3_600_000
FILES = sorted(path.name for path in (GOLDEN / "kueue").glob("*.json")) if (GOLDEN / "kueue").is_dir() else []


@pytest.mark.parametrize("file", FILES or [pytest.param("", marks=pytest.mark.skip(reason="no recorded cases here"))])
def test_recorded_cases(file: str) -> None:
    failed = []
    for case in json.loads((GOLDEN / "kueue" / file).read_text()):
        outcome = run_case({}, case)
        if not outcome.passed:
            failed.append((case["id"], outcome.mismatches[:1], outcome.skipped))
    assert failed == []


def gpu_world(jobs: list[JobSpec], quotas: dict[str, QuotaSpec], quota: str = "enforced") -> WorldSpec:
    """Tenants with a queue each under one cohort, on nodes of 8 GPUs that hold all nominal quotas."""
    total = sum(q.nominal for q in quotas.values())
    return WorldSpec(
        nodes=[NodeSpec(name=f"n{i}", amounts={"gpu": 8000}) for i in range(-(-total // 8000))],
        queues=[
            QueueSpec(name="cohort", is_cohort=True),
            *(QueueSpec(name=name, parent="cohort", quotas={("default", "gpu"): q}) for name, q in quotas.items()),
        ],
        tenants=[TenantSpec(name=name) for name in quotas],
        jobs=jobs,
        options=OptionsSpec(quota=quota),  # type: ignore[arg-type]
    )


def job(name: str, tenant: str, gpus: int, at_h: float = 0, hours: float = 10, priority: int = 0) -> JobSpec:
    """A job of single-GPU pods."""
    return JobSpec(
        name=name,
        tenant=tenant,
        pod_sets=[PodSetSpec(count=gpus, request={"gpu": 1000})],
        work_ms=round(hours * HOUR),
        submit_ms=round(at_h * HOUR),
        priority=priority,
    )


def running(world: World) -> list[str]:
    """Names of the running jobs."""
    return sorted(name for name, j in world.dump()["jobs"].items() if j["state"] == "running")


EIGHT = QuotaSpec(nominal=8000)


@pytest.mark.parametrize("name", ["kueue", "kueue+volcano", "kueue+kube"])
@pytest.mark.parametrize("scenario", [EXAMPLE_8_4, EXERCISE_8_2], ids=["example 8-4", "exercise 8-2"])
def test_who_holds_what(scenario: Scenario, name: str, tmp_path: Path) -> None:
    """The examples of the text: what is idle is lent, and given back when its owner wants it."""
    spec, config = scenario.build(tmp_path)
    got = {}
    for minute in scenario.want:
        world = World.from_state(spec)
        world.run(build(name, config=config), minutes(minute))
        got[minute] = {queue.name: held_by(world, queue.name) for queue in spec.queues if not queue.is_cohort}
    assert got == scenario.want


def held_by(world: World, tenant: str) -> int:
    """GPUs of a tenant's bound pods."""
    return sum(len(j["bound"]) for name, j in world.dump()["jobs"].items() if name.startswith(f"{tenant}-"))


@pytest.mark.parametrize("name", ["kueue", "kueue+volcano", "kueue+kube"])
@pytest.mark.parametrize("quota", ["off", "tracked", "enforced"])
def test_a_borrows_what_b_leaves_and_b_takes_it_back(quota: str, name: str) -> None:
    """The same where the world does not enforce quota: Kueue keeps the books."""
    jobs = [job("a1", "A", 8), job("b1", "B", 2), job("a2", "A", 4, at_h=1), job("b2", "B", 6, at_h=2)]
    world = World.from_state(gpu_world(jobs, {"A": EIGHT, "B": EIGHT}, quota))
    world.run(build(name), round(1.5 * HOUR))
    assert running(world) == ["a1", "a2", "b1"]
    world = World.from_state(gpu_world(jobs, {"A": EIGHT, "B": EIGHT}, quota))
    world.run(build(name), round(2.5 * HOUR))
    assert running(world) == ["a1", "b1", "b2"]
    assert world.dump()["jobs"]["a2"]["preemptions"] == 1


@pytest.mark.parametrize("quota", ["off", "enforced"])
def test_what_is_not_admitted_has_no_pods_for_the_scheduler_behind(quota: str) -> None:
    """Nodes are free, and both place whatever they see: the quota alone keeps the second job out."""
    limited = {"A": QuotaSpec(nominal=8000, borrowing_limit=0), "B": EIGHT}
    jobs = [job("a1", "A", 8), job("a2", "A", 4)]
    for name in ("kueue+volcano", "kueue+kube"):
        world = World.from_state(gpu_world(jobs, limited, quota))
        world.run(build(name), HOUR)
        assert running(world) == ["a1"], name
    world = World.from_state(gpu_world(jobs, limited, "off"))
    world.run(build("kube_scheduler"), HOUR)
    assert running(world) == ["a1", "a2"]


def test_admitted_gangs_wait_whole_behind_volcano_and_hang_behind_kube() -> None:
    """Example 8-1: a quota says nothing of nodes. 12 GPUs of quota on 8: kube-scheduler starts a part of the gang."""
    jobs = [job("a1", "A", 5), job("a2", "A", 6)]
    spec = gpu_world(jobs, {"A": QuotaSpec(nominal=12000)})
    spec = replace(spec, nodes=spec.nodes[:1], options=replace(spec.options, gang=False))
    world = World.from_state(spec)
    world.run(build("kueue+volcano"), HOUR)
    assert [len(j["bound"]) for j in world.dump()["jobs"].values()] == [5, 0]
    world = World.from_state(spec)
    world.run(build("kueue+kube"), HOUR)
    assert sorted(len(j["bound"]) for j in world.dump()["jobs"].values()) == [4, 4]


def test_without_reclaim_the_owner_waits() -> None:
    jobs = [job("a1", "A", 12), job("b1", "B", 6, at_h=1)]
    world = World.from_state(gpu_world(jobs, {"A": EIGHT, "B": EIGHT}))
    world.run(build("kueue", reclaim_within_cohort="Never"), 2 * HOUR)
    assert running(world) == ["a1"]


def test_a_config_with_an_unknown_queue_is_refused() -> None:
    config = KueueConfig(cluster_queues=[ClusterQueue(name="nobody")])
    world = World.from_state(gpu_world([job("a1", "A", 1)], {"A": EIGHT}))
    with pytest.raises(GanglineError, match="nobody"):
        kueue(config).private_for(world)


def test_an_unknown_policy_is_refused() -> None:
    config = KueueConfig(
        default_cluster_queue=ClusterQueue(preemption=Preemption(within_cluster_queue="Sometimes"))  # type: ignore[arg-type]
    )
    world = World.from_state(gpu_world([job("a1", "A", 1)], {"A": EIGHT}))
    with pytest.raises(GanglineError, match="Sometimes"):
        kueue(config).private_for(world)
