"""The traps of Volcano, one story each: what somebody who knows gang scheduling from papers would get wrong.

`T n` are the numbers of the list in the rules that the baseline was written from. Where nothing else is said the
plugins are gang and predicates, so that one rule is seen at a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import gang, minutes, nodes, racks

from gangline.baselines.base import build
from gangline.baselines.volcano import volcano
from gangline.baselines.volcano.config import Plugin, PodGroup, Pods, Queue, VolcanoConfig, plugin
from gangline.baselines.volcano.resources import fits
from gangline.baselines.volcano.state import Phase, volcano_dtype
from gangline.envs.core.compiled import kernel
from gangline.envs.core.spec import (
    ChangeSpec,
    LiveSpec,
    NodeSpec,
    OptionsSpec,
    PlacedPods,
    PodSetSpec,
    QueueSpec,
    TenantSpec,
    TopologyWish,
    WorldSpec,
)
from gangline.envs.core.types import SIZE_CLASSES
from gangline.envs.core.world import World

PREEMPTING = ("allocate", "preempt")
RECLAIMING = ("allocate", "reclaim")
MINE_AND_THEIRS = {
    "tenants": [TenantSpec(name="mine", queue="mine"), TenantSpec(name="theirs", queue="theirs")],
    "queues": [QueueSpec(name="mine"), QueueSpec(name="theirs")],
}


def world(*gpus, jobs, **fields):
    """Nodes n0, n1, ... of this many GPUs; other fields are those of the world, or options."""
    given = {key: fields.pop(key) for key in list(fields) if key in WorldSpec.__dataclass_fields__}
    given.setdefault("nodes", nodes(*gpus))
    given.setdefault("tenants", [TenantSpec(name="t0")])
    return World.from_state(WorldSpec(jobs=jobs, options=OptionsSpec(**fields), **given))


def rules(*tiers, actions=("allocate",), grace_ms=0, **config):
    """Volcano with these tiers of plugins (names or `plugin(...)`)."""
    given = [[p if isinstance(p, Plugin) else plugin(p) for p in tier] for tier in tiers]
    return volcano(VolcanoConfig(actions=actions, tiers=given, **config), grace_ms)


def held(w: World) -> dict[str, int]:
    """Pods that each live job has bound."""
    return {name: len(job["bound"]) for name, job in w.dump()["jobs"].items()}


def nodes_of(w: World, job: str) -> list[str]:
    """Nodes of a job's bound pods."""
    return sorted(pod[1] for pod in w.dump()["jobs"][job]["bound"])


def running(job: Any, *placed: tuple[str, int], pod_set: int = 0) -> Any:
    """The job as it runs when the world begins: so many pods on each node."""
    pods = [PlacedPods(pod_set=pod_set, node=node, count=count) for node, count in placed]
    return replace(job, live=LiveSpec(pods=pods))


class Watched:
    """A scheduler whose record can be read afterwards."""

    def __init__(self, scheduler: Any, w: World) -> None:
        self.scheduler, self.world, self.private = scheduler, w, scheduler.private_for(w)

    def compiled(self, size: Any) -> Any:
        """The door."""
        return self.scheduler.compiled(size)

    def private_for(self, w: World) -> np.ndarray:
        """Always the same record."""
        return self.private

    def phase(self, job: str) -> str:
        """Phase of a PodGroup after the last session."""
        k = self.private.view(volcano_dtype(self.world.size))[0]
        return Phase(int(k["jobs"][self.world.slot_of(job)]["phase"])).name.capitalize()


# ---------------------------------------------------------------------------------------------------------------
# Gangs in allocate
# ---------------------------------------------------------------------------------------------------------------


def test_t1_an_empty_answer_is_no_veto_and_an_empty_intersection_is_overwritten() -> None:
    jobs = [running(gang("low", 8), ("n0", 8)), gang("high", 4, priority=10)]
    one_tier = rules(["gang", "priority"], ["predicates"], actions=PREEMPTING)  # gang gives nobody: no more is asked
    two_tiers = rules(["gang"], ["priority", "predicates"], actions=PREEMPTING)  # the second tier gives them up
    for scheduler, want in ((one_tier, 0), (two_tiers, 4)):
        w = world(8, jobs=jobs)
        w.run(scheduler, minutes(1))
        assert held(w) == {"low": 8 - want, "high": want}


