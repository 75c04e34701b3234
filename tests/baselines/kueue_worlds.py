"""Random worlds for Kueue: cohort trees, limits, two flavors, two resources, priorities, every policy."""

from __future__ import annotations

import random
from collections.abc import Sequence

from builders import minutes

from gangline.baselines.kueue.config import (
    BorrowWithinCohort,
    ClusterQueue,
    FairSharing,
    FlavorFungibility,
    KueueConfig,
    Preemption,
)
from gangline.envs.core.spec import (
    ChangeSpec,
    JobSpec,
    NodeSpec,
    OptionsSpec,
    PodSetSpec,
    QueueSpec,
    QuotaSpec,
    TenantSpec,
    WorldSpec,
)

MINUTES = 6  # over which jobs arrive
POLICIES = ("Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any")


def random_world(seed: int, quota: str | None = None) -> tuple[WorldSpec, KueueConfig]:
    """A tree of up to three levels with two to five queues, jobs that never end, room for all of them on the nodes."""
    rng = random.Random(seed)
    flavors = ("x", "y")[: rng.choice((1, 1, 2))]
    cohorts = ["top"]
    queues = [_cohort(rng, "top", None, flavors)]
    if rng.random() < 0.4:
        cohorts += ["left", "right"]
        queues += [_cohort(rng, name, "top", flavors) for name in ("left", "right")]
    names = [f"q{i}" for i in range(rng.randint(2, 5))]
    for name in names:
        quotas = {}
        for flavor in flavors:
            quotas[flavor, "gpu"] = _quota(rng, 10)
            quotas[flavor, "cpu"] = QuotaSpec(
                nominal=1000 * rng.randint(2, 20), borrowing_limit=rng.choice((None, None, 0))
            )
        weight = rng.choice((500, 1000, 1000, 2000))
        queues.append(QueueSpec(name=name, parent=rng.choice(cohorts), quotas=quotas, weight=weight))
    spec = WorldSpec(
        resources=("gpu", "cpu"),
        flavors=flavors,
        nodes=[
            NodeSpec(name=f"{f}{i}", flavor=f, amounts={"gpu": 8000, "cpu": 64000}) for f in flavors for i in range(10)
        ],
        queues=queues,
        tenants=[TenantSpec(name=name) for name in names],
        jobs=[_job(rng, f"j{i}", names) for i in range(rng.randint(5, 40))],
        options=OptionsSpec(quota=quota or rng.choice(("enforced", "enforced", "off"))),  # type: ignore[arg-type]
    )
    config = KueueConfig(
        cluster_queues=[_policies(rng, name) for name in names],
        fair_sharing=FairSharing() if rng.random() < 0.5 else None,
        excluded_resources=None,
    )
    return spec, config


def busy_world(seed: int) -> WorldSpec:
    """Jobs of every kind that end, shrink and grow, on a quota that changes and nodes that fail."""
    rng = random.Random(seed)
    queues = [QueueSpec(name="top", is_cohort=True)]
    names = ["a", "b", "c"]
    queues += [QueueSpec(name=n, parent="top", quotas={("default", "gpu"): _quota(rng, 10)}) for n in names]
    jobs = []
    changes = []
    for i in range(30):
        kind = rng.choice(("training", "training", "batch", "service"))
        count = rng.randint(1, 6)
        request = rng.choice((1000, 1000, 2000, 500, 333))
        least = rng.randint(1, count) if kind == "batch" else None
        jobs.append(
            JobSpec(
                name=f"j{i}",
                tenant=rng.choice(names),
                kind=kind,  # type: ignore[arg-type]
                pod_sets=[PodSetSpec(count=count, min_count=least, request={"gpu": request})],
                work_ms=minutes(rng.randint(5, 60)),
                submit_ms=minutes(rng.randint(0, 60)),
                priority=rng.randint(0, 2),
            )
        )
        if kind == "service":
            when = minutes(rng.randint(10, 80))
            changes.append(ChangeSpec(time_ms=when, what="replicas", target=f"j{i}", value=rng.randint(0, 8)))
    for i in range(4):
        value = 1000 * rng.randint(0, 12)
        changes.append(
            ChangeSpec(
                time_ms=minutes(20 * (i + 1)),
                what="nominal",
                target=rng.choice(names),
                cell=("default", "gpu"),
                value=value,
            )
        )
    return WorldSpec(
        nodes=[NodeSpec(name=f"n{i}", amounts={"gpu": 8000}) for i in range(4)],
        queues=queues,
        tenants=[TenantSpec(name=name) for name in names],
        jobs=jobs,
        changes=sorted(changes, key=lambda change: change.time_ms),
        options=OptionsSpec(quota="enforced", mean_up_ms=float(minutes(120)), mean_down_ms=float(minutes(10))),
    )


def _cohort(rng: random.Random, name: str, parent: str | None, flavors: Sequence[str]) -> QueueSpec:
    quotas = {(f, "gpu"): _quota(rng, 6) for f in flavors} if rng.random() < 0.3 else {}
    if parent is None:
        quotas = {cell: QuotaSpec(nominal=quota.nominal) for cell, quota in quotas.items()}
    return QueueSpec(name=name, parent=parent, is_cohort=True, quotas=quotas, weight=rng.choice((1000, 2000)))


def _quota(rng: random.Random, most: int) -> QuotaSpec:
    return QuotaSpec(
        nominal=1000 * rng.randint(0, most),
        borrowing_limit=rng.choice((None, None, 0, 4000)),
        lending_limit=rng.choice((None, None, 0, 2000)),
    )


def _job(rng: random.Random, name: str, queues: Sequence[str]) -> JobSpec:
    count = rng.randint(1, 6)
    least = rng.randint(1, count) if rng.random() < 0.2 else None
    request = {"gpu": 1000} | ({"cpu": rng.choice((500, 1000, 2000))} if rng.random() < 0.5 else {})
    return JobSpec(
        name=name,
        tenant=rng.choice(queues),
        pod_sets=[PodSetSpec(count=count, min_count=least, request=request)],
        min_member=1 if least else None,
        work_ms=minutes(10_000),
        submit_ms=minutes(rng.randint(0, MINUTES)) if rng.random() < 0.5 else 0,
        priority=rng.choice((0, 0, 1, 2)),
    )


def _policies(rng: random.Random, name: str) -> ClusterQueue:
    searches = ("MayStopSearch", "TryNextFlavor")
    return ClusterQueue(
        name=name,
        queueing_strategy=rng.choice(("StrictFIFO", "BestEffortFIFO")),  # type: ignore[arg-type]
        preemption=Preemption(
            within_cluster_queue=rng.choice(POLICIES[:3]),  # type: ignore[arg-type]
            reclaim_within_cohort=rng.choice((*POLICIES, "Any")),  # type: ignore[arg-type]
            borrow_within_cohort=BorrowWithinCohort(
                policy=rng.choice(("Never", "LowerPriority")),  # type: ignore[arg-type]
                max_priority_threshold=rng.choice((None, 1)),
            ),
        ),
        flavor_fungibility=FlavorFungibility(
            when_can_borrow=rng.choice(searches),  # type: ignore[arg-type]
            when_can_preempt=rng.choice(searches),  # type: ignore[arg-type]
        ),
    )
