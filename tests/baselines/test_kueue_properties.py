"""Kueue: what holds in every world, over random ones."""

from __future__ import annotations

import random

import pytest
from builders import gang, minutes, nodes, queue, world

from baselines.kueue_worlds import MINUTES, busy_world, random_world
from baselines.stepping import jobs_in
from gangline.baselines.base import build
from gangline.baselines.kueue import kueue
from gangline.envs.core import invariants
from gangline.envs.core.spec import JobSpec, OptionsSpec, PodSetSpec, QueueSpec, QuotaSpec, TenantSpec, WorldSpec
from gangline.envs.core.types import AGAIN
from gangline.envs.core.world import World

COMBINED = ("kueue", "kueue+volcano", "kueue+kube")


def preemptions(w: World) -> dict[str, int]:
    """How often each live job has been preempted."""
    return {name: job["preemptions"] for name, job in w.dump()["jobs"].items()}


@pytest.mark.parametrize("seed", range(120))
def test_cycles_come_to_rest(seed: int) -> None:
    """With no arrivals, ends or quota changes no preemption follows another for ever, and none hits a job twice."""
    spec, config = random_world(seed)
    w = World.from_state(spec)
    scheduler = kueue(config)
    for minute in range(MINUTES + 1):
        w.advance(minutes(minute))
        before = preemptions(w)
        assert w.cycles(scheduler, 300) != AGAIN
        assert all(count - before.get(name, 0) <= 1 for name, count in preemptions(w).items())


@pytest.mark.parametrize("fair_sharing", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_a_tenant_below_its_quota_gets_it_back_from_borrowers_only(seed: int, fair_sharing: bool) -> None:
    """In a flat cohort nobody waits whose nominal quota has room, and nobody is left with less by reclaiming."""
    rng = random.Random(seed)
    names = [f"q{i}" for i in range(rng.randint(2, 5))]
    nominal = {name: 1000 * rng.randint(1, 8) for name in names}
    jobs = [
        gang(
            f"j{i}",
            rng.randint(1, 6),
            tenant=rng.choice(names),
            work_min=10_000,
            submit_min=rng.randint(0, MINUTES),
            priority=rng.randint(0, 2),
        )
        for i in range(30)
    ]
    spec = WorldSpec(
        nodes=nodes(*[8] * 6),
        queues=[
            QueueSpec(name="all", is_cohort=True),
            *(
                QueueSpec(name=n, parent="all", quotas={("default", "gpu"): QuotaSpec(nominal=q)})
                for n, q in nominal.items()
            ),
        ],
        tenants=[TenantSpec(name=name) for name in names],
        jobs=jobs,
        options=OptionsSpec(quota="enforced", reject_oversized=False),
    )
    w = World.from_state(spec)
    scheduler = build("kueue", within_cluster_queue="Never", fair_sharing=fair_sharing)
    size = {job.name: 1000 * job.pod_sets[0].count for job in jobs}
    owner = {job.name: job.tenant for job in jobs}
    for minute in range(MINUTES + 1):
        w.advance(minutes(minute))
        before = preemptions(w)
        w.cycles(scheduler, 300)
        used = {name: w.dump()["queues"][name].get("default/gpu", 0) for name in names}
        for name in jobs_in(w, "queued"):
            assert used[owner[name]] + size[name] > nominal[owner[name]], (minute, name)
        victims = [name for name, count in preemptions(w).items() if count > before.get(name, 0)]
        for q in {owner[name] for name in victims}:
            largest = max(size[name] for name in victims if owner[name] == q)
            assert used[q] + largest > nominal[q], (minute, q)


@pytest.mark.parametrize("name", COMBINED)
@pytest.mark.parametrize("seed", range(12))
def test_quota_in_use_is_the_sum_over_admitted_jobs(seed: int, name: str) -> None:
    """After every event: ends, failures, evictions, partial admission, replicas and quotas that change."""
    w = World.from_state(busy_world(seed))
    scheduler = build(name)
    for _ in range(400):
        next_ms = w.next_event_ms()
        if next_ms is None or next_ms > minutes(180):
            break
        w.run(scheduler, next_ms)
        assert invariants.broken_invariants(w) == []


def test_fractions_are_charged_exactly() -> None:
    """Two jobs of 0.6 GPU do not pass a quota of 1; three of a third leave 1 milli-GPU."""
    jobs = [gang("first", 1, gpus=0.6), gang("second", 1, gpus=0.6, submit_min=1)]
    w = World.from_state(world(nodes(8), jobs, queues=[queue("t0", nominal=1)], quota="enforced"))
    w.run(build("kueue"), minutes(2))
    assert (jobs_in(w, "running"), jobs_in(w, "queued")) == (["first"], ["second"])
    thirds = JobSpec(
        name="thirds", tenant="t0", pod_sets=[PodSetSpec(count=3, request={"gpu": 333})], work_ms=minutes(60)
    )
    w = World.from_state(world(nodes(8), [thirds], queues=[queue("t0", nominal=1)], quota="enforced"))
    w.run(build("kueue"), minutes(1))
    assert w.dump()["queues"]["t0"] == {"default/gpu": 999}
