"""Kueue's traps, one story each: what a plausible other rule would do differently (spec/kueue.md section 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from builders import gang, minutes, racks

from baselines.stepping import jobs_in
from gangline.baselines.conformance.kueue import run_case
from gangline.baselines.kueue import kueue
from gangline.baselines.kueue.config import (
    BorrowWithinCohort,
    ClusterQueue,
    FairSharing,
    FlavorFungibility,
    KueueConfig,
    Preemption,
    Topology,
    TopologyRequest,
    Workload,
)
from gangline.envs.core.spec import (
    Admission,
    JobSpec,
    LiveSpec,
    NodeSpec,
    OptionsSpec,
    PlacedPods,
    PodSetSpec,
    QueueSpec,
    QuotaSpec,
    TenantSpec,
    WorldSpec,
)
from gangline.envs.core.world import World

Quota = float | tuple[float, float | None, float | None]  # nominal; or with borrowing and lending limit, GPUs


@dataclass(frozen=True)
class Story:
    """Queues, jobs, policies; who runs at a time.

    Attributes:
        queues: by name: parent and quota by flavor; a name that starts with "/" is a cohort.
        jobs: what arrives.
        want: running jobs at `at_min`.
        want_preempted: jobs preempted up to then.
        policies: of every queue; `own` replaces it for queues by name.
    """

    queues: Mapping[str, tuple[str | None, Mapping[str, Quota]]]
    jobs: Sequence[JobSpec]
    want: Sequence[str]
    want_preempted: Sequence[str] = ()
    at_min: float = 10
    policies: ClusterQueue = field(default_factory=ClusterQueue)
    own: Mapping[str, ClusterQueue] = field(default_factory=dict)
    fair: bool = False
    grace_min: float = 0
    cpus: Mapping[str, Quota] = field(default_factory=dict)
    gates: Mapping[str, bool] = field(default_factory=dict)

    def spec(self) -> WorldSpec:
        """The world: nodes of 16 GPUs, more than any quota needs."""
        flavors = tuple(dict.fromkeys(f for _, quotas in self.queues.values() for f in quotas)) or ("x",)
        queues = []
        for name, (parent, quotas) in self.queues.items():
            cells = {(f, "gpu"): quota_of(amount) for f, amount in quotas.items()}
            if name in self.cpus:
                cells[flavors[0], "cpu"] = quota_of(self.cpus[name])
            queues.append(QueueSpec(name=name, parent=parent, is_cohort=name.startswith("/"), quotas=cells))
        return WorldSpec(
            resources=("gpu", "cpu"),
            flavors=flavors,
            nodes=[
                NodeSpec(name=f"{f}{i}", flavor=f, amounts={"gpu": 16000, "cpu": 64000})
                for f in flavors
                for i in range(4)
            ],
            queues=queues,
            tenants=[TenantSpec(name=name) for name in self.queues if not name.startswith("/")],
            jobs=self.jobs,
            options=OptionsSpec(quota="enforced"),
            now_ms=max([0, *(j.submit_ms for j in self.jobs if j.live)]),
        )

    def config(self) -> KueueConfig:
        """The installation."""
        return KueueConfig(
            default_cluster_queue=self.policies,
            cluster_queues=[replace(queue, name=name) for name, queue in self.own.items()],
            fair_sharing=FairSharing() if self.fair else None,
            excluded_resources=None,
            gates=self.gates,
        )

    def play(self) -> World:
        """The world at `at_min`."""
        world = World.from_state(self.spec())
        world.run(kueue(self.config(), grace_ms=minutes(self.grace_min)), minutes(self.at_min))
        return world


def quota_of(amount: Quota) -> QuotaSpec:
    """Milli-GPU out of GPUs."""
    nominal, borrowing, lending = amount if isinstance(amount, tuple) else (amount, None, None)
    return QuotaSpec(
        nominal=round(nominal * 1000),
        borrowing_limit=None if borrowing is None else round(borrowing * 1000),
        lending_limit=None if lending is None else round(lending * 1000),
    )


def job(name: str, gpus: int, minute: float = 0, *, cpus: int | None = None, **fields: Any) -> JobSpec:
    """A job of the queue that its name begins with, of single-GPU pods (no GPUs: one pod that asks for CPUs)."""
    request = {"gpu": 1000} if gpus else {}
    if cpus is not None:
        request["cpu"] = cpus * 1000 // max(1, gpus)
    flavors = fields.pop("flavors", None)
    pod_sets = fields.pop("pod_sets", [PodSetSpec(count=max(1, gpus), request=request, flavors=flavors)])
    work = minutes(fields.pop("work_min", 600))
    return JobSpec(
        name=name, tenant=name[0], pod_sets=pod_sets, work_ms=work, submit_ms=minutes(minute), uid=name, **fields
    )


def held(name: str, gpus: int, created: float, reserved: float, node: str = "x0", **fields: Any) -> JobSpec:
    """A job that is running when the world begins."""
    live = LiveSpec(
        pods=[PlacedPods(pod_set=0, node=node, count=gpus)],
        admissions=[Admission(pod_set=0, count=gpus, flavors={"gpu": node[0]})],
        admit_ms=minutes(reserved),
    )
    return replace(job(name, gpus, created, **fields), live=live)


def preempting(within: str = "Never", reclaim: str = "Never", borrow: str = "Never", **fields: Any) -> ClusterQueue:
    """A ClusterQueue's policies."""
    return ClusterQueue(
        preemption=Preemption(
            within_cluster_queue=within,  # type: ignore[arg-type]
            reclaim_within_cohort=reclaim,  # type: ignore[arg-type]
            borrow_within_cohort=BorrowWithinCohort(policy=borrow),  # type: ignore[arg-type]
        ),
        **fields,
    )


