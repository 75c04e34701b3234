"""State cases: a question about one rule, asked of the compiled function that the session asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gangline.baselines.conformance.cases import Facts, Outcome
from gangline.baselines.conformance.volcano.installation import config_of
from gangline.baselines.conformance.volcano.runs import PodNames, Session
from gangline.baselines.conformance.volcano.world import in_task_order, volcano_world
from gangline.baselines.volcano import session as stages
from gangline.baselines.volcano.gang import counts_suffice
from gangline.baselines.volcano.gang_eviction import (
    find_bundles,
    group_candidates,
    keep_allowed,
    return_on,
    sort_bundles,
    split_job,
)
from gangline.baselines.volcano.nodes import find_quota, score_nodes
from gangline.baselines.volcano.orders import (
    clear_heaps,
    compare_jobs,
    next_task,
    pop_job,
    push_job,
)
from gangline.baselines.volcano.queues import job_enqueueable, job_enqueued, open_queues, update_queue_shares
from gangline.baselines.volcano.resources import (
    above,
    add,
    difference,
    greater_relevant,
    is_equal,
    less_equal,
    less_equal_partly,
    less_equal_with_dimension,
    set_max,
    set_min,
    subtract,
)
from gangline.baselines.volcano.state import Phase, Point, volcano_dtype
from gangline.baselines.volcano.topology import (
    hypernode_scores,
    is_kept,
    open_domains,
    pick_domains,
    reverse_and_cap,
)
from gangline.baselines.volcano.victims import (
    add_candidate,
    choose_evictable,
    choose_victims,
    combine_votes,
    sort_candidates,
)
from gangline.envs.core.compiled import helper, kernel
from gangline.envs.core.types import MAX_RESOURCES, NONE, SIZE_CLASSES
from gangline.envs.core.world import World

Case = Mapping[str, Any]
SMALL = volcano_dtype(SIZE_CLASSES[0])
ROOT = "<cluster-top-hypernode>"
# What a domain of TestHyperNodeGradientPreFiltering offers, ten nodes of 4 cores and 8 GiB; the records leave it out.
DOMAIN_OF_THE_TEST = {"cpu": 40_000, "memory": 80 * 2**30}


@helper
def _open(w: Any, k: Any) -> None:
    stages.open_session(w, k)
    open_queues(w, k)
    open_domains(w, k)


class Asked:
    """A case's world and Volcano's record, for a kernel to open a session in."""

    def __init__(self, case: Case) -> None:
        self.world = World.from_state(volcano_world(case, stated=True).world)
        self.session = Session.of(self.world, config_of(case))
        self.names = PodNames(case.get("pods", []))
        self.by_slot = self.names.by_slot(self.world)

    @property
    def records(self) -> np.ndarray:
        """(1,) Volcano's record."""
        return self.session.private.view(SMALL)

    def job(self, group: str) -> int:
        """Slot of a PodGroup's job."""
        slot = self.world.slot_of(group)
        assert slot is not None
        return slot

    def pod(self, name: str) -> int:
        """Slot of a bound pod."""
        return next(p for p, known in self.by_slot.items() if known == name)

    def pod_set(self, name: str) -> tuple[int, int]:
        """(slot of the job, slot of the pod set) of a pod."""
        group, index = next(key for key, names in self.names.names.items() if name in names)
        slot = self.job(group)
        at = int(self.world.record["jobs"][slot]["first_pod_set"])
        for _ in range(index):
            at = int(self.world.record["pod_sets"][at]["next"])
        return slot, at


# ---------------------------------------------------------------------------------------------------------------
# Gang, phases, amounts
# ---------------------------------------------------------------------------------------------------------------


@kernel
def _counts_suffice(ready: int, pipelined: int, best_effort: int, min_member: int) -> bool:
    return counts_suffice(ready, pipelined, best_effort, min_member)


@kernel
def _skips_condition(waits: bool, scheduled: int, min_member: int) -> bool:
    return stages.skips_condition(waits, scheduled, min_member)


@kernel
def _next_phase(phase: int, min_member: int, running: int, scheduled: int, done: int, condition: bool) -> int:
    return stages.next_phase(phase, min_member, running, scheduled, done, condition)


READY = ("Allocated", "Binding", "Bound", "Running", "Succeeded")
SCHEDULED = ("Running", "Bound", "Failed", "Succeeded")


def _scheduled(tasks: Sequence[Mapping[str, Any]]) -> int:
    return sum(t["status"] in SCHEDULED or (t["status"] == "Releasing" and bool(t["node"])) for t in tasks)