def test_t2_backfill_places_only_best_effort_pods_and_small_jobs_overtake_a_blocked_gang_in_allocate() -> None:
    jobs = [running(gang("first", 4), ("n0", 4)), gang("big", 8), gang("small", 2, submit_min=1)]
    for actions, want in ((("allocate",), 2), (("enqueue", "backfill"), 0)):
        w = world(8, jobs=jobs)
        w.run(rules(["gang", "predicates"], actions=actions), minutes(2))
        assert held(w) == {"first": 4, "big": 0, "small": want}


def test_t3_allocate_stops_at_min_member_and_the_surplus_competes_pod_by_pod() -> None:
    jobs = [gang("a", 6, min_member=2), gang("b", 6, min_member=2)]
    w = world(8, jobs=jobs)
    w.run(rules(["gang", "drf", "predicates"]), minutes(1))
    assert held(w) == {"a": 4, "b": 4}
    w = world(8, jobs=jobs)
    w.run(rules(["gang", "predicates"]), minutes(1))  # without shares the first in order takes all that is left
    assert held(w) == {"a": 6, "b": 2}


def test_t4_a_pipelined_gang_keeps_its_reservations_for_the_session_and_binds_nothing() -> None:
    # n0: L L L L . . . .   L is on its way out until minute 5
    leaving = replace(
        gang("leaving", 4), live=LiveSpec(pods=[PlacedPods(pod_set=0, node="n0", count=4, release_ms=minutes(5))])
    )
    leaving = replace(leaving, live=replace(leaving.live, evicted_to="cancel"))
    w = world(8, jobs=[leaving, gang("big", 8), gang("small", 4, submit_min=1)])
    scheduler = rules(["gang", "predicates"])
    w.run(scheduler, minutes(4))
    assert held(w) == {"leaving": 0, "big": 0, "small": 0}
    w.run(scheduler, minutes(6))
    assert held(w) == {"big": 8, "small": 0}


def test_t5_the_chart_lets_preempt_break_a_running_gang_and_reclaim_takes_it_from_who_can_lose_it() -> None:
    def who_stays(action: str, tenant: str) -> dict[str, int]:
        rigid = running(gang("rigid", 4, tenant=tenant, priority=1), ("n0", 4))
        elastic = running(gang("elastic", 4, tenant=tenant, priority=2, min_member=1), ("n0", 4))
        w = world(8, jobs=[rigid, elastic, gang("high", 3, tenant="mine", priority=10)], **MINE_AND_THEIRS)
        w.run(build("volcano", actions=f"allocate, {action}"), minutes(1))
        return held(w)

    assert who_stays("preempt", "mine") == {"rigid": 1, "elastic": 4, "high": 3}
    assert who_stays("reclaim", "theirs") == {"rigid": 4, "elastic": 1, "high": 3}


def test_t6_ready_counts_pending_best_effort_pods_and_starving_does_not() -> None:
    asks_nothing = PodSetSpec(count=1, request={})
    job = gang("job", 1)
    job = replace(job, pod_sets=[*job.pod_sets, asks_nothing], min_member=2)
    w = world(1, jobs=[job], gang=False)
    w.run(rules(["gang", "predicates"]), minutes(1))
    assert held(w) == {"job": 1}  # the pending pod without requests completes the gang


def test_t6_a_job_that_lacks_only_a_role_is_not_starving_and_preempts_nobody() -> None:
    roles = [PodSetSpec(count=1, request={"gpu": 1000}), PodSetSpec(count=2, request={"gpu": 1000})]
    job = replace(gang("job", 3, priority=10), pod_sets=roles, min_member=2)
    job = running(job, ("n0", 2), pod_set=1)
    group = PodGroup(
        job="job",
        min_member=2,
        min_task_member={"master": 1, "worker": 1},
        phase="Inqueue",
        pods=[Pods(task="master"), Pods(task="worker")],
    )
    w = world(8, jobs=[job, running(gang("low", 6), ("n0", 6))], gang=False)
    w.run(rules(["gang"], ["priority", "predicates"], actions=PREEMPTING, pod_groups=[group]), minutes(1))
    assert held(w) == {"job": 2, "low": 6}


