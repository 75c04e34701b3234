"""How each kind of recorded case is run, and what is compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gangline.baselines.conformance.cases import Facts, Outcome
from gangline.baselines.conformance.kueue.config import kueue_config
from gangline.baselines.conformance.kueue.questions import Question, answer
from gangline.baselines.conformance.kueue.world import (
    COHORT,
    TAS_JOB,
    UNLIMITED,
    Units,
    device_backed,
    kueue_nodes,
    kueue_topologies,
    kueue_world,
)
from gangline.baselines.kueue import Kueue, kueue
from gangline.baselines.kueue.state import REASONS, Bucket, Fit, Mode, Reason, kueue_dtype
from gangline.envs.core.spec import ChangeSpec, Command
from gangline.envs.core.types import MAX_QUOTA_CELLS, NEVER, NONE, SIZE_CLASSES, JobState, SizeClass
from gangline.envs.core.world import World

Case = Mapping[str, Any]
HOSTNAME = "kubernetes.io/hostname"
MODES = {Mode.NO_FIT: "NoFit", Mode.PREEMPT: "Preempt", Mode.DEFERRED_FIT: "DeferredFit", Mode.FIT: "Fit"}
FITS = {
    "NoFit": Fit.NO_FIT,
    "NoCandidates": Fit.NO_CANDIDATES,
    "Preempt": Fit.PREEMPT,
    "Reclaim": Fit.RECLAIM,
    "Fit": Fit.FIT,
}


class Run:
    """A world of a case under Kueue, whose record lives from one question to the next."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.units = Units(device_backed(node["free"] for node in kueue_nodes(case)))
        spec = kueue_world(case).world
        small, medium = SIZE_CLASSES[:2]
        is_small = len(spec.nodes) <= small.max_nodes and len(spec.domains) <= small.max_domains
        self.world = World(spec, size=small if is_small else medium)
        self.scheduler: Kueue = kueue(kueue_config(case), grace_ms=int(NEVER), one_cycle=True)
        self.private = self.scheduler.private_for(self.world)
        layout = kueue_dtype(self.world.size)
        self.k = self.private[: layout.itemsize].view(layout)[0]
        self.numbers = np.zeros(64, np.int64)
        self.reals = np.zeros(1, np.float64)

    def compiled(self, size: SizeClass) -> Any:
        """The scheduler's door."""
        return self.scheduler.compiled(size)

    def private_for(self, world: World) -> np.ndarray:
        """The record of this run."""
        return self.private

    def cycle(self) -> None:
        """One cycle at the current time."""
        self.world.cycles(self, 1)
        self.look()

    def look(self) -> None:
        """Let Kueue notice what has happened."""
        self.k["only_looks"] = True
        self.k["one_cycle"] = False
        self.world.cycles(self, 1)
        self.k["only_looks"] = False
        self.k["one_cycle"] = True

    def ask(self, question: Question, a: int = 0, b: int = 0) -> None:
        """Ask one rule."""
        answer(self.world.records, self.private, question, a, b, self.numbers, self.reals)

    # -- reading -----------------------------------------------------------------------------------------------

    def queue(self, name: str) -> int:
        """Index of a ClusterQueue."""
        return self.world.names.queues.index(name)

    def amount(self, resource: str, value: int) -> int | str:
        """An amount of the core in the record's units."""
        return "inf" if value >= UNLIMITED // 2 else value // self.units.scale(resource)

    def slots(self) -> dict[str, int]:
        """Slot of each live job by name."""
        jobs = self.world.record["jobs"][: int(self.world.record["jobs_used"])]
        return {
            self.world.job_names[int(job["row"])]: slot
            for slot, job in enumerate(jobs)
            if job["state"] != JobState.FREE
        }

    def reserved(self) -> list[str]:
        """Workloads that hold quota, those being evicted included."""
        return sorted(n for n, s in self.slots().items() if self.k["workloads"][s]["bucket"] == Bucket.RESERVED)

    def evicted(self) -> dict[str, str]:
        """Reason of the eviction of each workload that is being evicted."""
        workloads = self.k["workloads"]
        return {
            n: REASONS[Reason(int(workloads[s]["reason"]))]
            for n, s in self.slots().items()
            if workloads[s]["bucket"] == Bucket.RESERVED and workloads[s]["is_evicted"]
        }

    def pending(self, bucket: str) -> dict[str, list[str]]:
        """Names by ClusterQueue of the workloads in the heaps `active` or `inadmissible`."""
        found: dict[str, list[str]] = {}
        for group in self.k["groups"][: int(self.k["groups_used"])]:
            for slot in self._in_heap(int(group[bucket])):
                row = int(self.world.record["jobs"][slot]["row"])
                found.setdefault(self.world.names.queues[int(group["queue"])], []).append(self.world.job_names[row])
        return {queue: sorted(names) for queue, names in found.items()}

    def _in_heap(self, root: int) -> Iterable[int]:
        todo = [root] if root != NONE else []
        while todo:
            at = todo.pop()
            yield at
            note = self.k["workloads"][at]
            todo += [int(note[link]) for link in ("child", "next") if note[link] != NONE]

    def assignment(self, name: str) -> list[dict[str, Any]]:
        """Pod sets of a workload that holds quota, as the cases write them."""
        spec = next(w for w in self.workloads() if w["name"] == name)
        job = self.world.record["jobs"][self.slots()[name]]
        pod_sets = []
        for recorded, pods in zip(spec["pod_sets"], self.world.pod_sets_of(job), strict=True):
            count = int(pods["num_admitted"])
            flavors, usage = {}, {}
            for r, resource in enumerate(self.world.names.resources):
                flavor = int(pods["admitted_flavor"][r])
                if int(pods["asked"]) >> r & 1 and flavor != NONE:
                    flavors[resource] = self.world.names.flavors[flavor]
                    usage[resource] = self.amount(resource, count * int(pods["request"][r]))
            usage = {r: v for r, v in usage.items() if r in recorded.get("per_pod", usage) or r in self.covered(name)}
            flavors = {r: f for r, f in flavors.items() if r in usage}
            pod_sets.append({"name": recorded["name"], "count": count, "flavors": flavors, "usage": usage})
            topology = self.topology(int(pods["index"]), job)
            if topology is not None:
                pod_sets[-1]["topology"] = topology
        return pod_sets

    def covered(self, name: str) -> set[str]:
        """Resources that the queue of a workload has quota for."""
        queue = next(q for q in self.case["queues"] if q["name"] == self.queue_of(name))
        return {resource for group in queue["resource_groups"] for resource in group["resources"]}

    def note(self, index: int, job: np.void) -> np.void:
        """Kueue's note of a pod set."""
        at = int(job["first_pod_set"])
        for _ in range(index):
            at = int(self.world.record["pod_sets"][at]["next"])
        return self.k["pod_sets"][at]  # type: ignore[no-any-return]

    def topology(self, index: int, job: np.void) -> dict[str, Any] | None:
        """Topology assignment of a pod set, as the cases write it: only the hostname level where that is the lowest."""
        note = self.note(index, job)
        first, count = int(note["first_domain"]), int(note["num_domains"])
        if count == 0:
            return None
        domains = []
        for placed in self.k["placed"][first : first + count]:
            topology, _, path = self.world.names.domains[int(placed["domain"])].partition("/")
            domains.append({"values": path.split("/"), "count": int(placed["count"])})
        levels = next(levels for flavor, levels, _ in kueue_topologies(self.case) if flavor == topology)
        if levels[-1] == HOSTNAME:
            domains = [{**d, "values": d["values"][-1:]} for d in domains]
        return {"levels": levels[-1:] if levels[-1] == HOSTNAME else levels, "domains": domains}

    def workloads(self) -> list[dict[str, Any]]:
        """All workloads of the case."""
        pending = self.case.get("pending", [])
        arriving = [w for step in self.case.get("steps", []) if step["op"] == "arrive" for w in step["workloads"]]
        return [*self.case.get("admitted", []), *([pending] if isinstance(pending, dict) else pending), *arriving]

    def queue_of(self, name: str) -> str:
        """ClusterQueue of a workload."""
        return str(next(w["queue"] for w in self.workloads() if w["name"] == name))