def flat(**quotas: Quota) -> dict[str, tuple[str | None, Mapping[str, Quota]]]:
    """Queues of one cohort."""
    return {"/all": (None, {}), **{name: ("/all", {"x": quota}) for name, quota in quotas.items()}}


ANY = preempting("LowerPriority", "Any")
STRICT = ClusterQueue(queueing_strategy="StrictFIFO")
KEEPS_SIX = {"a": (10, 2, 4), "b": 10}  # a keeps 6 of its 10 and lends 4, and may borrow 2
TWO_LEVELS = {
    "/top": (None, {}),
    "/left": ("/top", {}),
    "/right": ("/top", {}),
}
BORROWED_IN_TURN = [  # b and c have 4 each and use 6; b's second has come last
    held("b1", 3, 0, 2),
    held("c1", 3, 0, 1, "x1"),
    held("c2", 3, 0, 3, "x1"),
    held("b2", 3, 0, 4),
]

STORIES = {
    # trap 1
    "what a queue keeps comes on top of what is left in the cohort: 6 and 2": Story(
        flat(**KEEPS_SIX), [job("b", 12), job("a", 8, 1)], ["a", "b"]
    ),
    "the borrowing limit does not reach around an empty cohort: 9 of 8": Story(
        flat(**KEEPS_SIX), [job("b", 12), job("a", 9, 1)], ["b"]
    ),
    # trap 2
    "what a queue uses of what it keeps is no use of the cohort": Story(
        flat(a=(8, None, 2), b=8), [job("a", 6), job("b", 10, 1)], ["a", "b"]
    ),
    "a job that ends takes off the cohort only what had come up to it": Story(
        flat(a=(8, None, 2), b=8), [job("a1", 5), job("a2", 3, work_min=2), job("b", 10, 1)], ["a1", "b"]
    ),
    # trap 3
    "borrowing from the next cohort goes before borrowing from the one above": Story(
        {
            **TWO_LEVELS,
            "a": ("/left", {"x": 2}),
            "c": ("/left", {"x": 4}),
            "b": ("/right", {"x": 2}),
        },
        [job("c", 2), job("b", 6, 1), job("a", 4, 1)],
        ["a", "c"],
        policies=STRICT,
    ),
    # trap 4
    "a flavor in which nobody can be preempted does not end the search": Story(
        {"a": (None, {"x": 4, "y": 4})},
        [
            job("a_high", 4, priority=5, flavors=["x"]),
            job("a_low", 4, flavors=["y"]),
            job("a_new", 4, 1, priority=3),
        ],
        ["a_high", "a_new"],
        ["a_low"],
        policies=preempting("LowerPriority", flavor_fungibility=FlavorFungibility(when_can_preempt="MayStopSearch")),
    ),
    # trap 5
    "victims that would do for each resource alone do not do for both: nobody is preempted": Story(
        flat(a=4, b=4),
        [job("b", 8), job("a_cpu", 0, cpus=4), job("a_new", 4, 1, cpus=4, priority=1)],
        ["a_cpu", "b"],
        policies=ANY,
        cpus={"a": (4, 0, None), "b": 4},
    ),
    # trap 6
    "borrowing in the first flavor beats a free second one": Story(
        {"/all": (None, {}), "a": ("/all", {"x": 4, "y": 4}), "b": ("/all", {"x": 4})},
        [job("a1", 4), job("a2", 4, 1), job("b", 4, 2)],
        ["a1", "a2"],
    ),
    "a free second flavor beats preempting in the first": Story(
        {"a": (None, {"x": 4, "y": 4})},
        [job("a1", 4), job("a2", 4, 1, priority=1)],
        ["a1", "a2"],
        policies=preempting("LowerPriority"),
    ),
    # trap 7
    "the newest reservation goes first, though it was submitted first": Story(
        {"a": (None, {"x": 8})},
        [held("a_late", 4, 0, 5), held("a_early", 4, 1, 2), job("a_new", 4, 6, priority=1)],
        ["a_early", "a_new"],
        ["a_late"],
        policies=ANY,
    ),
    "who is newer is a matter of submission, though it was admitted first": Story(
        {"a": (None, {"x": 8})},
        [
            held("a_late", 4, 0, 2.5),
            held("a_early", 4, 2.2, 2.4),
            job("a_block", 9, 1),
            job("a_new", 4, 2.1, live=LiveSpec()),
        ],
        ["a_late", "a_new"],
        ["a_early"],
        policies=preempting("LowerOrNewerEqualPriority"),
    ),
    # trap 8
    "two small victims go although a third alone would do": Story(
        {"a": (None, {"x": 7})},
        [held("a3", 3, 0, 1), held("a2", 2, 0, 2), held("a1", 2, 0, 3), job("a_new", 3, 4, priority=1)],
        ["a3", "a_new"],
        ["a1", "a2"],
        policies=ANY,
    ),
    "a victim that is not needed after all stays": Story(
        {"a": (None, {"x": 7})},
        [held("a3", 4, 0, 1), held("a2", 2, 0, 2), held("a1", 1, 0, 3), job("a_new", 4, 4, priority=1)],
        ["a1", "a2", "a_new"],
        ["a3"],
        policies=ANY,
    ),
    # trap 9
    "reclaim stops at nominal quota": Story(
        flat(a=4, b=4),
        [*(job(f"b{i}", 2, i / 10) for i in range(4)), job("a", 4, 1)],
        ["a", "b0", "b1"],
        ["b2", "b3"],
        policies=ANY,
    ),
    "a queue that is back at nominal gives no more, the next borrower does": Story(
        flat(a=4, b=4, c=4),
        [*BORROWED_IN_TURN, job("a", 4, 5)],
        ["a", "b1", "c1"],
        ["b2", "c2"],
        policies=ANY,
    ),
    # trap 10
    "an owner that cannot preempt keeps the quota from the others of the cohort": Story(
        flat(a=4, b=4),
        [job("b1", 6, priority=9), job("a", 4, 1), job("b2", 2, 1)],
        ["b1"],
        policies=preempting("Never", "LowerPriority", queueing_strategy="StrictFIFO"),
    ),
    "one that can always take it back keeps nothing": Story(
        flat(a=4, b=4),
        [job("b1", 6, priority=9, preemptible=False), job("a", 4, 1), job("b2", 2, 1, preemptible=False)],
        ["b1", "b2"],
        policies=preempting("Never", "Any", queueing_strategy="StrictFIFO"),
    ),
    # trap 11
    "who waits for a victim to go asks for no other": Story(
        flat(a=4, b=4, c=0),
        [job("b1", 4), job("b2", 2, 0.1), job("b3", 2, 0.2), job("a", 2, 1), job("c", 1, 3)],
        ["b1", "b2"],
        ["b3"],
        at_min=5,
        grace_min=10,
        policies=ANY,
    ),
    "and gets its place when the victim is gone": Story(
        flat(a=4, b=4, c=0),
        [job("b1", 4), job("b2", 2, 0.1), job("b3", 2, 0.2), job("a", 2, 1), job("c", 1, 3)],
        ["a", "b1", "b2"],
        ["b3"],
        at_min=12,
        grace_min=10,
        policies=ANY,
    ),
    # trap 12
    "what fits beside a preemptor and its victims is admitted in the same cycle": Story(
        flat(a=4, b=6, c=4),
        [job("a1", 4), job("a2", 4, 0.1), job("c1", 2), job("b", 6, 1), job("c2", 2, 1)],
        ["a1", "c1", "c2"],
        ["a2"],
        at_min=2,
        grace_min=5,
        policies=ANY,
    ),
    "what would take the room that a preemptor has made is not": Story(
        flat(a=4, b=6, c=4),
        [job("a1", 4), job("a2", 4, 0.1), job("c1", 2), job("b", 6, 1), job("c2", 3, 1)],
        ["a1", "c1"],
        ["a2"],
        at_min=2,
        grace_min=5,
        policies=ANY,
    ),
    # trap 13
    "shares add up what is borrowed in all flavors of a resource": Story(
        {
            "/all": (None, {}),
            "a": ("/all", {"x": 0, "y": 0}),
            "b": ("/all", {"x": 0, "y": 0}),
            "c": ("/all", {"x": 6, "y": 6}),
        },
        [
            job("a1", 2, flavors=["x"]),
            job("a2", 2, flavors=["y"]),
            job("b1", 3, flavors=["x"]),
            job("c", 4, flavors=["y"]),
            job("a3", 1, 1, flavors=["x"]),
            job("b2", 1, 1, flavors=["x"]),
        ],
        ["a1", "a2", "b1", "b2", "c"],
        fair=True,
    ),
    # trap 14
    "the shares of two cohorts are compared, not those of the queues below": Story(
        {
            **TWO_LEVELS,
            "a": ("/left", {"x": 1}),
            "c": ("/left", {"x": 1}),
            "b": ("/right", {"x": 1}),
            "d": ("/top", {"x": 9}),
        },
        [job("c", 6), job("b1", 3), job("d", 2), job("a", 1, 1), job("b2", 1, 1)],
        ["b1", "b2", "c", "d"],
        fair=True,
    ),
    # trap 15
    "fair sharing takes from the greater borrower though borrowWithinCohort is Never": Story(
        flat(a=0, b=0, c=8),
        [job("b1", 4), job("b2", 4, 0.1), job("a", 4, 1)],
        ["a", "b1"],
        ["b2"],
        policies=ANY,
        fair=True,
    ),
    "classical preemption does not": Story(
        flat(a=0, b=0, c=8), [job("b1", 4), job("b2", 4, 0.1), job("a", 4, 1)], ["b1", "b2"], policies=ANY
    ),
    "fair sharing leaves a borrower alone whose cohort as a whole does not borrow": Story(
        {
            "/top": (None, {}),
            "/left": ("/top", {}),
            "b": ("/left", {"x": 2}),
            "c": ("/left", {"x": 6}),
            "a": ("/top", {"x": 8}),
            "e": ("/top", {"x": 0}),
        },
        [job("b1", 3), job("b2", 3, 0.1), job("e", 4, 0.2, priority=9), job("a", 8, 1, priority=1)],
        ["b1", "b2", "e"],
        policies=preempting("Never", "LowerPriority"),
        fair=True,
    ),
    # trap 16
    "within its nominal quota a tenant takes victims whatever its share of something else": Story(
        flat(a=4, b=4),
        [job("a_cpu", 0, cpus=8), job("b", 8, 0.1), job("a_gpu", 4, 1)],
        ["a_cpu", "a_gpu"],
        ["b"],
        policies=ANY,
        cpus={"a": 1, "b": 8},
        fair=True,
    ),
    "without that gate its share counts": Story(
        flat(a=4, b=4),
        [job("a_cpu", 0, cpus=8), job("b", 8, 0.1), job("a_gpu", 4, 1)],
        ["a_cpu", "b"],
        policies=ANY,
        cpus={"a": 1, "b": 8},
        fair=True,
        gates={"FairSharingPreemptWithinNominal": False},
    ),
    # trap 17
    "with no event an inadmissible workload sleeps": Story(
        flat(a=4), [job("a1", 4), job("a2", 4, 1), job("a3", 4, 2)], ["a1"]
    ),
    "an end in another queue of the tree wakes it": Story(
        flat(a=(0, None, None), b=4), [job("b", 4, work_min=5), job("a", 4, 1)], ["a"]
    ),
    # trap 19
    "who waits for its victims is not overtaken by a more important newcomer": Story(
        flat(a=4, b=4),
        [job("b1", 4), job("b2", 4, 0.1), job("a_first", 4, 1), job("a_high", 4, 2, priority=9)],
        ["a_first", "b1"],
        ["b2"],
        at_min=20,
        grace_min=10,
        policies=preempting("Never", "Any"),
    ),
    "in a StrictFIFO queue it is": Story(
        flat(a=4, b=4),
        [job("b1", 4), job("b2", 4, 0.1), job("a_first", 4, 1), job("a_high", 4, 2, priority=9)],
        ["a_high", "b1"],
        ["b2"],
        at_min=20,
        grace_min=10,
        policies=preempting("Never", "Any", queueing_strategy="StrictFIFO"),
    ),
    # trap 20
    "a victim comes back before who was submitted after it": Story(
        flat(a=4, b=4),
        [job("b_victim", 8), job("a", 4, 1, work_min=5), job("b_younger", 8, 2)],
        ["b_victim"],
        ["b_victim"],
        policies=ANY,
    ),
    # trap 21
    "a second pod set counts what the first has taken": Story(
        {"a": (None, {"x": 8})},
        [job("a", 0, pod_sets=[PodSetSpec(count=5, request={"gpu": 1000})] * 2)],
        [],
    ),
    "all pod sets that fit together are admitted": Story(
        {"a": (None, {"x": 10})},
        [job("a", 0, pod_sets=[PodSetSpec(count=5, request={"gpu": 1000})] * 2)],
        ["a"],
    ),
    # trap 24
    "a lending limit of 0 lends nothing": Story(flat(a=(4, None, 0), b=4), [job("b", 5)], []),
    "no lending limit lends everything": Story(flat(a=4, b=4), [job("b", 8)], ["b"]),
    "a borrowing limit of 0 borrows nothing": Story(flat(a=4, b=(4, 0, None)), [job("b", 5)], []),
    "a borrowing limit of 1 borrows 1": Story(flat(a=4, b=(4, 1, None)), [job("b", 5)], ["b"]),
    # trap 25
    "a StrictFIFO head blocks its own queue only": Story(
        flat(a=4, b=4), [job("a1", 9), job("a2", 1, 1), job("b", 1, 1)], ["b"], policies=STRICT
    ),
    # trap 27
    "more than a queue could ever have preempts nobody": Story(
        flat(a=4, b=4), [job("a1", 4), job("a_big", 9, 1, priority=9)], ["a1"], policies=ANY
    ),
    # trap 28
    "a policy that is not set is Never": Story(flat(a=4, b=4), [job("b", 8), job("a", 4, 1)], ["b"]),
    # trap 29
    "the second preemptor of a cycle finds victims beside those of the first": Story(
        flat(a=4, b=0, c=4),
        [job("b1", 4), job("b2", 4, 0.1), job("a", 4, 1), job("c", 4, 1)],
        ["a", "c"],
        ["b1", "b2"],
        policies=ANY,
    ),
    "or waits for the first one's if they leave room for both": Story(
        flat(a=4, b=0, c=4, d=2),
        [job("b_small", 2), job("b_big", 8, 0.1), job("a", 4, 1), job("c", 4, 1)],
        ["a", "b_small", "c"],
        ["b_big"],
        policies=ANY,
    ),
    # trap 30
    "a head that fits nowhere does not keep its tree from admitting": Story(
        flat(a=4, b=4), [job("a", 99), job("b", 6)], ["b"], fair=True
    ),
}