def test_t7_role_minima_are_ignored_when_min_member_is_below_their_sum() -> None:
    roles = [PodSetSpec(count=1, request={"gpu": 2000}), PodSetSpec(count=2, request={"gpu": 1000})]
    for min_member, want in ((1, 1), (3, 0)):
        job = replace(gang("job", 3), pod_sets=roles, min_member=min_member)
        group = PodGroup(
            job="job",
            min_member=min_member,
            min_task_member={"master": 1, "worker": 2},
            pods=[Pods(task="master"), Pods(task="worker")],
        )
        w = world(1, jobs=[job], gang=False, reject_oversized=False)
        w.run(rules(["gang", "predicates"], pod_groups=[group]), minutes(1))
        assert held(w) == {"job": want}  # with 1, a worker starts although no master has room


def test_t22_without_a_minimum_there_is_no_gang() -> None:
    for min_member, want in ((0, 3), (4, 0)):
        w = world(3, jobs=[gang("job", 4)], gang=False, reject_oversized=False)
        w.run(rules(["gang", "predicates"], pod_groups=[PodGroup(job="job", min_member=min_member)]), minutes(1))
        assert held(w) == {"job": want}


# ---------------------------------------------------------------------------------------------------------------
# Queues
# ---------------------------------------------------------------------------------------------------------------


def test_t8_a_queue_is_overused_only_in_all_dimensions_and_allocatable_looks_at_those_asked_for() -> None:
    # both queues deserve 4 GPUs; mine has them, theirs waits for a gang that does not fit
    node = NodeSpec(name="n0", amounts={"gpu": 8000, "cpu": 16})
    both, only_cpu = {"gpu": 1000, "cpu": 1}, {"gpu": 0, "cpu": 1}
    jobs = [
        running(replace(gang("first", 4, tenant="mine"), pod_sets=[PodSetSpec(count=4, request=both)]), ("n0", 4)),
        replace(gang("theirs", 8, tenant="theirs"), pod_sets=[PodSetSpec(count=8, request=both)]),
        replace(gang("gpus", 1, tenant="mine"), pod_sets=[PodSetSpec(count=1, request=both)]),
        replace(gang("cpus", 2, tenant="mine"), pod_sets=[PodSetSpec(count=2, request=only_cpu)]),
    ]
    w = world(nodes=[node], resources=("gpu", "cpu"), jobs=jobs, **MINE_AND_THEIRS)
    w.run(rules(["gang", "proportion", "predicates"]), minutes(1))
    assert held(w) == {"first": 4, "theirs": 0, "gpus": 0, "cpus": 2}


def test_t8_capacity_takes_back_if_one_dimension_is_deserved_and_proportion_only_if_all_are() -> None:
    # mine holds more cpu than it deserves and fewer GPUs; theirs holds all that is left
    node = NodeSpec(name="n0", amounts={"gpu": 8000, "cpu": 16})
    both = {"gpu": 1000, "cpu": 1}
    mine = running(
        replace(gang("mine", 1, tenant="mine"), pod_sets=[PodSetSpec(count=1, request={"gpu": 0, "cpu": 9})]), ("n0", 1)
    )
    theirs = replace(gang("theirs", 7, tenant="theirs", min_member=1), pod_sets=[PodSetSpec(count=7, request=both)])
    more = replace(gang("more", 2, tenant="mine", submit_min=1), pod_sets=[PodSetSpec(count=2, request=both)])
    queues = [
        Queue(name="mine", deserved={"gpu": 4000, "cpu": 8}),
        Queue(name="theirs", deserved={"gpu": 4000, "cpu": 8}),
    ]
    got = {}
    for name in ("capacity", "proportion"):
        w = world(
            nodes=[node], resources=("gpu", "cpu"), jobs=[mine, running(theirs, ("n0", 7)), more], **MINE_AND_THEIRS
        )
        w.run(rules(["gang", name, "predicates"], actions=("enqueue", "reclaim"), queues=queues, grace_ms=9), 61_000)
        got[name] = held(w)["theirs"]
    assert got == {"capacity": 5, "proportion": 7}


def test_t9_a_queue_without_jobs_has_no_weight_and_lends_everything_until_it_has_some() -> None:
    jobs = [gang("all", 8, tenant="theirs", min_member=1), gang("late", 4, tenant="mine", submit_min=10)]
    w = world(8, jobs=jobs, **MINE_AND_THEIRS)
    scheduler = rules(["gang", "proportion", "predicates"], actions=RECLAIMING)
    w.run(scheduler, minutes(9))
    assert held(w) == {"all": 8}
    w.run(scheduler, minutes(11))
    assert held(w) == {"all": 4, "late": 4}