# ---------------------------------------------------------------------------------------------------------------
# Quota arithmetic and shares
# ---------------------------------------------------------------------------------------------------------------


def _available(case: Case) -> Outcome:
    run = Run(case)
    facts = Facts()
    for queue in case["expect"]["available"]:
        run.ask(Question.AVAILABLE, run.queue(queue))
        for what, first in (("available", 0), ("potential", MAX_QUOTA_CELLS)):
            for flavor, amounts in case["expect"][what].get(queue, {}).items():
                for resource, want in amounts.items():
                    cell = run.world.names.cells.index((flavor, resource))
                    got = run.amount(resource, int(run.numbers[first + cell]))
                    facts.check(f"{what} {queue} {flavor}/{resource}", want, got)
    return facts.outcome()


def _shares(case: Case) -> Outcome:
    run = Run(case)
    facts = Facts()
    for share in case["expect"]["shares"]:
        name = share["node"] if share["type"] == "queue" else COHORT + share["node"]
        run.numbers[:] = 0
        for flavor, amounts in case["extra_request"].items():
            for resource, amount in amounts.items():
                if _quotes(run.world, name, (flavor, resource)):
                    run.numbers[run.world.names.cells.index((flavor, resource))] = amount
        run.ask(Question.SHARE, run.queue(name))
        precise: float | str = "inf" if run.numbers[0] else float(run.reals[0])
        dominant = None if run.numbers[2] == NONE else run.world.names.resources[int(run.numbers[2])]
        got = {
            "precise_share": precise,
            "weighted_share": precise if isinstance(precise, str) else math.ceil(precise),
            "borrowing": bool(run.numbers[1]),
            "dominant_resource": dominant,
        }
        for key in got.keys() & share.keys():
            facts.check(f"{key} of {name}", share[key], got[key])
    return facts.outcome()