@pytest.mark.parametrize("title", STORIES)
def test_story(title: str) -> None:
    story = STORIES[title]
    world = story.play()
    jobs = world.dump()["jobs"]
    assert jobs_in(world, "running") == sorted(story.want)
    assert sorted(name for name, j in jobs.items() if j["preemptions"]) == sorted(story.want_preempted)


@pytest.mark.parametrize(
    ("title", "name", "want_flavor"),
    [
        ("borrowing in the first flavor beats a free second one", "a2", "x"),
        ("a free second flavor beats preempting in the first", "a2", "y"),
    ],
)
def test_flavor_of_an_admission(title: str, name: str, want_flavor: str) -> None:
    """Trap 6: the order in which flavors, borrowing and preemption are preferred."""
    ((_, _, flavors),) = STORIES[title].play().dump()["jobs"][name]["admitted"]
    assert flavors["gpu"] == want_flavor


def test_the_second_of_a_queue_is_seen_in_the_next_cycle() -> None:
    """Trap 18: one head of each queue a cycle, also in BestEffortFIFO."""
    story = Story(flat(a=4, b=4), [job("a1", 1), job("a2", 1), job("b1", 1)], [])
    world = World.from_state(story.spec())
    world.advance(0)
    world.cycles(kueue(story.config(), one_cycle=True), 1)
    assert jobs_in(world, "admitted") == ["a1", "b1"]