def test_t10_capacity_stops_a_queue_only_at_its_capability_less_what_others_are_guaranteed() -> None:
    jobs = [gang("all", 8, tenant="theirs", min_member=1)]
    queues = [Queue(name="mine", guarantee={"gpu": 3000}), Queue(name="theirs", deserved={"gpu": 1000})]
    w = world(8, jobs=jobs, **MINE_AND_THEIRS)
    w.run(rules(["gang", "capacity", "predicates"], queues=queues), minutes(1))
    assert held(w) == {"all": 5}  # it deserves 1


def test_t14_shares_move_within_a_session_and_a_queue_is_put_back_after_each_job() -> None:
    jobs = [gang(f"{queue}{i}", 1, tenant=queue) for queue in ("mine", "theirs") for i in range(6)]
    w = world(8, jobs=jobs, **MINE_AND_THEIRS)
    w.run(rules(["gang", "proportion", "predicates"]), 0)
    assert sum(count for name, count in held(w).items() if name.startswith("mine")) == 4
    assert sum(held(w).values()) == 8


def test_t20_overcommit_counts_an_admitted_gang_in_full_and_proportion_what_it_lacks() -> None:
    # ten GPUs, four of six workers run: overcommit has 12 - 4 - 6 = 2 left, proportion 10 - 4 - 2 = 4
    first = running(gang("first", 6), ("n0", 4))
    for name, want in (("overcommit", "Pending"), ("proportion", "Inqueue")):
        w = world(10, jobs=[first, gang("second", 3)], gang=False)
        group = PodGroup(job="first", min_member=6, min_resources={"gpu": 6000}, phase="Inqueue")
        scheduler = rules(["gang", name, "predicates"], actions=("enqueue",), pod_groups=[group])
        watched = Watched(replace(scheduler, one_session=True), w)
        w.advance(0)  # both have arrived
        w.cycles(watched, 1)
        assert watched.phase("second") == want


# ---------------------------------------------------------------------------------------------------------------
# Evictions
# ---------------------------------------------------------------------------------------------------------------


def test_t11_reclaim_takes_the_first_node_with_a_candidate_even_if_another_is_empty() -> None:
    lent = running(gang("lent", 8, tenant="theirs", min_member=1), ("n1", 8))
    w = world(8, 8, jobs=[lent, gang("mine", 2, tenant="mine")], **MINE_AND_THEIRS)
    scheduler = rules(["gang", "predicates"], actions=("enqueue", "reclaim"))
    w.run(scheduler, 0)
    assert held(w) == {"lent": 6, "mine": 0}  # n0 is empty


def test_t11_reclaim_never_combines_nodes_for_one_pod() -> None:
    lent = running(gang("lent", 8, tenant="theirs", min_member=1), ("n0", 4), ("n1", 4))
    pinned = [running(gang(f"own{i}", 2, tenant="mine"), (f"n{i}", 2)) for i in range(2)]
    w = world(6, 6, jobs=[lent, *pinned, gang("wide", 1, gpus=5, tenant="mine")], **MINE_AND_THEIRS)
    w.run(rules(["gang", "predicates"], actions=RECLAIMING), minutes(1))
    assert held(w)["lent"] == 8 and held(w)["wide"] == 0  # 4 could be freed on each


def test_t12_preempt_skips_jobs_with_a_topology_and_reclaim_does_not() -> None:
    members, domains = racks(1, 1)
    wish = TopologyWish(tier=1)
    for actions, tenant, want in ((PREEMPTING, "mine", 0), (RECLAIMING, "theirs", 4)):
        full = running(gang("full", 16, tenant=tenant, min_member=1), ("n0", 8), ("n1", 8))
        high = gang("high", 4, tenant="mine", priority=10, topology=wish)
        w = world(nodes=members, domains=domains, jobs=[full, high], **MINE_AND_THEIRS)
        tiers = ["gang", "network-topology-aware"], ["priority", "predicates"]
        w.run(rules(*tiers, actions=actions), minutes(1))
        assert held(w) == {"full": 16 - want, "high": want}


