"""Session cases: a cluster, one session with the case's actions, what was bound, evicted and reserved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gangline.baselines.conformance.cases import Facts, Outcome
from gangline.baselines.conformance.volcano.installation import config_of
from gangline.baselines.conformance.volcano.world import in_task_order, pod_sets_of, volcano_world
from gangline.baselines.volcano import Volcano, volcano
from gangline.baselines.volcano.config import VolcanoConfig
from gangline.baselines.volcano.state import Phase, volcano_dtype
from gangline.envs.core.types import NEVER, NONE, PodState, SizeClass
from gangline.envs.core.world import World

Case = Mapping[str, Any]
FOREVER = int(NEVER) // 4  # grace: an evicted pod keeps releasing


@dataclass
class Session:
    """A world, the scheduler that decides in it, and the record that the scheduler keeps."""

    world: World
    scheduler: Volcano
    private: np.ndarray

    @classmethod
    def of(cls, world: World, config: VolcanoConfig) -> Session:
        """One session a decision; evicted pods stay releasing."""
        scheduler = volcano(config, grace_ms=FOREVER, one_session=True)
        return cls(world, scheduler, scheduler.private_for(world))

    @property
    def record(self) -> np.void:
        """Volcano's record."""
        record: np.void = self.private.view(volcano_dtype(self.world.size))[0]
        return record

    def compiled(self, size: SizeClass) -> Any:
        """The scheduler's door."""
        return self.scheduler.compiled(size)

    def private_for(self, world: World) -> np.ndarray:
        """The record is kept, to be read afterwards."""
        return self.private

    def run(self) -> None:
        """Exactly one session."""
        self.world.cycles(self, 1)


class PodNames:
    """Which recorded pod is which: of a pod set the bound ones in order, then the pending ones in task order."""

    def __init__(self, pods: list[dict[str, Any]]) -> None:
        self.names: dict[tuple[str, int], list[str]] = {}
        ordered = in_task_order(pods)
        for group in dict.fromkeys(pod["podgroup"] for pod in ordered):
            sets = pod_sets_of([pod for pod in ordered if pod["podgroup"] == group])
            for i, pod_set in enumerate(sets):
                bound = [pod["name"] for pod in pod_set if pod.get("node")]
                self.names[group, i] = bound + [pod["name"] for pod in pod_set if not pod.get("node")]

    def by_slot(self, world: World) -> dict[int, str]:
        """Name of each live pod by its slot."""
        found: dict[int, str] = {}
        for job in world.record["jobs"][: int(world.record["jobs_used"])]:
            counts: Counter[int] = Counter()
            at = int(job["first_pod"]) if job["state"] else NONE
            while at != NONE:
                pod = world.record["pods"][at]
                index = int(world.record["pod_sets"][int(pod["pod_set"])]["index"])
                found[at] = self.names[world.job_name(int(job["row"])), index][counts[index]]
                counts[index] += 1
                at = int(pod["next"])
        return found


def _bound(world: World, names: Mapping[int, str]) -> dict[str, str]:
    pods = world.record["pods"]
    return {name: world.names.nodes[int(pods[p]["node"])] for p, name in names.items()}


def run_session(case: Case) -> Outcome:
    """One session, and everything that the case expects of it."""
    loaded = volcano_world(case, stated=True)
    world = World.from_state(loaded.world)
    session = Session.of(world, config_of(case))
    names = PodNames(case.get("pods", []))
    before = set(names.by_slot(world))
    session.run()
    by_slot = names.by_slot(world)
    binds = {name: node for name, node in _bound(world, by_slot).items() if _slot(by_slot, name) not in before}
    k = session.record
    evicted = sorted(by_slot[int(p)] for p in k["evicted_now"][: int(k["num_evicted"])])
    releasing = sorted(by_slot[p] for p in by_slot if world.record["pods"][p]["state"] == PodState.RELEASING)
    facts = Facts()
    expect = case["expect"]
    if "binds" in expect:
        facts.check("binds", expect["binds"], binds)
    if "bind_count" in expect:
        facts.check("bind_count", expect["bind_count"], len(binds))
    if "evict_count" in expect:
        facts.check("evict_count", expect["evict_count"], len(evicted))
    if "evicted" in expect:
        facts.check("evicted", sorted(expect["evicted"]), evicted)
    facts.check("pods that are releasing", evicted, releasing)
    _check_pipelined(case, session, facts)
    for group, phase in expect.get("podgroup_phase", {}).items():
        slot = world.slot_of(group)
        facts.check(f"phase of {group}", phase, Phase(int(k["jobs"][slot]["phase"])).name.capitalize())
    if "bind_counts_per_lowest_hypernode_sorted" in expect:
        lowest = min(h["tier"] for h in case["hypernodes"])
        leaves = [h for h in case["hypernodes"] if h["tier"] == lowest]
        counts = sorted(sum(node in h["nodes"] for node in binds.values()) for h in leaves)
        want = expect["bind_counts_per_lowest_hypernode_sorted"]
        facts.check("bind_counts_per_lowest_hypernode_sorted", want, counts[len(counts) - len(want) :])
    for group, want in expect.get("allocated", {}).items():
        r = world.names.resources
        amounts = k["jobs"][world.slot_of(group)]["allocated"]
        got = {name: int(amounts[r.index(name)]) for name in want}
        facts.check(f"allocated of {group}", want, got)
    return facts.outcome()


def _slot(by_slot: Mapping[int, str], name: str) -> int:
    return next(p for p, known in by_slot.items() if known == name)


def _check_pipelined(case: Case, session: Session, facts: Facts) -> None:
    k, world = session.record, session.world
    for group, nodes in case["expect"].get("pipelined_nodes", {}).items():
        slot = world.slot_of(group)
        kept = [row for row in k["kept"][: int(k["num_kept"])] if row["slot"] == slot]
        got = [world.names.nodes[int(row["node"])] for row in kept]
        if not got or not set(got) <= set(nodes):
            facts.check(f"pipelined nodes of {group}", nodes, got)


def run_cycles(case: Case) -> Outcome:
    """Several sessions; PodGroups are added before each."""
    loaded = volcano_world(case, stated=True)
    world = World.from_state(loaded.world)
    pods = [pod for cycle in case["cycles"] for pod in cycle.get("add_pods", [])]
    names = PodNames(pods)
    facts = Facts()
    for i, cycle in enumerate(case["cycles"]):
        world.advance(i)
        before = set(names.by_slot(world))
        Session.of(world, config_of(case, cycle)).run()
        by_slot = names.by_slot(world)
        bound = sorted(name for p, name in by_slot.items() if p not in before)
        facts.check(f"bound in cycle {i + 1}", sorted(cycle["expect"]["bound"]), bound)
    return facts.outcome()


RUNS: dict[str, Callable[[Case], Outcome]] = {
    **dict.fromkeys(
        (
            "allocate",
            "allocate_fair_share",
            "allocate_subgroup_topology",
            "allocate_topology",
            "capacity_enqueue",
            "capacity_flat",
            "capacity_hierarchy",
            "enqueue",
            "enqueue_side_effect",
            "hdrf",
            "nodeorder",
            "preempt",
            "preempt_topology_aware",
            "priority",
            "proportion",
            "reclaim",
            "shuffle",
        ),
        run_session,
    ),
    "two_cycle_enqueue": run_cycles,
}