def gang_state(case: Case) -> Outcome:
    """Whether a gang is complete, by the status of its tasks."""
    facts = Facts()
    if case["op"] == "gang_skip_unschedulable_condition":
        tasks = case["tasks"]
        waits = any(t["status"] in ("Pending", "Pipelined") for t in tasks)
        value = _skips_condition(waits, _scheduled(tasks), case["min_available"])
    else:
        counts: Counter[str] = Counter(case["status_counts"])
        pipelined = counts["Pipelined"] if case["op"] == "gang_pipelined" else 0
        ready = sum(counts[status] for status in READY)
        value = _counts_suffice(ready, pipelined, case["pending_best_effort"], case["min_available"])
    facts.check("value", case["expect"]["value"], bool(value))
    return facts.outcome()


def podgroup_phase(case: Case) -> Outcome:
    """Phase at the close of a session."""
    status = Counter(task["status"] for task in case["tasks"])
    phase = _next_phase(
        int(Phase[case["current_phase"].upper()]),
        case["min_member"],
        status["Running"],
        _scheduled(case["tasks"]),
        status["Succeeded"] + status["Failed"],
        case["unschedulable_condition"],
    )
    facts = Facts()
    facts.check("phase", case["expect"]["phase"], Phase(phase).name.capitalize())
    return facts.outcome()


@kernel
def _open_only(worlds: Any, records: Any) -> None:
    _open(worlds[0], records[0])


