"""Kueue: recorded cases of the real system, and stories for what the text says about it."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from golden.worlds import GOLDEN

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
        if (case.get("gates") or {}).get("TASBalancedPlacement"):
            continue  # not modelled: docs/kueue.md
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


@pytest.mark.parametrize("quota", ["off", "tracked", "enforced"])
def test_a_borrows_what_b_leaves_and_b_takes_it_back(quota: str) -> None:
    """Example 8-4: A has 8 and uses 8, B has 8 and uses 2; A borrows 4; then B comes back and reclaims."""
    jobs = [job("a1", "A", 8), job("b1", "B", 2), job("a2", "A", 4, at_h=1), job("b2", "B", 6, at_h=2)]
    world = World.from_state(gpu_world(jobs, {"A": EIGHT, "B": EIGHT}, quota))
    world.run(build("kueue"), round(1.5 * HOUR))
    assert running(world) == ["a1", "a2", "b1"]
    world = World.from_state(gpu_world(jobs, {"A": EIGHT, "B": EIGHT}, quota))
    world.run(build("kueue"), round(2.5 * HOUR))
    assert running(world) == ["a1", "b1", "b2"]
    assert world.dump()["jobs"]["a2"]["preemptions"] == 1


def test_without_reclaim_the_owner_waits() -> None:
    jobs = [job("a1", "A", 12), job("b1", "B", 6, at_h=1)]
    world = World.from_state(gpu_world(jobs, {"A": EIGHT, "B": EIGHT}))
    world.run(build("kueue", reclaim_within_cohort="Never"), 2 * HOUR)
    assert running(world) == ["a1"]


def test_strict_fifo_blocks_its_own_queue_only() -> None:
    """Trap 25: a head that does not fit is retried and blocks what is behind it; other queues go on."""
    jobs = [job("a1", "A", 6), job("a2", "A", 40, at_h=1), job("a3", "A", 1, at_h=2), job("b1", "B", 1, at_h=2)]
    limited = QuotaSpec(nominal=8000, borrowing_limit=0)
    world = World.from_state(gpu_world(jobs, {"A": limited, "B": limited, "C": QuotaSpec(nominal=32000)}))
    world.run(build("kueue", strategy="StrictFIFO"), 3 * HOUR)
    assert running(world) == ["a1", "b1"]
    world = World.from_state(gpu_world(jobs, {"A": limited, "B": limited, "C": QuotaSpec(nominal=32000)}))
    world.run(build("kueue", strategy="BestEffortFIFO"), 3 * HOUR)
    assert running(world) == ["a1", "a3", "b1"]


def test_an_inadmissible_workload_comes_back_with_an_event() -> None:
    """Trap 17: it sleeps until something ends, then it starts."""
    jobs = [job("a1", "A", 8, hours=3), job("a2", "A", 4, at_h=1)]
    world = World.from_state(gpu_world(jobs, {"A": QuotaSpec(nominal=8000, borrowing_limit=0)}))
    world.run(build("kueue"), round(3.5 * HOUR))
    assert running(world) == ["a2"]


@pytest.mark.parametrize("fair_sharing", [False, True])
def test_no_preemption_back_and_forth(fair_sharing: bool) -> None:
    """With no arrivals, ends or quota changes the cycles reach a state that they leave alone."""
    jobs = [job(f"{t}{i}", t, 1 + i % 4, priority=i % 3) for t in "ABC" for i in range(8)]
    world = World.from_state(gpu_world(jobs, {t: EIGHT for t in "ABC"}))
    world.run(build("kueue", fair_sharing=fair_sharing), 1)
    before = {name: (j["state"], j["preemptions"]) for name, j in world.dump()["jobs"].items()}
    world.run(build("kueue", fair_sharing=fair_sharing), HOUR)
    assert {name: (j["state"], j["preemptions"]) for name, j in world.dump()["jobs"].items()} == before


def test_quota_in_use_is_the_sum_over_admitted_jobs() -> None:
    jobs = [
        job(f"{t}{i}", t, 1 + (i * 7) % 5, at_h=i * 0.4, hours=1 + i % 5, priority=i % 3)
        for t in "AB"
        for i in range(20)
    ]
    scheduler = build("kueue", fair_sharing=True)
    world = World.from_state(gpu_world(jobs, {"A": EIGHT, "B": EIGHT}))
    for quarter in range(1, 60):
        world.run(scheduler, quarter * HOUR // 4)
        dump = world.dump()
        held: Counter[str] = Counter()
        for name, j in dump["jobs"].items():
            held[name[0]] += 1000 * sum(count for _, count, _ in j["admitted"])
        for tenant in "AB":
            assert dump["queues"][tenant].get("default/gpu", 0) == held[tenant], quarter


def test_fractions_are_charged_exactly() -> None:
    half = JobSpec(name="half", tenant="A", pod_sets=[PodSetSpec(count=3, request={"gpu": 333})], work_ms=HOUR)
    world = World.from_state(gpu_world([half], {"A": EIGHT}))
    world.run(build("kueue"), 1)
    assert world.dump()["queues"]["A"] == {"default/gpu": 999}


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