@pytest.mark.parametrize(("cpus", "want"), [(0, ["a"]), (1, [])])
def test_nothing_of_what_has_no_quota_is_nothing_and_more_waits_for_ever(cpus: int, want: list[str]) -> None:
    """Trap 22: a request of 0 for a resource that no group covers is ignored, a positive one blocks."""
    story = Story(flat(a=4), [job("a", 1, cpus=cpus)], want)
    world = World.from_state(story.spec())
    world.run(kueue(replace(story.config(), excluded_resources=())), minutes(10))
    assert jobs_in(world, "running") == want


def test_counts_are_reduced_in_proportion_all_pod_sets_at_once() -> None:
    """Trap 23: 16 pods on a quota of 11; six steps of nine take 4 and 2, not the first pod set's five."""
    pod_sets = [
        PodSetSpec(count=10, min_count=4, request={"gpu": 1000}),
        PodSetSpec(count=6, min_count=3, request={"gpu": 1000}),
    ]
    story = Story({"a": (None, {"x": 11})}, [job("a", 0, pod_sets=pod_sets, min_member=7)], ["a"])
    admitted = story.play().dump()["jobs"]["a"]["admitted"]
    assert [count for _, count, _ in admitted] == [6, 4]


@pytest.mark.parametrize(
    ("title", "workers", "request_", "want_racks"),
    [
        ("one rack: the smallest that suffices", 10, TopologyRequest(required="rack"), {"rack1": 10}),
        (
            "several: the largest first, the smallest for the rest",
            30,
            TopologyRequest(preferred="rack"),
            {"rack2": 24, "rack0": 6},
        ),
        (
            "anywhere: the smallest first",
            30,
            TopologyRequest(unconstrained=True),
            {"rack0": 8, "rack1": 16, "rack2": 6},
        ),
    ],
)
def test_racks_of_a_gang(title: str, workers: int, request_: TopologyRequest, want_racks: dict[str, int]) -> None:
    """Trap 26: racks of 8, 16 and 24 GPUs. What spreads goes to the largest, what goes anywhere to the smallest."""
    members, domains = racks(1, 2, 3)
    spec = WorldSpec(
        nodes=members,
        domains=domains,
        queues=[QueueSpec(name="t0", quotas={("default", "gpu"): QuotaSpec(nominal=48000)})],
        tenants=[TenantSpec(name="t0")],
        jobs=[gang("g", workers)],
        options=OptionsSpec(quota="enforced"),
    )
    config = KueueConfig(
        topologies=[Topology(flavor="default", topology="default", levels=("block", "rack"))],
        workloads={"g": Workload(pod_sets=[request_])},
    )
    world = World.from_state(spec)
    world.run(kueue(config), 1)
    rack_of = {node.name: node.domains["default"] for node in members}
    got: dict[str, int] = {}
    for pod in world.dump()["jobs"]["g"]["bound"]:
        rack = rack_of[pod["node"] if isinstance(pod, dict) else pod[1]]
        got[rack] = got.get(rack, 0) + 1
    assert got == want_racks, title


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_full_ties_go_by_uid(names: str) -> None:
    """Trap 31: Kueue leaves them to the order of a map; here the order in which queues are listed does not matter."""
    queues = {"/all": (None, {}), **{name: ("/all", {"x": 2.0}) for name in names}}
    story = Story(queues, [job(f"{name}1", 4) for name in names], ["a1"])
    assert jobs_in(story.play(), "running") == ["a1"]