def _quotes(world: World, name: str, cell: tuple[str, str]) -> bool:
    """Whether a queue, or something below a cohort, has quota of a (flavor, resource)."""
    below = [queue for queue in world.spec.queues if queue.parent == name]
    own = next(queue for queue in world.spec.queues if queue.name == name)
    return cell in own.quotas or any(_quotes(world, queue.name, cell) for queue in below)


def _borrowing_on(case: Case) -> Outcome:
    run = Run(case)
    facts = Facts()
    cells = run.world.names.cells
    requested = sum(
        1 << cells.index((flavor, resource)) for flavor, amounts in case["requested"].items() for resource in amounts
    )
    for fact, mask in (("borrowing", (1 << len(cells)) - 1), ("borrowing_on_requested", requested)):
        run.ask(Question.BORROWING_ON, run.queue(case["queue"]), mask)
        facts.check(fact, case["expect"][fact], bool(run.numbers[0]))
    return facts.outcome()


def _reserve(case: Case) -> Outcome:
    run = Run(case)
    facts = Facts()
    cells = run.world.names.cells
    run.numbers[:] = 0
    for flavor, amounts in case["assignment_usage"].items():
        for resource, amount in amounts.items():
            run.numbers[cells.index((flavor, resource))] = amount
    if case["mode"] == "Preempt":
        run.ask(Question.RESERVED, run.queue(case["queue"]), case["borrowing_level"])
    for flavor, amounts in case["expect"]["reserved"].items():
        for resource, want in amounts.items():
            facts.check(f"{flavor}/{resource}", want, int(run.numbers[cells.index((flavor, resource))]))
    return facts.outcome()


# ---------------------------------------------------------------------------------------------------------------
# Orders
# ---------------------------------------------------------------------------------------------------------------

ANY_QUEUE = {  # for cases without queues
    "cohort": None,
    "strategy": "BestEffortFIFO",
    "resource_groups": [
        {
            "resources": ["cpu"],
            "flavors": [
                {
                    "name": "default",
                    "quotas": {"cpu": {"nominal": 1000, "borrowing_limit": None, "lending_limit": None}},
                }
            ],
        }
    ],
    "preemption": {
        "within_cluster_queue": "Never",
        "reclaim_within_cohort": "Never",
        "borrow_within_cohort": {"policy": "Never", "max_priority_threshold": None},
    },
    "flavor_fungibility": {"when_can_borrow": "MayStopSearch", "when_can_preempt": "TryNextFlavor", "preference": None},
    "fair_weight": 1,
}
NO_PODS = [{"name": "main", "count": 1, "per_pod": {"cpu": 0}}]