def test_t13_an_eviction_frees_the_queue_at_once_and_the_winner_binds_when_the_pods_are_gone() -> None:
    jobs = [running(gang("low", 8, min_member=1), ("n0", 8)), gang("high", 4, priority=10)]
    w = world(8, jobs=jobs)
    scheduler = rules(["gang"], ["priority", "predicates"], actions=PREEMPTING, grace_ms=60_000)
    w.run(scheduler, 30_000)
    assert held(w) == {"low": 4, "high": 0}  # four are on their way out, and nobody more is evicted meanwhile
    w.run(scheduler, 61_000)
    assert held(w) == {"low": 4, "high": 4}


def test_t15_between_jobs_preempt_compares_job_priority_and_a_pods_own_does_not_count() -> None:
    jobs = [running(gang("low", 8, min_member=1), ("n0", 8)), gang("high", 4)]
    groups = [PodGroup(job="high", min_member=4, pods=[Pods(priority=100)])]
    w = world(8, jobs=jobs)
    w.run(rules(["gang", "priority"], ["predicates"], actions=PREEMPTING, pod_groups=groups), minutes(1))
    assert held(w) == {"low": 8, "high": 0}


def test_t15_the_topology_aware_choice_compares_pod_priority_where_none_counts_as_0() -> None:
    jobs = [
        running(gang("a", 2, priority=1), ("n0", 2)),
        running(gang("b", 2, priority=1), ("n1", 2)),
        gang("high", 1, priority=10),
    ]
    groups = [
        PodGroup(job="a", min_member=1, phase="Running", pods=[Pods(priority=1)]),
        PodGroup(job="b", min_member=1, phase="Running", pods=[Pods(has_priority=False)]),
        PodGroup(job="high", min_member=1, phase="Inqueue", pods=[Pods(priority=10)]),
    ]
    scheduler = rules(
        ["gang"],
        ["priority", "predicates"],
        actions=("preempt", "allocate"),
        pod_groups=groups,
        action_arguments={"preempt": {"enableTopologyAwarePreemption": True}},
    )
    w = world(*[2] * 20, jobs=[*jobs, *(running(gang(f"x{i}", 2), (f"n{i}", 2)) for i in range(2, 20))], gang=False)
    w.run(scheduler, minutes(1))
    assert held(w)["a"] == 2 and held(w)["b"] == 1


def test_t16_pods_is_a_dimension_of_what_fits_but_a_pod_that_asks_only_for_it_is_best_effort() -> None:
    node = NodeSpec(name="n0", amounts={"gpu": 8000, "pods": 3})
    asks_nothing = PodSetSpec(count=1, request={})
    job = gang("a", 4, min_member=1)
    job = replace(job, pod_sets=[*job.pod_sets, asks_nothing])
    got = []
    for actions in (("allocate",), ("backfill", "allocate")):
        w = world(
            nodes=[node],
            resources=("gpu", "pods"),
            pods_resource="pods",
            jobs=[job],
            gang=False,
            reject_oversized=False,
        )
        w.run(rules(["gang", "predicates"], actions=("enqueue", *actions)), minutes(1))
        got.append([sum(pod[0] == i for pod in w.dump()["jobs"]["a"]["bound"]) for i in range(2)])
    assert got == [[3, 0], [2, 1]]  # three pod slots; backfill gives one to the pod without requests


@kernel
def _fits(records: Any, request: Any, asked: int, room: Any) -> bool:
    return fits(records[0], request, asked, room)


def test_t17_a_node_that_is_overdrawn_in_cpu_rejects_pods_that_ask_for_none() -> None:
    records = np.zeros(1, volcano_dtype(SIZE_CLASSES[0]))
    records[0]["cpu"], records[0]["memory"], records[0]["tolerance"] = 0, 1, 0.1
    request = np.array([0, 0, 1000, 0, 0, 0, 0, 0])
    for cpu, gpu, want in ((0.0, 1000.0, True), (-1.0, 1000.0, False), (0.0, 999.95, True), (0.0, 999.0, False)):
        room = np.array([cpu, 0, gpu, 0, 0, 0, 0, 0])
        assert _fits(records, request, 0b100, room) == want


@pytest.mark.parametrize("again", range(3))
def test_t18_equal_costs_are_broken_the_same_way_each_time(again: int) -> None:
    full = [running(gang(f"low{i}", 8, min_member=1), (f"n{i}", 8)) for i in range(4)]
    w = world(8, 8, 8, 8, jobs=[*full, gang("high", 1, priority=10)])
    w.run(rules(["gang"], ["priority", "predicates"], actions=PREEMPTING), minutes(1))
    assert held(w) == {"low0": 7, "low1": 8, "low2": 8, "low3": 8, "high": 1}