# ---------------------------------------------------------------------------------------------------------------
# What is remembered from cycle to cycle, as histories in the words of the recorded cases
# ---------------------------------------------------------------------------------------------------------------


def history(
    queues: Mapping[str, Mapping[str, int]], steps: Sequence[tuple[dict[str, Any], dict[str, Any]]]
) -> dict[str, Any]:
    """A history (`trajectory`): queues with nominal quotas by flavor in one cohort; (step, what holds after it)."""
    return {
        "id": "story",
        "kind": "trajectory",
        "gates": {},
        "fair_sharing": {"enabled": False, "strategies": []},
        "cohorts": [{"name": "all", "parent": None, "quotas": {}, "fair_weight": 1}],
        "queues": [
            {
                "name": name,
                "cohort": "all",
                "strategy": "BestEffortFIFO",
                "resource_groups": [
                    {
                        "resources": ["gpu"],
                        "flavors": [
                            {
                                "name": flavor,
                                "quotas": {"gpu": {"nominal": n, "borrowing_limit": None, "lending_limit": None}},
                            }
                            for flavor, n in quotas.items()
                        ],
                    }
                ],
                "preemption": {
                    "within_cluster_queue": "Never",
                    "reclaim_within_cohort": "Never",
                    "borrow_within_cohort": {"policy": "Never", "max_priority_threshold": None},
                },
                "flavor_fungibility": {
                    "when_can_borrow": "MayStopSearch",
                    "when_can_preempt": "TryNextFlavor",
                    "preference": None,
                },
                "fair_weight": 1,
            }
            for name, quotas in queues.items()
        ],
        "steps": [step for step, _ in steps],
        "expect": {"steps": [want for _, want in steps]},
    }