def elastic_resources(case: Case) -> Outcome:
    """What a job holds beyond its minResources."""
    nodes = {pod["node"] for pod in case["pods"]}
    allocatable = {"cpu": 10**6, "memory": 10**15, "gpu": 8, "pods": 100}
    whole = {
        "queues": [{"name": "q", "weight": 1}],
        "nodes": [{"name": name, "allocatable": allocatable} for name in sorted(nodes)],
        "podgroups": [
            {
                "name": "ns1/job",
                "queue": "q",
                "min_member": case["min_member"],
                "phase": "Running",
                "min_resources": case["min_resources"],
            }
        ],
        "pods": [{**pod, "podgroup": "ns1/job"} for pod in case["pods"]],
    }
    asked = Asked(whole)
    _open_only(asked.world.records, asked.records)
    amounts = asked.records[0]["queues"][0]["elastic"]
    names = asked.world.names.resources
    scale = {name: 1000 if name == asked.world.spec.gpu_resource else 1 for name in names}
    got = {name: int(amounts[r]) // scale[name] for r, name in enumerate(names) if amounts[r]}
    facts = Facts()
    facts.check("elastic", case["expect"]["elastic"], got)
    return facts.outcome()


@kernel
def _share(records: Any) -> float:
    update_queue_shares(records[0], 0)
    return records[0].queues[0].share[1]


class Vectors:
    """Resource objects of a case, in internal magnitudes, as vectors and masks."""

    def __init__(self, *amounts: Mapping[str, Any] | None) -> None:
        scalars = [name for a in amounts for name in self._scalars(a or {})]
        self.names = ["cpu", "memory", *dict.fromkeys(scalars)]
        self.records = np.zeros(1, SMALL)
        k = self.records[0]
        k["cpu"], k["memory"] = 0, 1
        k["pods"] = self.names.index("pods") if "pods" in self.names else NONE
        k["gpu"] = NONE
        k["tolerance"] = 0.1

    @staticmethod
    def _scalars(amounts: Mapping[str, Any]) -> dict[str, Any]:
        flat = {name: value for name, value in amounts.items() if name not in ("cpu", "memory", "scalars")}
        return {**flat, **amounts.get("scalars", {})}

    def flat(self, amounts: Mapping[str, Any] | None) -> dict[str, Any]:
        """Amounts by name, scalars beside cpu and memory."""
        whole = {name: value for name, value in (amounts or {}).items() if name != "scalars"}
        return {**whole, **self._scalars(amounts or {})}

    def of(self, amounts: Mapping[str, Any] | None) -> tuple[np.ndarray, int]:
        """(amounts, mask of what is there)."""
        flat = self.flat(amounts)
        vector = np.zeros(MAX_RESOURCES)
        has = 0
        for r, name in enumerate(self.names):
            if name in flat:
                vector[r] = 1e308 if flat[name] == "max_float64" else flat[name]
                has |= 1 << r
        return vector, has

    def named(self, mask: int) -> list[str]:
        """Names of a mask."""
        return sorted(name for r, name in enumerate(self.names) if mask >> r & 1)


def capacity_share(case: Case) -> Outcome:
    """Share of a queue in the capacity plugin."""
    vectors = Vectors(case["deserved"], case["allocated"])
    queue = vectors.records[0]["queues"][0]
    queue["deserved"][1], queue["deserved_has"][1] = vectors.of(case["deserved"])
    queue["allocated"], _ = vectors.of(case["allocated"])
    facts = Facts()
    facts.check_near("share", case["expect"]["share"], float(_share(vectors.records)), 1e-9)
    return facts.outcome()


@kernel
def _compare(
    records: Any, op: int, a: Any, a_has: int, b: Any, b_has: int, request: Any, has: int, infinity: bool
) -> int:
    k = records[0]
    if op == 0:
        return less_equal(k, a, a_has, b, b_has, infinity)
    if op == 1:
        return above(k, a, a_has, b, b_has, infinity)
    if op == 2:
        return less_equal_with_dimension(k, a, a_has, b, b_has, request, has)
    if op == 3 or op == 4:
        return less_equal_partly(k, a, a_has, b, b_has, request, has, op == 4)
    return greater_relevant(k, a, a_has, b, b_has, request, has)


COMPARISONS = {
    "less_equal": 0,
    "less_equal_with_resource_names": 1,
    "less_equal_with_dimension": 2,
    "less_equal_partly_with_dimension": 3,
    "less_equal_partly_with_dimension_zero_filtered": 4,
    "greater_partly_with_relevant_dimensions": 5,
}


def resource_math(case: Case) -> Outcome:
    """Comparisons of resources that a rule of the baseline makes."""
    if case["op"] in ARITHMETIC:
        return _arithmetic(case)
    if case["op"] not in COMPARISONS:
        return Outcome(skipped=f"no rule of the baseline asks for {case['op']!r}")
    op = COMPARISONS[case["op"]]
    left, right, request = case["left"], case["right"], case.get("req")
    if op == 2 and request is None:
        request = left  # no request: every dimension counts
    vectors = Vectors(left, right, request)
    infinity = case.get("missing_dimension_default") == "infinity"
    found = int(_compare(vectors.records, op, *vectors.of(left), *vectors.of(right), *vectors.of(request), infinity))
    facts = Facts()
    if "names" in case["expect"]:
        facts.check("names", sorted(case["expect"]["names"]), vectors.named(found))
    if "value" in case["expect"]:
        value = found == 0 if op in (1, 2) else found != 0
        facts.check("value", case["expect"]["value"], value)
    return facts.outcome()


@kernel
def _compute(records: Any, op: int, a: Any, b: Any, b_has: int, infinity: bool, decreased: Any) -> bool:
    """`a` becomes the result; of a difference what has increased."""
    k = records[0]
    if op == 0:
        add(a, b)
    elif op == 1:
        subtract(a, b)
    elif op == 2:
        set_max(a, b)
    elif op == 3:
        set_min(k, a, b, b_has, infinity)
    elif op == 4:
        difference(a.copy(), b, a, decreased)
    else:
        return is_equal(k, a, b)
    return True


ARITHMETIC = {"add": 0, "sub": 1, "set_max": 2, "min_dimension": 3, "diff": 4, "equal": 5}


def _arithmetic(case: Case) -> Outcome:
    """What the water filling of proportion does with resources."""
    infinity = case.get("missing_dimension_default") == "infinity"
    if case["op"] == "diff" and infinity:
        return Outcome(skipped="no rule of the baseline asks for 'diff' with absent dimensions as infinite")
    vectors = Vectors(case["left"], case["right"])
    result, decreased = vectors.of(case["left"])[0], np.zeros(MAX_RESOURCES)
    value = _compute(vectors.records, ARITHMETIC[case["op"]], result, *vectors.of(case["right"]), infinity, decreased)
    expect, facts = case["expect"], Facts()
    if "value" in expect:
        facts.check("value", expect["value"], bool(value))
    for key, got in (("result", result), ("increased", result), ("decreased", decreased)):
        if key in expect:
            want = {name: amount for name, amount in vectors.flat(expect[key]).items() if amount}
            facts.check(key, want, {name: float(got[r]) for r, name in enumerate(vectors.names) if got[r]})
    return facts.outcome()


# ---------------------------------------------------------------------------------------------------------------
# Queues and orders
# ---------------------------------------------------------------------------------------------------------------


@kernel
def _ask_enqueueable(worlds: Any, records: Any, slot: int, with_hook: bool) -> bool:
    w, k = worlds[0], records[0]
    _open(w, k)
    if with_hook:
        job_enqueued(w, k, slot)
    return job_enqueueable(w, k, slot)


def enqueueable(case: Case) -> Outcome:
    """Whether a PodGroup may be admitted, after it was."""
    asked = Asked(case)
    slot = asked.job(case["podgroups"][0]["name"])
    value = _ask_enqueueable(asked.world.records, asked.records, slot, case["call_enqueued_hook_before_check"])
    facts = Facts()
    facts.check("enqueueable", case["expect"]["enqueueable"], bool(value))
    return facts.outcome()


@kernel
def _ask_job_order(worlds: Any, records: Any, a: int, b: int) -> int:
    _open(worlds[0], records[0])
    return compare_jobs(worlds[0], records[0], a, b)


def sla(case: Case) -> Outcome:
    """Deadlines of two jobs that were created long ago."""
    group = {"queue": "q", "min_member": 1, "phase": "Pending", "min_resources": {}}
    sides = {"left": case["left"], "right": case["right"]}
    whole = {
        "tiers": case["tiers"],
        "queues": [{"name": "q", "weight": 1}],
        "podgroups": [
            {**group, "name": f"ns/{side}", "created": -(10**12), "sla_waiting_s": given["waiting_time_s"]}
            for side, given in sides.items()
        ],
    }
    asked = Asked(whole)
    left, right = asked.job("ns/left"), asked.job("ns/right")
    order = _ask_job_order(asked.world.records, asked.records, left, right)
    facts = Facts()
    facts.check("left_before_right", case["expect"]["left_before_right"], order < 0)
    value = _ask_enqueueable(asked.world.records, asked.records, left, False)
    facts.check("left_enqueueable", case["expect"]["left_enqueueable"], bool(value))
    return facts.outcome()


@kernel
def _ask_backfill_order(worlds: Any, records: Any, into: Any) -> int:
    """Pod sets of best-effort tasks in the order in which backfill tries them."""
    w, k = worlds[0], records[0]
    _open(w, k)
    clear_heaps(w, k)
    for slot in range(w.jobs_used):
        if k.jobs[slot].is_in and k.jobs[slot].pending_best_effort > 0:
            push_job(w, k, slot)
    count = 0
    for q in range(k.num_queues):
        while k.queues[q].size > 0:
            slot = pop_job(w, k, q)
            ps = next_task(w, k, slot, NONE, True)
            while ps != NONE:
                into[count] = ps
                count += 1
                k.sets[ps].skipped += 1
                ps = next_task(w, k, slot, NONE, True)
    return count


def backfill_order(case: Case) -> Outcome:
    """Best-effort pods one after another; pipelined ones are pending again by then."""
    whole = {**case, "pods": [{**pod, "task": ""} for pod in case["pods"]], "nodes": []}
    asked = Asked(whole)
    into = np.zeros(len(case["pods"]), np.int64)
    count = _ask_backfill_order(asked.world.records, asked.records, into)
    taken: Counter[int] = Counter()
    order = []
    jobs, sets = asked.world.record["jobs"], asked.world.record["pod_sets"]
    for ps in into[:count]:
        job = asked.world.job_name(int(jobs[int(sets[ps]["job"])]["row"]))
        order.append(asked.names.names[job, int(sets[ps]["index"])][taken[int(ps)]])
        taken[int(ps)] += 1
    facts = Facts()
    facts.check("order", case["expect"]["order"], order)
    return facts.outcome()


# ---------------------------------------------------------------------------------------------------------------
# Victims
# ---------------------------------------------------------------------------------------------------------------


@kernel
def _ask_victims(worlds: Any, records: Any, pods: Any, slot: int, ps: int, chooses: bool) -> None:
    """Candidates into victim order, and what the plugins give up of them."""
    w, k = worlds[0], records[0]
    _open(w, k)
    k.num_candidates = 0
    for i in range(len(pods)):
        add_candidate(k, pods[i])
    sort_candidates(w, k, NONE)
    if chooses:
        choose_victims(w, k, Point.PREEMPTABLE, slot, ps)


def victim_order(case: Case) -> Outcome:
    """Who is evicted first."""
    asked = Asked(case)
    pods = np.array([asked.pod(name) for name in case["candidates"]], np.int64)
    _ask_victims(asked.world.records, asked.records, pods, 0, 0, False)
    facts = Facts()
    facts.check("first_evicted", case["expect"]["first_evicted"], asked.by_slot[int(asked.records[0]["candidates"][0])])
    if "job_order_equal" in case["expect"]:
        groups = [asked.pod_set(name)[0] for name in case["candidates"]]
        order = _ask_job_order(asked.world.records, asked.records, groups[0], groups[1])
        facts.check("job_order_equal", case["expect"]["job_order_equal"], order == 0)
    return facts.outcome()


def conformance(case: Case) -> Outcome:
    """Pods of the system are no victims."""
    names = [candidate["pod"] for candidate in case["candidates"]]
    whole = {
        "tiers": case["tiers"],
        "queues": [{"name": "q", "weight": 1}],
        "nodes": [{"name": "n", "allocatable": {"cpu": 1000, "memory": 1000, "pods": 10}}],
        "podgroups": [{"name": "ns/job", "queue": "q", "min_member": 0, "phase": "Running"}],
        "pods": [
            {"name": name, "podgroup": "ns/job", "requests": {"cpu": 1}, "node": "n", "phase": "Running", "task": name}
            for name in names
        ],
    }
    asked = Asked(whole)
    pods = np.array([asked.pod(name) for name in names], np.int64)
    _ask_victims(asked.world.records, asked.records, pods, 0, 0, True)
    k = asked.records[0]
    victims = sorted(asked.by_slot[int(p)] for p in k["victims"][: int(k["num_victims"])])
    facts = Facts()
    facts.check("victims", sorted(case["expect"]["victims"]), victims)
    return facts.outcome()


@kernel
def _combine(records: Any) -> None:
    combine_votes(records[0])


def tier_victims(case: Case) -> Outcome:
    """How tiers combine what their plugins allow."""
    records = np.zeros(1, SMALL)
    k = records[0]
    candidates = case["candidates"]
    k["num_candidates"] = len(candidates)
    for tier, entry in enumerate(case["tiers"]):
        for plugin in entry["plugins"]:
            i = int(k["num_plugins"])
            k["num_plugins"] += 1
            k["plugins"][i]["tier"] = tier
            k["votes"][i] = plugin["vote"] == "permit"
            for c, name in enumerate(candidates):
                k["allowed"][i, c] = name in plugin["allows"]
    _combine(records)
    facts = Facts()
    got = [name for c, name in enumerate(candidates) if k["is_victim"][c]]
    facts.check("victims", case["expect"]["victims"], got)
    return facts.outcome()


# ---------------------------------------------------------------------------------------------------------------
# Scores and domains
# ---------------------------------------------------------------------------------------------------------------


@kernel
def _ask_node_scores(worlds: Any, records: Any, slot: int, ps: int, nodes: Any) -> None:
    w, k = worlds[0], records[0]
    _open(w, k)
    find_quota(w, k, slot)
    for i in range(len(nodes)):
        k.feasible[i] = nodes[i]
    score_nodes(w, k, slot, ps, 0, len(nodes))


def node_scores(case: Case) -> Outcome:
    """Sum of the node scores of each pod, on each node or on the candidate nodes."""
    facts = Facts()
    expect = case["expect"]["scores"]
    per_pod = {case["subject"]["pod"]: expect} if "subject" in case else expect
    for pod, scores in per_pod.items():
        asked = Asked(case)
        nodes = case.get("candidate_nodes", list(scores))
        indices = np.array([asked.world.names.nodes.index(name) for name in nodes], np.int64)
        _ask_node_scores(asked.world.records, asked.records, *asked.pod_set(pod), indices)
        for name, want in scores.items():
            got = float(asked.records[0]["score"][asked.world.names.nodes.index(name)])
            facts.check_near(f"score of {pod} on {name}", want, got, case["tolerance"])
    return facts.outcome()


@kernel
def _ask_hypernode_scores(worlds: Any, records: Any, slot: int, sub_job: int, domains: Any, into: Any) -> None:
    w, k = worlds[0], records[0]
    _open(w, k)
    for i in range(len(domains)):
        k.domains[0, i] = domains[i]
    hypernode_scores(w, k, slot, sub_job, 0, 0, len(domains), into)


def hypernode_score(case: Case) -> Outcome:
    """Scores of hypernodes for a sub-group."""
    asked = Asked(case)
    names = case["candidate_hypernodes"]
    known = [name.partition("/")[2] for name in asked.world.names.domains]
    domains = np.array([len(known) if name == ROOT else known.index(name) for name in names], np.int64)
    first = in_task_order(case["pods"])[0]
    slot, ps = asked.pod_set(first["name"])
    into = np.zeros(len(names))
    named = asked.records[0]["named_sets"]
    sub_job = int(named[int(asked.world.record["pod_sets"][ps]["index"])]["sub_job"])
    _ask_hypernode_scores(asked.world.records, asked.records, slot, sub_job, domains, into)
    facts = Facts()
    for name, want in case["expect"]["scores"].items():
        facts.check_near(f"score of {name}", want, float(into[names.index(name)]), case["tolerance"])
    return facts.outcome()


@kernel
def _ask_kept(records: Any, wanted: Any, idle: Any, future: Any) -> bool:
    return is_kept(records[0], wanted, idle, future)


def hypernode_prefilter(case: Case) -> Outcome:
    """Whether a domain stays in the gradient."""
    wanted, idle, future = case["min_resource"], case["domain_idle"], case["domain_future_idle"]
    if case["purpose"] == "evict":  # everybody may go: what counts is how much there is
        idle = future = case.get("domain_allocatable", DOMAIN_OF_THE_TEST)
    vectors = Vectors(wanted, idle, future)
    kept = _ask_kept(vectors.records, vectors.of(wanted)[0], vectors.of(idle)[0], vectors.of(future)[0])
    facts = Facts()
    facts.check("domain_kept", case["expect"]["domain_kept"], bool(kept))
    return facts.outcome()


# ---------------------------------------------------------------------------------------------------------------
# gangpreempt and gangreclaim
# ---------------------------------------------------------------------------------------------------------------

ROOM = {"cpu": 10**6, "memory": 10**15, "gpu": 8, "pods": 1000}  # of nodes of which a case says nothing
EVICTION_KINDS = ("gang_preempt", "gang_reclaim")
GANG_ACTIONS = ("gangpreempt", "gangreclaim")
PERMITS_ALL = {"name": "gang", "enabled": []}  # gang gives up everybody to these actions


def _bundles_of(k: Any) -> list[tuple[str, list[int]]]:
    """(type, candidates) of each bundle, in order."""
    found = []
    for b in k["bundle_order"][: int(k["num_bundles"])]:
        bundle = k["bundles"][int(b)]
        first, count = int(bundle["first"]), int(bundle["count"])
        pods = [int(p) for p in k["candidates"][first : first + count]]
        found.append(("whole" if bundle["is_whole"] else "safe", pods))
    return found


@kernel
def _ask_split(worlds: Any, records: Any, pods: Any, slot: int, sizes: Any, need: Any) -> None:
    w, k = worlds[0], records[0]
    _open(w, k)
    for i in range(len(sizes)):
        k.sub_jobs[k.jobs[slot].first_sub_job + i].size = sizes[i]
    k.num_candidates = 0
    k.num_bundles = 0
    for i in range(len(pods)):
        add_candidate(k, pods[i])
    group_candidates(w, k)
    split_job(w, k, slot, 0, len(pods), need)


def gang_bundles(case: Case) -> Outcome:
    """A job's pods in a domain, split into those that it can lose and the others."""
    job = case["job"]
    sub_jobs = {s["name"]: s for s in job.get("sub_jobs", [])}
    policies = [
        {
            "name": group,
            "match_label_keys": [group],
            "sub_group_size": min((s["min_available"] for s in sub_jobs.values() if s["group"] == group), default=1),
            "min_sub_groups": job.get("min_sub_groups", {}).get(group),
        }
        for group in dict.fromkeys([*job.get("min_sub_groups", {}), *(s["group"] for s in sub_jobs.values())])
    ]
    pods = [
        {
            "name": f"ns/{task['uid']}",
            "podgroup": "ns/job",
            "requests": task["resreq"],
            "node": "n" if task["status"] not in ("Pending", "Pipelined") else None,
            "phase": task["status"],
            "priority": task["priority"],
            "task": task.get("role", ""),
            "labels": {sub_jobs[task["sub_job"]]["group"]: task["sub_job"]} if "sub_job" in task else {},
        }
        for task in job["tasks"]
    ]
    group = {"name": "ns/job", "queue": "q", "min_member": job["min_available"], "phase": "Running"}
    whole = {
        "queues": [{"name": "q", "weight": 1}],
        "nodes": [{"name": "n", "allocatable": ROOM}],
        "podgroups": [{**group, "min_task_member": job.get("min_task_member", {}), "sub_group_policy": policies}],
        "pods": pods,
    }
    asked = Asked(whole)
    order = [policy["name"] for policy in policies]
    known = sorted(
        {task["sub_job"] for task in job["tasks"] if "sub_job" in task}, key=lambda name: _place(name, sub_jobs, order)
    )
    sizes = np.array([sub_jobs[name]["min_available"] for name in known], np.int64)
    candidates = np.array([asked.pod(f"ns/{name}") for name in case["local_candidates"]], np.int64)
    _ask_split(asked.world.records, asked.records, candidates, asked.job("ns/job"), sizes, np.zeros(MAX_RESOURCES))
    found = _bundles_of(asked.records[0])
    facts = Facts()
    want = case["expect"]["bundles"]
    facts.check("bundles", [(b["type"], b["size"]) for b in want], [(kind, len(p)) for kind, p in found])
    for bundle, (kind, members) in zip(want, found, strict=False):
        if "tasks" in bundle:
            facts.check(
                f"{kind} tasks", [f"ns/{name}" for name in bundle["tasks"]], [asked.by_slot[p] for p in members]
            )
    return facts.outcome()


def _place(name: str, sub_jobs: Mapping[str, Any], groups: list[str]) -> tuple[int, str]:
    """Where a sub-group stands among a job's: by policy, then by name."""
    return groups.index(sub_jobs[name]["group"]), name


@kernel
def _ask_return(need: Any, local: Any, whole: Any) -> float:
    return return_on(need, local, whole)


@kernel
def _sort_bundles(records: Any) -> None:
    sort_bundles(records[0])


def gang_bundle_order(case: Case) -> Outcome:
    """Who goes first: safe before whole, the victims' order, the better return, names."""
    given = case["bundles"]
    vectors = Vectors(case["need"], *(b.get(key) for b in given for key in ("local", "global")))
    k = vectors.records[0]
    k["num_bundles"] = len(given)
    k["bundle_order"][: len(given)] = np.arange(len(given))
    by_priority = case.get("victim_job_order") is not None
    queues = sorted({b.get("queue", "") for b in given}) if case.get("queue_order") is not None else []
    jobs = sorted({b.get("job", "") for b in given})
    tasks = sorted(b["task"] for b in given)
    for i, bundle in enumerate(given):
        record = k["bundles"][i]
        record["is_whole"] = bundle["type"] == "whole"
        record["order"] = bundle.get("job_priority", 0) if by_priority else 0
        if queues:
            record["order"] = queues.index(bundle.get("queue", ""))
        amounts = [vectors.of(side)[0] for side in (case["need"], bundle["local"], bundle.get("global"))]
        record["roi"] = _ask_return(*amounts)
        record["job_rank"] = jobs.index(bundle.get("job", ""))
        record["pod_rank"] = tasks.index(bundle["task"])
        record["count"] = bundle.get("size", 1)
    _sort_bundles(vectors.records)
    order = [given[int(b)]["task"] for b in k["bundle_order"][: len(given)]]
    facts = Facts()
    if "order" in case["expect"]:
        facts.check("order", case["expect"]["order"], order)
    if "first" in case["expect"]:
        facts.check("first", case["expect"]["first"], order[0])
    return facts.outcome()


@kernel
def _keep_allowed(records: Any, allow_whole: bool) -> None:
    keep_allowed(records[0], allow_whole)


def gang_bundle_filter(case: Case) -> Outcome:
    """What stays of bundles once plugins have said whom they give up."""
    records = np.zeros(1, SMALL)
    k = records[0]
    names = [name for bundle in case["bundles"] for name in bundle["tasks"]]
    first = 0
    for i, bundle in enumerate(case["bundles"]):
        record = k["bundles"][i]
        record["is_whole"] = bundle["type"] == "whole"
        record["first"], record["count"] = first, len(bundle["tasks"])
        first += len(bundle["tasks"])
    k["num_bundles"] = len(case["bundles"])
    k["bundle_order"][: len(case["bundles"])] = np.arange(len(case["bundles"]))
    k["candidates"][: len(names)] = np.arange(len(names))
    k["is_victim"][: len(names)] = [name in case["allowed"] for name in names]
    _keep_allowed(records, case.get("allow_whole_bundle", True))
    got = [{"type": kind, "tasks": [names[p] for p in pods]} for kind, pods in _bundles_of(k)]
    facts = Facts()
    facts.check("bundles", case["expect"]["bundles"], got)
    return facts.outcome()


@kernel
def _ask_bundles(worlds: Any, records: Any, slot: int, domain: int, need: Any, reclaims: bool) -> None:
    w, k = worlds[0], records[0]
    _open(w, k)
    find_bundles(w, k, slot, domain, need, reclaims)


def gang_domain_victims(case: Case) -> Outcome:
    """Whom a gang may push out of a domain."""
    requester, domain = case["requester"], case["domain"]
    others = case["victim_jobs"] if "victim_jobs" in case else [case["victim_job"]]
    queues = case.get("queues") or [
        {"name": name, "weight": 1} for name in sorted({job["queue"] for job in (requester, *others)})
    ]
    tier = {"plugins": [PERMITS_ALL]}
    groups = [
        {
            "name": job["job"],
            "queue": job["queue"],
            "min_member": job.get("min_available", 1),
            "phase": "Running" if job is not requester else "Inqueue",
            "priority_class": job["job"],
            "preemptable": job.get("podgroup_preemptable"),
        }
        for job in (requester, *others)
    ]
    running = [{**pod, "podgroup": job["job"], "phase": "Running"} for job in others for pod in job["running"]]
    pending = [{**pod, "podgroup": requester["job"], "phase": "Pending", "node": None} for pod in requester["pending"]]
    whole = {
        "tiers": case.get("tiers") or [tier],
        "action_arguments": {case["action"]: {"allowWholeBundle": case.get("allow_whole_bundle", True)}},
        "priority_classes": [{"name": job["job"], "value": job.get("priority", 0)} for job in (requester, *others)],
        "queues": queues,
        "nodes": [{"name": name, "allocatable": ROOM} for name in domain["nodes"]],
        "hypernodes": [{"name": domain["name"], "tier": 1, "nodes": domain["nodes"]}],
        "podgroups": groups,
        "pods": running + pending,
    }
    asked = Asked(whole)
    need = np.zeros(MAX_RESOURCES)
    for pod in requester["pending"]:
        for name, amount in pod["requests"].items():
            need[asked.world.names.resources.index(name)] += amount
    known = [name.partition("/")[2] for name in asked.world.names.domains]
    reclaims = case["action"] == GANG_ACTIONS[1]
    slot = asked.job(requester["job"])
    _ask_bundles(asked.world.records, asked.records, slot, known.index(domain["name"]), need, reclaims)
    victims = [asked.by_slot[p] for _, pods in _bundles_of(asked.records[0]) for p in pods]
    facts = Facts()
    facts.check("victims", sorted(case["expect"]["victims"]), sorted(victims))
    return facts.outcome()


@kernel
def _ask_evictable(worlds: Any, records: Any, pods: Any, slot: int, reclaims: bool) -> None:
    w, k = worlds[0], records[0]
    _open(w, k)
    k.num_candidates = 0
    for i in range(len(pods)):
        add_candidate(k, pods[i])
    choose_evictable(w, k, slot, reclaims)


def gang_evictable(case: Case) -> Outcome:
    """Whom plugins give up for a gang, by the priority of the jobs."""
    candidates = case["victim_candidates"]
    group = {"queue": "q", "min_member": 0, "phase": "Running"}
    whole = {
        "tiers": case["tiers"],
        "queues": [{"name": "q", "weight": 1}],
        "nodes": [{"name": "n", "allocatable": ROOM}],
        "priority_classes": [
            {"name": "requester", "value": case["requester_job_priority"]},
            *({"name": c["pod"], "value": c["job_priority"]} for c in candidates),
        ],
        "podgroups": [
            {**group, "name": "ns/requester", "priority_class": "requester"},
            *({**group, "name": c["pod"], "priority_class": c["pod"]} for c in candidates),
        ],
        "pods": [
            {
                "name": c["pod"],
                "podgroup": c["pod"],
                "requests": {"cpu": 1},
                "node": "n",
                "phase": "Running",
                "task": "",
            }
            for c in candidates
        ],
    }
    asked = Asked(whole)
    pods = np.array([asked.pod(c["pod"]) for c in candidates], np.int64)
    reclaims = case["eviction_kind"] == EVICTION_KINDS[1]
    _ask_evictable(asked.world.records, asked.records, pods, asked.job("ns/requester"), reclaims)
    k = asked.records[0]
    victims = [c["pod"] for i, c in enumerate(candidates) if k["is_victim"][i]]
    facts = Facts()
    facts.check("victims", case["expect"]["victims"], victims)
    return facts.outcome()


def _write_gradient(k: Any, rows: Sequence[Sequence[str]]) -> tuple[list[str], int]:
    """Domains of a gradient, row by row; returns their names and how many entries there are."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    entries = [(names.index(name), tier) for tier, row in enumerate(rows) for name in row]
    for i, (domain, tier) in enumerate(entries):
        k["domains"][0, i], k["domain_tiers"][0, i] = domain, tier
    return names, len(entries)


@kernel
def _reverse_and_cap(records: Any, count: int, most: int) -> int:
    return reverse_and_cap(records[0], 0, count, most)


def eviction_gradient_cap(case: Case) -> Outcome:
    """Wide domains first, and only some of them."""
    records = np.zeros(1, SMALL)
    k = records[0]
    names, count = _write_gradient(k, case["gradients"])
    left = _reverse_and_cap(records, count, case["max_hypernodes"])
    rows: dict[int, list[str]] = {}
    for i in range(left):
        rows.setdefault(int(k["domain_tiers"][0, i]), []).append(names[int(k["domains"][0, i])])
    facts = Facts()
    facts.check("gradients", case["expect"]["gradients"], list(rows.values()))
    return facts.outcome()


@kernel
def _pick_domains(records: Any, count: int, most: int, fallback: int) -> int:
    return pick_domains(records[0], count, most, fallback)


def domain_pick(case: Case) -> Outcome:
    """The first different domains of a gradient, or the fallback."""
    records = np.zeros(1, SMALL)
    k = records[0]
    names, count = _write_gradient(k, case["gradients"])
    fallback = NONE
    if case["fallback"] is not None:
        fallback = len(names)
        names.append(case["fallback"])
    picked = _pick_domains(records, count, case["max_domains"], fallback)
    facts = Facts()
    facts.check("domains", case["expect"]["domains"], [names[int(d)] for d in k["picked"][:picked]])
    return facts.outcome()


QUESTIONS: dict[str, Callable[[Case], Outcome]] = {
    "backfill_order": backfill_order,
    "capacity_share": capacity_share,
    "conformance": conformance,
    "elastic_resources": elastic_resources,
    "gang_state": gang_state,
    "hypernode_prefilter": hypernode_prefilter,
    "hypernode_score": hypernode_score,
    "job_enqueueable": enqueueable,
    "node_score": node_scores,
    "node_score_topology": node_scores,
    "podgroup_phase": podgroup_phase,
    "resource_math": resource_math,
    "sla": sla,
    "tier_victims": tier_victims,
    "victim_order": victim_order,
    "domain_pick": domain_pick,
    "eviction_gradient_cap": eviction_gradient_cap,
    "gang_bundle_filter": gang_bundle_filter,
    "gang_bundle_order": gang_bundle_order,
    "gang_bundles": gang_bundles,
    "gang_domain_victims": gang_domain_victims,
    "gang_evictable_priority": gang_evictable,
}