def test_t19_no_pod_is_evicted_for_a_gang_that_would_not_get_all_of_its_places() -> None:
    jobs = [
        running(gang("low", 2, min_member=1), ("n0", 2)),
        running(gang("safe", 6, preemptible=False), ("n0", 6)),
        gang("high", 4, priority=10),
    ]
    w = world(8, jobs=jobs)
    w.run(rules(["gang"], ["priority", "predicates"], actions=PREEMPTING), minutes(1))
    assert held(w) == {"low": 2, "safe": 6, "high": 0}
    assert int(w.record["totals"]["num_preemptions"]) == 0


def test_t21_of_an_elastic_gang_the_pods_bound_last_go() -> None:
    low = gang("low", 6, min_member=4)
    w = world(3, 3, jobs=[running(low, ("n1", 3), ("n0", 3)), gang("high", 2, priority=10)])
    w.run(rules(["gang"], ["predicates"], actions=PREEMPTING), minutes(1))
    assert held(w) == {"low": 4, "high": 2}
    assert nodes_of(w, "low") == ["n0", "n1", "n1", "n1"]


# ---------------------------------------------------------------------------------------------------------------
# What must hold
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", [PREEMPTING, RECLAIMING])
def test_one_gpu_needed_and_an_11_worker_gang_with_minimum_1_one_worker_goes(actions: tuple[str, ...]) -> None:
    tenant = "mine" if actions is PREEMPTING else "theirs"
    wide = running(gang("wide", 11, min_member=1, tenant=tenant), ("n0", 8), ("n1", 3))
    w = world(8, 3, jobs=[wide, gang("one", 1, priority=10, tenant="mine")], **MINE_AND_THEIRS)
    w.run(rules(["gang"], ["priority", "predicates"], actions=actions), minutes(1))
    assert held(w) == {"wide": 10, "one": 1}


def test_two_100_worker_gangs_never_hold_half_each_though_the_world_would_let_them() -> None:
    w = world(*[8] * 19, jobs=[gang("a", 100), gang("b", 100)], gang=False)
    scheduler = build("volcano")
    for second in range(0, 120, 3):
        w.run(scheduler, second * 1000)
        assert sorted(held(w).values()) == [0, 100]


def test_a_gang_that_lost_a_node_is_requeued_whole_and_gets_going_again() -> None:
    down = ChangeSpec(time_ms=minutes(10), what="node_state", target="n1", value="down")
    up = ChangeSpec(time_ms=minutes(40), what="node_state", target="n1", value="up")
    w = world(8, 8, jobs=[gang("job", 16, checkpoint_min=5)], changes=[down, up])
    scheduler = build("volcano")
    w.run(scheduler, minutes(20))
    assert held(w) == {"job": 0}  # the other node does not keep its half
    w.run(scheduler)
    [end] = w.dump()["ended"]
    assert (end["outcome"], end["starts"], end["end_ms"]) == ("done", 2, minutes(90))  # 10 were done and saved


@pytest.mark.parametrize(("protects", "want"), [(True, 6), (False, 4)])
def test_reclaim_takes_no_gang_below_its_minimum_unless_the_configuration_says_so(protects: bool, want: int) -> None:
    lent = running(gang("lent", 8, min_member=6, tenant="theirs"), ("n0", 8))
    jobs = [lent, *(gang(f"own{i}", 1, tenant="mine") for i in range(4))]
    w = world(8, jobs=jobs, gang=False, **MINE_AND_THEIRS)
    own_gang = plugin("gang", off=() if protects else ("reclaimable",))
    w.run(rules([own_gang, "proportion", "predicates"], actions=RECLAIMING), minutes(1))
    assert held(w)["lent"] == want


# ---------------------------------------------------------------------------------------------------------------
# gangpreempt and gangreclaim
# ---------------------------------------------------------------------------------------------------------------

GANG_TIERS = ["priority", "gang", "network-topology-aware"], ["predicates"]


def two_racks(*jobs: Any, **fields: Any) -> World:
    """rack0 with n0 and n1, rack1 with n2 and n3, eight GPUs each."""
    members, domains = racks(2, 2)
    return world(nodes=members, domains=domains, jobs=jobs, **fields)