def arrive(*workloads: tuple[str, str, Sequence[int]]) -> dict[str, Any]:
    """(name, queue, GPUs of each pod set), all at once."""
    return {
        "op": "arrive",
        "at": 1000,
        "workloads": [
            {
                "name": name,
                "queue": queue,
                "priority": 0,
                "created": 1000,
                "uid": name,
                "pod_sets": [{"name": f"p{i}", "count": 1, "per_pod": {"gpu": n}} for i, n in enumerate(gpus)],
            }
            for name, queue, gpus in workloads
        ],
    }


def admitted(name: str, flavor: str, pods: str = "p0") -> dict[str, Any]:
    """A cycle that admits one workload of one pod."""
    return {"admitted": {name: [{"name": pods, "count": 1, "flavors": {"gpu": flavor}}]}}


def test_who_lost_the_race_for_the_first_flavor_is_tried_on_the_second() -> None:
    """Trap 32: although the first is free again by then."""
    case = history(
        {"a": {"x": 2, "y": 2}, "b": {"x": 2, "y": 2}},
        [
            (arrive(("a1", "a", [4]), ("b1", "b", [4])), {"active": ["a1", "b1"]}),
            (
                {"op": "cycles", "at": 2000, "n": 1},
                {"cycles": [admitted("a1", "x")], "reserved": ["a1"], "active": ["b1"]},
            ),
            ({"op": "finish", "at": 3000, "workloads": ["a1"]}, {"reserved": []}),
            (
                {"op": "cycles", "at": 4000, "n": 1},
                {"cycles": [admitted("b1", "y")], "reserved": ["b1"], "active": []},
            ),
        ],
    )
    outcome = run_case({}, case)
    assert outcome.passed, outcome.mismatches


def test_a_head_of_two_pod_sets_that_fits_nowhere_is_popped_again() -> None:
    """Trap 33: its first pod set has a flavor left to try, so it stays ahead of the rest for another cycle."""
    case = history(
        {"a": {"x": 2, "y": 2}},
        [
            (arrive(("a1", "a", [1, 9]), ("a2", "a", [1])), {"active": ["a1", "a2"]}),
            (
                {"op": "cycles", "at": 2000, "n": 3},
                {
                    "cycles": [{}, {}, admitted("a2", "x")],
                    "reserved": ["a2"],
                    "active": [],
                    "inadmissible": ["a1"],
                },
            ),
        ],
    )
    outcome = run_case({}, case)
    assert outcome.passed, outcome.mismatches