def _in_queues(case: Case, workloads: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A case with queues for workloads that name none, or none that is there."""
    pending = [{"queue": "queue", "uid": "", "pod_sets": NO_PODS, **w} for w in workloads]
    names = dict.fromkeys(w["queue"] for w in pending)
    return {**case, "queues": [{"name": name, **ANY_QUEUE} for name in names], "pending": pending}


def _queue_order(case: Case) -> Outcome:
    consumed = case.get("admission_fair_sharing", {}).get("consumed", {})
    per_pod = {"cpu": 0} | {resource: 0 for amounts in consumed.values() for resource in amounts}
    pod_sets = [{"name": "main", "count": 1, "per_pod": per_pod}]
    run = Run(_in_queues(case, [{**w, "pod_sets": pod_sets} for w in case["pending"]]))
    run.look()
    facts = Facts()
    run.ask(Question.HEAD, 0)
    facts.check("head", case["expect"]["head"], {s: n for n, s in run.slots().items()}[int(run.numbers[0])])
    return facts.outcome()


def _entry_order(case: Case) -> Outcome:
    entries = case["entries"]
    run = Run(_in_queues(case, [{**e, "queue": e["name"]} for e in entries]))
    run.look()
    slots = run.slots()
    for i, entry in enumerate(entries):
        slot = slots[entry["name"]]
        record = run.k["entries"][i]
        record["slot"] = slot
        record["queue"] = run.queue(entry["name"])
        record["borrowing"] = entry["borrowing_level"]
        record["is_done"] = False
        if entry["is_preemptor"]:
            run.k["queues"][record["queue"]]["sticky"] = slot
        if "preempted" in entry:
            by_name = {name: reason for reason, name in REASONS.items()}
            run.k["workloads"][slot]["reason"] = by_name[entry["preempted"]["reason"]]
            run.k["workloads"][slot]["evict_ms"] = entry["preempted"]["at"]
    run.k["num_entries"] = len(entries)
    run.ask(Question.ENTRY_ORDER)
    facts = Facts()
    facts.check("order", case["expect"]["order"], [entries[int(i)]["name"] for i in run.numbers[: len(entries)]])
    return facts.outcome()


def _candidate_order(case: Case) -> Outcome:
    candidates = case["candidates"]
    sharing = None
    if case["admission_fair_sharing"]:
        sharing = {"enabled": True, "resource_weights": {}, "consumed": {}, "local_queue_weights": {}}
    run = Run(_in_queues({**case, "admission_fair_sharing": sharing}, candidates))
    run.look()
    slots = run.slots()
    names = run.world.names.queues
    own = names.index(case["preemptor_queue"]) if case["preemptor_queue"] in names else NONE
    for i, recorded in enumerate(candidates):
        candidate = run.k["candidates"][i]
        candidate["slot"] = slots[recorded["name"]]
        workload = run.k["workloads"][candidate["slot"]]
        workload["reserved_ms"] = recorded["reserved_at"]
        workload["is_evicted"] = "evicted" in recorded
        candidate["list"] = 2 * (recorded["queue"] == case["preemptor_queue"]) + 3 * ("evicted" not in recorded)
        run.k["sorted"][i] = i
    run.k["num_candidates"] = len(candidates)
    run.ask(Question.CANDIDATE_ORDER, own)
    facts = Facts()
    got = [candidates[int(c)]["name"] for c in run.k["sorted"][: len(candidates)]]
    facts.check("order", case["expect"]["order"], got)
    return facts.outcome()


def _flavor_preference(case: Case) -> Outcome:
    run = Run(_in_queues(case, []))
    run.numbers[:4] = [x for side in ("a", "b") for x in (FITS[case[side]["mode"]], case[side]["borrowing_level"])]
    run.ask(Question.PREFERRED, int(case["preference"] == "PreemptionOverBorrowing"))
    facts = Facts()
    facts.check("a_preferred", case["expect"]["a_preferred"], bool(run.numbers[0]))
    return facts.outcome()


def _partial_admission(case: Case) -> Outcome:
    """The search over counts, where a pod costs one and the queue has as much as the predicate accepts."""
    pod_sets = [{"name": f"p{i}", "per_pod": {"cpu": 1}, **p} for i, p in enumerate(case["pod_sets"])]
    workload = {"name": "workload", "priority": 0, "created": 0, "pod_sets": pod_sets}
    world = _in_queues(case, [workload])
    quota = {"nominal": case["accept_if_total_at_most"], "borrowing_limit": None, "lending_limit": None}
    group = {"resources": ["cpu"], "flavors": [{"name": "default", "quotas": {"cpu": quota}}]}
    run = Run({**world, "queues": [{**ANY_QUEUE, "name": "queue", "resource_groups": [group]}]})
    run.look()
    run.ask(Question.NOMINATION)
    facts = Facts()
    can_be_reduced = any(p["count"] > p.get("min_count", p["count"]) for p in pod_sets)  # else there is no search
    found = can_be_reduced and int(run.k["entries"][0]["mode"]) == Mode.FIT
    job = run.world.record["jobs"][run.slots()["workload"]]
    total = 0
    at = int(job["first_pod_set"])
    while at != NONE:
        total += int(run.k["pod_sets"][at]["count"])
        at = int(run.world.record["pod_sets"][at]["next"])
    facts.check("found", case["expect"]["found"], found)
    facts.check("total", case["expect"]["total"], total if found else 0)
    return facts.outcome()


# ---------------------------------------------------------------------------------------------------------------
# Assignment and preemption of one workload
# ---------------------------------------------------------------------------------------------------------------


def _flavor_assign(case: Case) -> Outcome:
    run = Run(case)
    run.look()
    run.k["num_oracle"] = len(case["preemption_oracle"])
    for i, told in enumerate(case["preemption_oracle"]):
        run.k["oracle"][i]["cell"] = run.world.names.cells.index((told["flavor"], told["resource"]))
        run.k["oracle"][i]["fit"] = FITS[told["result"]]
        run.k["oracle"][i]["level"] = told["borrowing_level_after"]
    run.k["partial_admission"] = False
    run.ask(Question.NOMINATION)
    entry = run.k["entries"][0]
    expect = case["expect"]
    facts = Facts()
    facts.check("mode", expect["mode"], MODES[Mode(int(entry["mode"]))])
    if "borrowing_level" in expect:
        facts.check("borrowing_level", expect["borrowing_level"], int(entry["borrowing"]))
    job = run.world.record["jobs"][int(entry["slot"])]
    at = int(job["first_pod_set"])
    for i, pods in enumerate(expect["pod_sets"]):
        note = run.k["pod_sets"][at]
        got = {}
        for resource, want in pods["flavors"].items():
            r = run.world.names.resources.index(resource)
            flavor = int(note["flavor"][r])
            if flavor != NONE:
                fit = int(note["mode"][r])
                got[resource] = {
                    "flavor": run.world.names.flavors[flavor],
                    "mode": "Fit" if fit == Fit.FIT else "NoFit" if fit == Fit.NO_FIT else "Preempt",
                    "last_tried_index": int(note["tried"][r]),
                }
                got[resource] = {key: got[resource][key] for key in want}
        extra = [
            name
            for r, name in enumerate(run.world.names.resources)
            if note["flavor"][r] != NONE and name not in pods["flavors"]
        ]
        facts.check(f"flavors of {pods.get('name', i)}", pods["flavors"], got | dict.fromkeys(extra))
        at = int(run.world.record["pod_sets"][at]["next"])
    if "usage" in expect:
        usage: dict[str, dict[str, Any]] = {}
        for c, (flavor, resource) in enumerate(run.world.names.cells):
            if int(entry["cells"]) >> c & 1:
                usage.setdefault(flavor, {})[resource] = run.amount(resource, int(entry["usage"][c]))
        facts.check("usage", expect["usage"], usage)
    return facts.outcome()


def _preemption(case: Case) -> Outcome:
    run = Run(case)
    run.look()
    pending = case["pending"][0] if isinstance(case["pending"], list) else case["pending"]
    entry = run.k["entries"][0]
    slot = run.slots()[pending["name"]]
    entry["slot"] = slot
    entry["queue"] = run.queue(pending["queue"])
    for pods, assigned in zip(pending["pod_sets"], case["assignment"], strict=True):
        for resource, choice in assigned["flavors"].items():
            cell = run.world.names.cells.index((choice["flavor"], resource))
            amount = pods["count"] * pods["per_pod"].get(resource, 1 if resource == "pods" else 0)
            entry["usage"][cell] += amount * run.units.scale(resource)
            entry["cells"] |= 1 << cell
            if choice["mode"] == "Preempt":
                entry["preempt_cells"] |= 1 << cell
    run.ask(Question.TARGETS)
    names = {s: n for n, s in run.slots().items()}
    targets = [run.k["targets"][i] for i in range(int(run.numbers[0]))]
    got = [
        {
            "workload": names[int(t["slot"])],
            "queue": run.queue_of(names[int(t["slot"])]),
            "reason": REASONS[Reason(int(t["reason"]))],
        }
        for t in targets
    ]
    facts = Facts()
    facts.check("targets", case["expect"]["targets"], sorted(got, key=lambda t: t["workload"]))
    return facts.outcome()


# ---------------------------------------------------------------------------------------------------------------
# Topology
# ---------------------------------------------------------------------------------------------------------------


def _topology(case: Case) -> Outcome:
    """Where the pod sets of one workload go, in a cycle whose quota is no limit."""
    names = dict.fromkeys(resource for p in case["pod_sets"] for resource in p["per_pod"])
    quotas = {name: {"nominal": "inf", "borrowing_limit": None, "lending_limit": None} for name in names}
    group = {"resources": list(names), "flavors": [{"name": "default", "quotas": quotas}]}
    run = Run({**case, "queues": [{**ANY_QUEUE, "name": TAS_JOB, "resource_groups": [group]}]})
    run.look()
    run.cycle()
    job = run.world.record["jobs"][run.slots()[TAS_JOB]]
    facts = Facts()
    index = {p["name"]: i for i, p in enumerate(case["pod_sets"])}
    for want in case["expect"]["pod_sets"]:
        note = run.note(index[want["name"]], job)
        fits = not bool(note["topology_fails"]) and int(note["num_domains"]) > 0
        facts.check(f"{want['name']} fits", want["fits"], fits)
        if want["fits"] and "assignment" in want:
            facts.check(f"assignment of {want['name']}", want["assignment"], run.topology(index[want["name"]], job))
    return facts.outcome()


# ---------------------------------------------------------------------------------------------------------------
# Cycles
# ---------------------------------------------------------------------------------------------------------------


def _cycles(case: Case) -> Outcome:
    """Cycles from a state: what is admitted, what is preempted, who waits where."""
    run = Run(case)
    run.look()
    reserved, evicted = run.reserved(), run.evicted()
    for _ in range(case.get("cycles", 1)):
        run.cycle()
    expect = case["expect"]
    facts = Facts()
    admitted = [
        {"workload": name, "queue": run.queue_of(name), "pod_sets": run.assignment(name)}
        for name in run.reserved()
        if name not in reserved
    ]
    facts.check("admitted", sorted(expect["admitted"], key=lambda w: w["workload"]), admitted)
    if "preempted" in expect:
        preempted = [
            {"workload": name, "queue": run.queue_of(name), "reason": reason}
            for name, reason in sorted(run.evicted().items())
            if name not in evicted
        ]
        facts.check("preempted", sorted(expect["preempted"], key=lambda w: w["workload"]), preempted)
    for fact, bucket in (("active_left", "active"), ("inadmissible_left", "inadmissible")):
        if fact in expect:
            want = {queue: sorted(names) for queue, names in expect[fact].items() if names}
            facts.check(fact, want, run.pending(bucket))
    for queue, want in expect.get("skipped_preemptions", {}).items():
        got = int(run.k["queues"][run.queue(queue)]["skipped_preemptions"])
        facts.check(f"skipped preemptions of {queue}", want, got)
    return facts.outcome()


def _steps(case: Case) -> Outcome:
    """Cycles with deletions and requeue events between them."""
    run = Run(case)
    run.look()
    facts = Facts()
    expect = case["expect"]
    is_first = True
    for step in case["steps"]:
        if step["op"] == "cycle":
            run.cycle()
            if is_first:
                facts.check("reserved_after_first_cycle", sorted(expect["reserved_after_first_cycle"]), run.reserved())
                got = [
                    {"workload": name, "queue": run.queue_of(name), "reason": reason}
                    for name, reason in sorted(run.evicted().items())
                ]
                facts.check("preempted_in_first_cycle", expect["preempted_in_first_cycle"], got)
            is_first = False
        elif step["op"] == "delete":
            run.world.inject(("cancel", step["workload"]))
            run.look()
        elif step["op"] == "requeue_inadmissible":
            run.k["queues"]["is_requeued"][: len(run.world.names.queues)] = [
                parent == NONE for parent in run.world.record["queues"]["parent"][: len(run.world.names.queues)]
            ]
            run.look()
    want = sorted(expect["final_reserved"], key=lambda w: w["workload"])
    got = [{"workload": name, "queue": run.queue_of(name), "pod_sets": run.assignment(name)} for name in run.reserved()]
    facts.check("final_reserved", want, got)
    return facts.outcome()


def _trajectory(case: Case) -> Outcome:
    """A whole history, step by step, through the simulator's own events."""
    run = Run(case)
    facts = Facts()
    known: dict[str, Any] = {"reserved": [], "active": [], "inadmissible": []}
    for i, (step, want) in enumerate(zip(case["steps"], case["expect"]["steps"], strict=True)):
        _carry_out(run, step, i, want, facts)
        run.look()
        got = {
            "reserved": run.reserved(),
            "active": sorted(n for names in run.pending("active").values() for n in names),
            "inadmissible": sorted(n for names in run.pending("inadmissible").values() for n in names),
        }
        for key in known:
            known[key] = want.get(key, known[key])
            facts.check(f"step {i} ({step['op']}): {key}", known[key], got[key])
        if facts.found:
            break
    return facts.outcome()


def _carry_out(run: Run, step: Mapping[str, Any], i: int, want: Mapping[str, Any], facts: Facts) -> None:
    """One step of a history; cycles are compared one by one."""
    world = run.world
    world.advance(step["at"])
    op = step["op"]
    if op == "cycles":
        for c, expected in enumerate(want["cycles"]):
            reserved, evicted = run.reserved(), run.evicted()
            run.cycle()
            admitted = {
                name: [{key: p[key] for key in ("name", "count", "flavors")} for p in run.assignment(name)]
                for name in run.reserved()
                if name not in reserved
            }
            preempted = {name: reason for name, reason in run.evicted().items() if name not in evicted}
            facts.check(f"step {i}, cycle {c}: admitted", expected.get("admitted", {}), admitted)
            facts.check(f"step {i}, cycle {c}: preempted", expected.get("preempted", {}), preempted)
    elif op == "eviction_done":
        for name in step["workloads"]:
            world.apply([[Command(op="unadmit", job=name)]])
    elif op == "finish":
        for name in step["workloads"]:
            world.inject(("finish", name))
    elif op == "delete":
        world.inject(("cancel", step["workload"]))
    elif op == "quota":
        target = step["name"] if step["node"] == "queue" else COHORT + step["name"]
        for what in ("nominal", "borrowing_limit", "lending_limit"):
            value = step["quota"][what]
            value = UNLIMITED if value == "inf" else value
            world.inject(
                ChangeSpec(
                    time_ms=step["at"], what=what, target=target, cell=(step["flavor"], step["resource"]), value=value
                )
            )


RUNS: dict[str, Callable[[Case], Outcome]] = {
    "available": _available,
    "drs": _shares,
    "borrowing_on": _borrowing_on,
    "reserve": _reserve,
    "queue_order": _queue_order,
    "entry_order": _entry_order,
    "candidate_order": _candidate_order,
    "flavor_preference": _flavor_preference,
    "partial_admission": _partial_admission,
    "flavor_assign": _flavor_assign,
    "preemption": _preemption,
    "schedule_cycle": _cycles,
    "afs_schedule": _cycles,
    "schedule_steps": _steps,
    "trajectory": _trajectory,
    "tas": _topology,
    "tas_cycle": _cycles,
}