def test_gangpreempt_takes_one_gang_whole_where_preempt_breaks_two() -> None:
    # each gang has half of every node
    low = [running(gang(name, 16), *((f"n{i}", 4) for i in range(4))) for name in ("a", "b")]

    def after(*tiers: Any, action: str) -> dict[str, int]:
        w = two_racks(*low, gang("high", 8, priority=10), gang=False)
        w.run(rules(*tiers, actions=("allocate", action)), 0)
        return held(w)

    assert after(["gang"], ["priority", "predicates"], action="preempt") == {"a": 12, "b": 12, "high": 0}
    assert after(*GANG_TIERS, action="gangpreempt") == {"a": 16, "b": 0, "high": 0}


def test_gangpreempt_takes_what_a_gang_can_lose_before_it_breaks_one() -> None:
    elastic = running(gang("elastic", 8, min_member=4, priority=5), ("n0", 8))
    rigid = running(gang("rigid", 8, priority=1), ("n1", 8))
    w = world(8, 8, jobs=[elastic, rigid, gang("high", 4, priority=10)])
    w.run(rules(*GANG_TIERS, actions=("allocate", "gangpreempt")), minutes(1))
    assert held(w) == {"elastic": 4, "rigid": 8, "high": 4}


@pytest.mark.parametrize(("allowed", "want"), [(True, 4), (False, 0)])
def test_gangpreempt_breaks_no_gang_if_whole_bundles_are_not_allowed(allowed: bool, want: int) -> None:
    rigid = running(gang("rigid", 8, priority=1), ("n0", 8))
    w = world(8, jobs=[rigid, gang("high", 4, priority=10)])
    arguments = {"gangpreempt": {"allowWholeBundle": allowed}}
    w.run(rules(*GANG_TIERS, actions=("allocate", "gangpreempt"), action_arguments=arguments), minutes(1))
    assert held(w)["high"] == want


def test_gangpreempt_evicts_nobody_for_a_gang_that_would_still_not_fit_a_rack() -> None:
    low = [running(gang(f"low{i}", 8, min_member=1), (f"n{i}", 8)) for i in (0, 2)]
    rigid = [running(gang(f"rigid{i}", 8, preemptible=False), (f"n{i}", 8)) for i in (1, 3)]
    w = two_racks(*low, *rigid, gang("high", 12, priority=10, topology=TopologyWish(tier=1)))
    w.run(rules(*GANG_TIERS, actions=("allocate", "gangpreempt")), minutes(1))
    assert held(w)["high"] == 0
    assert int(w.record["totals"]["num_preemptions"]) == 0


def test_gangreclaim_takes_back_a_rack_from_the_queue_that_borrows_it() -> None:
    lent = [
        running(gang("lent0", 16, tenant="theirs"), ("n0", 8), ("n1", 8)),
        running(gang("lent1", 16, tenant="theirs"), ("n2", 8), ("n3", 8)),
    ]
    w = two_racks(*lent, gang("own", 16, tenant="mine", topology=TopologyWish(tier=1)), **MINE_AND_THEIRS)
    queues = [Queue(name=name, deserved={"gpu": 16_000}) for name in ("mine", "theirs")]
    tiers = ["priority", "gang", "capacity", "network-topology-aware"], ["predicates"]
    w.run(rules(*tiers, actions=("allocate", "gangreclaim"), queues=queues), minutes(1))
    assert held(w)["own"] == 16 and len(set(nodes_of(w, "own"))) == 2
    assert sorted((held(w)["lent0"], held(w)["lent1"])) == [0, 16]


def test_the_room_that_was_made_for_a_gang_is_where_it_goes_first() -> None:
    # with a grace period, the second rack comes free meanwhile; the gang still goes where room was made
    low = running(gang("low", 16), ("n0", 8), ("n1", 8))
    other = running(gang("other", 16, preemptible=False, work_min=0.5), ("n2", 8), ("n3", 8))
    w = two_racks(low, other, gang("high", 16, priority=10, topology=TopologyWish(tier=1)))
    w.run(rules(*GANG_TIERS, actions=("allocate", "gangpreempt"), grace_ms=60_000), minutes(2))
    assert set(nodes_of(w, "high")) == {"n0", "n1"}
