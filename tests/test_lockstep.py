"""The compiled world and the reference, step by step over random worlds and commands: whole states must be equal.

A step is one decision (some transactions, legal or not) or an advance (to the next event, to a random time). After each
one the results, the next event and the whole `dump()` of both are compared, and what must hold in any state is checked.

`GANGLINE_LOCKSTEP_EXAMPLES=2000 pytest tests/test_lockstep.py` runs more worlds.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from builders import admit, batch, evict, gang, minutes, nodes, place, queue, service, world
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference import ReferenceWorld
from reference.simulator import Job

from gangline.envs.core.spec import (
    Admission,
    ChangeSpec,
    Command,
    DomainSpec,
    JobSpec,
    LiveSpec,
    NodeSpec,
    OptionsSpec,
    PlacedPods,
    PodSetSpec,
    QueueSpec,
    QuotaSpec,
    TenantSpec,
    TopologyWish,
    UserSpec,
    WorldSpec,
)
from gangline.envs.core.world import World

NUM_EXAMPLES = int(os.environ.get("GANGLINE_LOCKSTEP_EXAMPLES", "240"))
NUM_STEPS = 40
Transactions = list[list[Command]]
JOB_STATES = ("not_eligible", "queued", "admitted", "partial", "running", "suspended", "releasing")
Step = tuple[str, Any]  # ("apply", transactions) or ("advance", until_ms)

# ---------------------------------------------------------------------------------------------------------------
# The tests
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(NUM_EXAMPLES))
def test_both_worlds_go_through_the_same_states(seed: int) -> None:
    rng = random.Random(seed)
    spec = random_world(rng)
    in_lockstep(spec, rng, NUM_STEPS)


@settings(
    max_examples=max(10, NUM_EXAMPLES // 6),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(rng=st.randoms(use_true_random=False))
def test_both_worlds_go_through_the_same_states_in_small_worlds_that_hypothesis_shrinks(rng: random.Random) -> None:
    in_lockstep(random_world(rng, max_jobs=3, max_nodes=2), rng, 8)


@pytest.mark.parametrize("seed", range(max(1, NUM_EXAMPLES // 10)))
def test_going_back_to_a_saved_state_and_on_again_gives_the_same(seed: int) -> None:
    rng = random.Random(f"saved state {seed}")
    spec = random_world(rng)
    reference, compiled = ReferenceWorld.from_state(spec), World.from_state(spec)
    for _ in range(NUM_STEPS // 2):
        take(random_step(rng, reference), reference, compiled)
    saved, at_save = compiled.get_state(), compiled.dump()
    steps = []
    for _ in range(NUM_STEPS // 2):
        steps.append(random_step(rng, reference))
        take(steps[-1], reference, compiled)
    want = compiled.dump()
    for _ in range(2):
        compiled.set_state(saved)
        assert difference(compiled.dump(), at_save) is None
        for step in steps:
            take(step, compiled)
        assert difference(compiled.dump(), want) is None


def test_a_new_world_knows_nothing_of_the_last_one() -> None:
    rng = random.Random("resets")
    specs = [random_world(rng) for _ in range(3)]
    for seed in (1, 2):
        for spec in specs:
            in_lockstep(spec, random.Random(seed), NUM_STEPS // 2)


# ---------------------------------------------------------------------------------------------------------------
# Stories: short ways to states in which the two once differed
# ---------------------------------------------------------------------------------------------------------------

TWO_SETS = [PodSetSpec(count=1, request={"gpu": 4000}), PodSetSpec(count=1, request={"gpu": 4000})]
ONE_QUEUE = {"queues": [queue("t0", nominal=8)], "quota": "enforced"}
CANCEL_A = Command(op="cancel", job="a")
SUSPEND_A = Command(op="suspend", job="a", freed=("gpu",))
REFUSED = Command(op="unreserve", job="a")


def replicas(minute: float, number: int) -> ChangeSpec:
    return ChangeSpec(time_ms=minutes(minute), what="replicas", target="a", value=number)


STORIES: dict[str, tuple[WorldSpec, list[Any]]] = {  # minutes to advance to, or transactions
    "a job evicted for good ends when its pods are gone, not before": (
        world(nodes(4), [gang("a", 1)]),
        [0, [place("a", "n0")], 5, [evict("a", grace_min=2, then="cancel")], 9],
    ),
    "two pod sets that fit one node together are not larger than the cluster": (
        world(nodes(8), [JobSpec(name="a", tenant="t0", pod_sets=TWO_SETS, work_ms=minutes(1))]),
        [0, [place("a", "n0"), place("a", "n0", pod_set=1)], 2],
    ),
    "what a cancelled service has held is kept": (
        world(nodes(4), [service("a", 1)]),
        [0, [place("a", "n0")], 5, [CANCEL_A]],
    ),
    "a job that is ending cannot be cancelled": (
        world(nodes(4), [gang("a", 1)], completing_ms=minutes(1)),
        [0, [place("a", "n0")], 5, [CANCEL_A], [CANCEL_A]],
    ),
    "a batch pod that ends gives back its node at once, whatever completing says": (
        world(nodes(4), [batch("a", 2, work_min=5)], completing_ms=minutes(1)),
        [0, [place("a", "n0")], 1, [place("a", "n0")], 5, 6],
    ),
    "a batch job whose first pod ends before the others are placed is not requeued": (
        world(nodes(4), [batch("a", 2, work_min=5)], **ONE_QUEUE, requeue_hold_ms=minutes(9)),
        [0, [admit("a", 2), place("a", "n0")], 5, [place("a", "n0")], 10],
    ),
    "a service that is scaled to zero is not requeued": (
        world(nodes(4), [service("a", 2, min_count=0)], changes=[replicas(5, 0)], requeue_hold_ms=minutes(9)),
        [0, [place("a", "n0", 2)], 5, 70],
    ),
    "no more pods than are wanted now are bound, even if more were admitted": (
        world(nodes(8), [service("a", 5, min_count=0)], changes=[replicas(5, 3)], **ONE_QUEUE),
        [0, [admit("a", 5), place("a", "n0", 2)], 5, [place("a", "n0", 2)], [place("a", "n0", 1)]],
    ),
    "a batch job is admitted for the pods that it still wants": (
        world(nodes(4), [batch("a", 3, work_min=5)], **ONE_QUEUE),
        [
            0,
            [admit("a", 3), place("a", "n0")],
            4,
            [place("a", "n0")],
            5,
            [evict("a")],
            [admit("a", 3)],
            [admit("a", 2)],
        ],
    ),
    "a job moves within one transaction: evicted, admitted pod set by pod set, placed": (
        world(nodes(8, 8), [JobSpec(name="a", tenant="t0", pod_sets=TWO_SETS, work_ms=minutes(9))], **ONE_QUEUE),
        [
            0,
            [admit("a", 1), admit("a", 1, pod_set=1), place("a", "n0"), place("a", "n0", pod_set=1)],
            [evict("a"), admit("a", 1), admit("a", 1, pod_set=1), place("a", "n1"), place("a", "n1", pod_set=1)],
        ],
    ),
    "a job that is there when the world begins is not rejected": (
        world(nodes(4), [gang("a", 1, gpus=8, live=LiveSpec())]),
        [1],
    ),
    "a batch job that is there when the world begins goes on from its progress, without overhead": (
        world(
            nodes(4),
            [batch("a", 1, live=LiveSpec(pods=[PlacedPods(pod_set=0, node="n0")], progress_ms=minutes(40)))],
            start_latency_ms=minutes(1),
        ),
        [10, 20],
    ),
    "a refused transaction that cancelled a batch job leaves its undecided time alone": (
        world(nodes(4), [batch("a", 1), gang("b", 1)]),
        [0, [place("a", "n0")], 5, [CANCEL_A, Command(op="unreserve", job="b")], 6],
    ),
    "evicted and cancelled in one transaction: the work since the last checkpoint is lost": (
        world(nodes(4), [gang("a", 1)]),
        [0, [place("a", "n0")], 5, [evict("a", grace_min=1), CANCEL_A], 7],
    ),
    "a refused transaction that placed and suspended is undone": (
        world(nodes(4), [batch("a", 2)]),
        [0, [place("a", "n0")], 5, [place("a", "n0"), SUSPEND_A, REFUSED]],
    ),
    "evicted in part, then suspended, in one transaction: the pod that went frees its GPU once": (
        world(nodes(4), [gang("a", 2, min_member=1)]),
        [0, [place("a", "n0", 2)], 5, [evict("a", 1), SUSPEND_A], 6, [Command(op="resume", job="a")]],
    ),
    "a batch job does not hang": (
        world(nodes(4), [batch("a", 1, outcome="hangs", outcome_ms=minutes(5))], hang_timeout_ms=minutes(5)),
        [0, [place("a", "n0")], 70],
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_story(story: str) -> None:
    spec, acts = STORIES[story]
    steps: list[Step] = [("apply", [a]) if isinstance(a, list) else ("advance", minutes(a)) for a in acts]
    reference, compiled = ReferenceWorld.from_state(spec), World.from_state(spec)
    for i, step in enumerate(steps):
        want, got = take(step, reference, compiled)
        assert got == want, f"results differ: compiled {got}, reference {want}{tell(spec, steps[: i + 1])}"
        check_same(reference, compiled, spec, steps[: i + 1])


# ---------------------------------------------------------------------------------------------------------------
# Lockstep
# ---------------------------------------------------------------------------------------------------------------


def in_lockstep(spec: WorldSpec, rng: random.Random, num_steps: int) -> None:
    """Build both worlds, take the same random steps in both, compare after each."""
    reference, compiled = ReferenceWorld.from_state(spec), World.from_state(spec)
    story: list[Step] = []
    check_same(reference, compiled, spec, story)
    for _ in range(num_steps):
        step = random_step(rng, reference)
        story.append(step)
        want, got = take(step, reference, compiled)
        assert got == want, f"results differ: compiled {got}, reference {want}{tell(spec, story)}"
        check_same(reference, compiled, spec, story)


def take(step: Step, *worlds: Any) -> list[Any]:
    what, argument = step
    if what == "apply":
        return [list(w.apply(argument)) for w in worlds]
    for w in worlds:
        w.advance(argument)
    return [None for _ in worlds]


def check_same(reference: ReferenceWorld, compiled: World, spec: WorldSpec, story: list[Step]) -> None:
    want, got = reference.dump(), compiled.dump()
    where = difference(got, want)
    assert where is None, f"compiled and reference differ: {where}{tell(spec, story)}"
    broken = broken_invariant(got, spec)
    assert broken is None, f"{broken}{tell(spec, story)}"
    assert compiled.next_event_ms() == reference.next_event_ms(), (
        f"next event differs: {compiled.next_event_ms()} {reference.next_event_ms()}{tell(spec, story)}"
    )


def difference(got: Any, want: Any, path: str = "") -> str | None:
    """Path and values of the first difference, or None. Floats (decayed usage) may differ by rounding."""
    if isinstance(want, Mapping):
        if set(got) != set(want):
            return f"{path}: keys {sorted(map(str, set(got) ^ set(want)))} are only in one of them"
        pairs = [(f"{path}/{k}", got[k], want[k]) for k in want]
    elif isinstance(want, list | tuple):
        if len(got) != len(want):
            return f"{path}: {got!r} != {want!r}"
        pairs = [(f"{path}[{i}]", g, w) for i, (g, w) in enumerate(zip(got, want, strict=True))]
    else:
        equal = math.isclose(got, want, rel_tol=1e-9, abs_tol=1e-3) if isinstance(want, float) else got == want
        return None if equal else f"{path}: compiled {got!r}, reference {want!r}"
    return next((d for p, g, w in pairs if (d := difference(g, w, p)) is not None), None)


def tell(spec: WorldSpec, story: Sequence[Step]) -> str:
    """What led here, to be pasted into a test."""
    steps = "\n".join(f"    {what} {brief(argument)}" for what, argument in story)
    return f"\nafter {len(story)} steps:\n{steps}\nin the world\n    {brief(spec)}"


def brief(value: Any) -> str:
    """`repr` of specs and commands without the fields that are at their defaults."""
    if is_dataclass(value):
        given = [
            f for f in fields(value) if getattr(value, f.name) != f.default and not is_empty(getattr(value, f.name))
        ]
        return f"{type(value).__name__}({', '.join(f'{f.name}={brief(getattr(value, f.name))}' for f in given)})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(brief, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {brief(v)}' for k, v in value.items())}}}"
    return repr(value)


def is_empty(value: Any) -> bool:
    return isinstance(value, list | tuple | dict) and not value


def broken_invariant(dump: Mapping[str, Any], spec: WorldSpec) -> str | None:
    """What holds in every state of any world; None, or the sentence that is not true."""
    gpu = spec.gpu_resource
    jobs, totals, tenants = dump["jobs"], dump["totals"], dump["tenants"]
    for n in spec.nodes:
        node = dump["nodes"][n.name]
        for resource, idle in node["idle"].items():
            if not 0 <= node["releasing"][resource] <= n.amounts[resource] - idle <= n.amounts[resource]:
                return f"{n.name}: 0 <= releasing <= used <= capacity of {resource}"
        if gpu in n.amounts:
            if sum(node["gpu_free"]) != node["idle"][gpu]:
                return f"{n.name}: what is left on its GPUs adds up to what is idle"
            on_it = [p for j in jobs.values() for p in (*j["bound"], *j["releasing"]) if p[1] == n.name]
            all_held = all(j["state"] != "suspended" and not j["releasing"] for j in jobs.values())  # nothing freed
            if all_held and sum(len(p[2]) * p[3] for p in on_it) != n.amounts[gpu] - node["idle"][gpu]:
                return f"{n.name}: idle + held by pods = capacity"
    for job in [*jobs.values(), *dump["ended"]]:
        time = job["gpu_time"]
        if time["held"] != sum(time[k] for k in time if k != "held"):
            return f"GPU time adds up: {job}"
        if min(time.values()) < 0:
            return f"GPU time is not negative: {job}"
    ever = [*jobs.values(), *dump["ended"]]
    for total, parts in (
        ("held_area", sum(j["gpu_time"]["held"] for j in ever)),
        ("lost_area", sum(j["gpu_time"]["lost"] for j in ever)),
        ("hang_area", sum(j["gpu_time"]["hang"] for j in ever)),
        ("num_ended", len(dump["ended"])),
        *((f"{k}_area", sum(t[f"{k}_area"] for t in tenants.values())) for k in ("held", "running", "demand")),
        *((f"{k}_area", sum(t[f"{k}_area"] for t in tenants.values())) for k in ("over", "deficit")),
    ):
        if totals[total] != parts:
            return f"{total} {totals[total]} is the sum of its parts, {parts}"
    if totals["kept"] + totals["kept_bad"] != sum(e["gpu_time"]["kept"] for e in dump["ended"]):
        return "kept and kept_bad are what ended jobs have kept"
    if gpu is not None and tenants:
        up = sum(n.amounts.get(gpu, 0) for n in spec.nodes if dump["nodes"][n.name]["state"] != "down")
        if sum(t["fair"] for t in tenants.values()) != min(up, sum(t["demand"] for t in tenants.values())):
            return "fair shares add up to min(C, D)"
    for name, tenant in tenants.items():
        if tenant["demand"] != sum(jobs[j.name]["demand"] for j in spec.jobs if j.tenant == name and j.name in jobs):
            return f"{name}'s demand is that of its jobs"
    return None


# ---------------------------------------------------------------------------------------------------------------
# Random worlds: times are few and round, so that many things happen at one instant
# ---------------------------------------------------------------------------------------------------------------


def chance(rng: random.Random, probability: float) -> bool:
    return rng.random() < probability


def random_world(rng: random.Random, max_jobs: int = 14, max_nodes: int = 5) -> WorldSpec:
    resources = rng.choice([("gpu",), ("gpu", "cpu"), ("gpu", "cpu", "pods")])
    flavors = rng.choice([("default",), ("spot", "fixed")])
    has_gpu = not chance(rng, 0.05)
    num_racks = rng.choice([0, 0, 2])
    domains = [DomainSpec(name="top", tier=2)] if num_racks else []
    for i in range(num_racks):
        domains.append(DomainSpec(name=f"rack{i}", tier=1, parent="top" if chance(rng, 0.8) else None))
    members = []
    for i in range(rng.randint(0 if chance(rng, 0.1) else 1, max_nodes)):
        amounts = {}
        if chance(rng, 0.95):
            amounts["gpu"] = 1000 * rng.choice([1, 2, 4, 8])
        if "cpu" in resources and chance(rng, 0.9):
            amounts["cpu"] = rng.choice([2000, 8000])
        if "pods" in resources:
            amounts["pods"] = rng.choice([2, 10])
        place = {"default": f"rack{rng.randrange(num_racks)}"} if num_racks and chance(rng, 0.9) else {}
        members.append(
            NodeSpec(
                name=f"n{i}",
                amounts=amounts,
                flavor=rng.choice(flavors),
                speed=rng.choice([1000, 1000, 700]),
                domains=place,
                state=rng.choice(["up"] * 8 + ["drained", "down"]),
            )
        )
    quota = rng.choice(["off", "tracked", "enforced", "enforced"])
    tenants_names = [f"t{i}" for i in range(rng.randint(1, 3))]
    queues = random_queues(rng, tenants_names, flavors, resources) if quota != "off" or chance(rng, 0.2) else []
    tenants = [TenantSpec(name=t, weight=rng.choice([0, 1, 1, 2, 3])) for t in tenants_names]
    users = [UserSpec(name=f"u{t}", tenant=t) for t in tenants_names] if chance(rng, 0.3) else []
    jobs: list[JobSpec] = []
    free = {n.name: n.amounts.get("gpu", 0) // 1000 for n in members if n.state == "up"}
    submit = 0
    for i in range(rng.randint(1, max_jobs)):
        submit += rng.choice([0, 0, 50, 100])
        is_live = has_gpu and submit == 0 and "pods" not in resources and chance(rng, 0.25)
        jobs.append(
            random_job(rng, f"j{i}", tenants_names, resources, flavors, submit, jobs, bool(users), bool(domains))
        )
        if is_live:
            jobs[-1] = random_live(rng, jobs[-1], free, members, quota)
    return WorldSpec(
        resources=resources,
        gpu_resource="gpu" if has_gpu else None,
        pods_resource="pods" if "pods" in resources else None,
        flavors=flavors,
        nodes=members,
        domains=domains,
        queues=queues,
        tenants=tenants,
        users=users,
        jobs=jobs,
        changes=random_changes(rng, members, queues, tenants_names, jobs),
        usage={t: rng.uniform(0, 1e6) for t in tenants_names if chance(rng, 0.3)},
        options=OptionsSpec(
            quota=quota,
            gang=chance(rng, 0.6),
            reject_oversized=chance(rng, 0.5),
            half_life_ms=rng.choice([None, 1000, 10**7]),
            usage_tick_ms=rng.choice([None, None, 300]),
            start_latency_ms=rng.choice([0, 0, 10]),
            completing_ms=rng.choice([0, 0, 20]),
            limit_check_ms=rng.choice([0, 30]),
            requeue_hold_ms=rng.choice([0, 0, 50]),
            hang_timeout_ms=rng.choice([None, 100, 200]),
            mean_up_ms=rng.choice([None, None, 1000.0]),
            mean_down_ms=200.0,
            locality=rng.choice([(), (1000, 900, 700)]) if num_racks else (),
            failure_seed=rng.randrange(1000),
        ),
    )


def random_queues(
    rng: random.Random, tenants: Sequence[str], flavors: Sequence[str], resources: Sequence[str]
) -> list[QueueSpec]:
    """A cohort tree of up to two levels with a queue for (nearly) every tenant."""
    cells = [(f, r) for f in flavors for r in resources if r != "pods" and chance(rng, 0.7 if r == "gpu" else 0.3)]

    def quotas(nominal: int) -> dict[tuple[str, str], QuotaSpec]:
        return {
            cell: QuotaSpec(
                nominal=rng.randint(0, nominal) * 1000,
                borrowing_limit=rng.choice([None, None, 0, 2000]),
                lending_limit=rng.choice([None, None, 0, 1000]),
            )
            for cell in cells
            if chance(rng, 0.9)
        }

    queues = [QueueSpec(name="root", is_cohort=True, quotas=quotas(2))]
    for i in range(rng.randint(0, 2)):
        queues.append(QueueSpec(name=f"mid{i}", is_cohort=True, parent="root", quotas=quotas(2)))
    cohorts = [q.name for q in queues]
    for t in tenants:
        if chance(rng, 0.9):
            queues.append(QueueSpec(name=t, parent=rng.choice([None, *cohorts, *cohorts]), quotas=quotas(6)))
    return queues


def random_job(
    rng: random.Random,
    name: str,
    tenants: Sequence[str],
    resources: Sequence[str],
    flavors: Sequence[str],
    submit_ms: int,
    earlier: Sequence[JobSpec],
    has_users: bool,
    has_domains: bool,
) -> JobSpec:
    kind = rng.choice(["training", "training", "training", "batch", "service"])
    pod_sets = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        request = {}
        if chance(rng, 0.95):
            request["gpu"] = rng.choice([0, 200, 300, 500, 700, 1000, 1000, 1000, 2000, 2000, 4000])
        if "cpu" in resources and chance(rng, 0.5):
            request["cpu"] = rng.choice([0, 500, 1000])
        count = rng.choice([1, 1, 2, 3, 4])
        pod_sets.append(
            PodSetSpec(
                count=count,
                request=request,
                min_count=rng.choice([None, 1]) if kind != "service" else 0,
                flavors=rng.choice([None, None, flavors[:1], tuple(reversed(flavors))]),
            )
        )
    num_pods = sum(p.count for p in pod_sets)
    work = rng.choice([1, 100, 200, 250, 333, 1000])
    tenant = rng.choice(tenants)
    outcome = rng.choice(["done", "done", "done", "failed", "hangs"])
    return JobSpec(
        name=name,
        tenant=tenant,
        user=f"u{tenant}" if has_users else None,
        pod_sets=pod_sets,
        kind=kind,
        work_ms=work,
        submit_ms=submit_ms,
        eligible_ms=submit_ms + 100 if chance(rng, 0.15) else None,
        min_member=rng.choice([None, None, 1, rng.randint(1, num_pods)]) if kind == "training" else None,
        requeue=chance(rng, 0.8),
        claim_ms=rng.choice([None, 100, 500]),
        killed_at_claim=chance(rng, 0.4),
        outcome=outcome,
        outcome_ms=rng.choice([0, work // 2, work]) if outcome != "done" else None,
        cancel_ms=submit_ms + rng.choice([0, 100, 400]) if chance(rng, 0.15) else None,
        checkpoint_interval_ms=rng.choice([None, 1, 50, 70, 100, 10**6]),
        checkpoint_cost_ms=rng.choice([0, 0, 5, 30]),
        restart_cost_ms=rng.choice([0, 20]),
        after=rng.choice(earlier).name if earlier and chance(rng, 0.15) else None,
        topology=TopologyWish(tier=1, mode="preferred") if has_domains and chance(rng, 0.2) else None,
    )


def random_live(
    rng: random.Random, job: JobSpec, free: dict[str, int], nodes: Sequence[NodeSpec], quota: str
) -> JobSpec:
    """The job, already waiting or running when the world begins; its pods take whole GPUs of one node."""
    given = {f.name: getattr(job, f.name) for f in fields(job)}
    given.update(eligible_ms=None, after=None, cancel_ms=None, outcome="done", outcome_ms=None)
    size = rng.choice([1, 2])
    count = rng.choice([1, 2])
    rooms = [n for n in nodes if free.get(n.name, 0) >= size * count]
    if not rooms or chance(rng, 0.3):
        return JobSpec(**{**given, "live": LiveSpec(starts=rng.choice([None, 1]), first_start_ms=None)})
    node = rng.choice(rooms)
    free[node.name] -= size * count
    release_ms = rng.choice([None, None, 60])
    progress = rng.randint(0, job.work_ms - 1)
    saved = (
        progress
        if release_ms is not None
        else max(0, progress - rng.randint(0, (job.checkpoint_interval_ms or 50) - 1))
    )
    least = 0 if job.kind == "service" else None
    admission = Admission(pod_set=0, count=count, flavors={"gpu": node.flavor})
    return JobSpec(
        **{
            **given,
            "pod_sets": [PodSetSpec(count=count, request={"gpu": 1000 * size}, min_count=least)],
            "min_member": None,
            "live": LiveSpec(
                pods=[PlacedPods(pod_set=0, node=node.name, count=count, release_ms=release_ms)],
                admissions=[admission] if quota == "enforced" else [],
                evicted_to=rng.choice(["requeue", "cancel"]),
                suspended=job.kind != "service" and release_ms is None and chance(rng, 0.2),
                progress_ms=progress,
                saved_ms=saved,
                start_ms=0,
                first_start_ms=0,
                preemptions=rng.choice([0, 1]),
            ),
        }
    )


def random_changes(
    rng: random.Random,
    nodes: Sequence[NodeSpec],
    queues: Sequence[QueueSpec],
    tenants: Sequence[str],
    jobs: Sequence[JobSpec],
) -> list[ChangeSpec]:
    changes = []
    services = [j for j in jobs if j.kind == "service"]
    cells = [(q.name, cell) for q in queues for cell in q.quotas]
    for _ in range(rng.choice([0, 2, 5])):
        time = rng.choice([50, 100, 150, 200, 400])
        what = rng.choice(["nominal", "borrowing_limit", "lending_limit", "tenant_weight", "replicas", "node_state"])
        if what in ("nominal", "borrowing_limit", "lending_limit") and cells:
            target, cell = rng.choice(cells)
            value = rng.choice([0, 1000, 4000]) if what == "nominal" else rng.choice([None, 0, 1000])
            changes.append(ChangeSpec(time_ms=time, what=what, target=target, cell=cell, value=value))
        elif what == "tenant_weight":
            changes.append(ChangeSpec(time_ms=time, what=what, target=rng.choice(tenants), value=rng.choice([0, 1, 5])))
        elif what == "replicas" and services:
            job = rng.choice(services)
            pod_set, value = rng.randrange(len(job.pod_sets)), rng.choice([0, 1, 3])
            changes.append(ChangeSpec(time_ms=time, what=what, target=job.name, pod_set=pod_set, value=value))
        elif what == "node_state" and nodes:
            state = rng.choice(["up", "drained", "down"])
            changes.append(ChangeSpec(time_ms=time, what=what, target=rng.choice(nodes).name, value=state))
    return sorted(changes, key=lambda c: c.time_ms)


# ---------------------------------------------------------------------------------------------------------------
# Random steps: what a scheduler might do, and what it should not
# ---------------------------------------------------------------------------------------------------------------


def random_step(rng: random.Random, reference: ReferenceWorld) -> Step:
    if chance(rng, 0.6 if reference.jobs else 0.05):
        return "apply", [random_transaction(rng, reference) for _ in range(rng.choice([1, 1, 2]))]
    due = reference.next_event_ms()
    if due is not None and chance(rng, 0.8):
        return "advance", max(due, reference.now_ms)
    return "advance", reference.now_ms + rng.choice([0, 1, 7, 50, 300])


def random_transaction(rng: random.Random, reference: ReferenceWorld) -> list[Command]:
    jobs = reference.live_jobs()
    waiting = [j for j in jobs if j.state in ("queued", "admitted")]
    if waiting and chance(rng, 0.5):
        first = []
        running = [j for j in jobs if j.bound]
        if running and chance(rng, 0.2):
            first = [Command(op="evict", job=rng.choice(running).spec.name)]
        return first + start_of(rng, reference, rng.choice(waiting))
    return [random_command(rng, reference, jobs) for _ in range(rng.choice([1, 1, 1, 2, 3]))]


def start_of(rng: random.Random, reference: ReferenceWorld, job: Job) -> list[Command]:
    """Admit and place all pods of a job, first fit; may well be refused."""
    commands = []
    node_names = list(reference.nodes)
    rng.shuffle(node_names)
    if reference.options.quota == "enforced" and job.state == "queued":
        for index, pod_set in enumerate(job.spec.pod_sets):
            flavor = rng.choice([reference.nodes[n].flavor for n in node_names] or list(reference.spec.flavors))
            least = job.counts[index] if pod_set.min_count is None else min(pod_set.min_count, job.counts[index])
            pods = job.counts[index] if chance(rng, 0.8) else least
            flavors = {r: flavor for r in reference.request_of(pod_set)}
            commands.append(Command(op="admit", job=job.spec.name, pod_set=index, pods=pods, flavors=flavors))
    if commands and chance(rng, 0.2):
        return commands
    for index, pod_set in enumerate(job.spec.pod_sets):
        missing = job.counts[index] - job.done[index] - sum(p.pod_set == index for p in job.pods)
        for n in node_names:
            pods = min(missing, reference.num_fitting(job, pod_set, n))
            if pods <= 0 or reference.node_state[n] != "up":
                continue
            whole_node, gpu = not any(reference.pods_on(n)) and chance(rng, 0.15), None
            if pod_set.request.get("gpu", 0) % 1000 and not whole_node and chance(rng, 0.3):
                gpu = rng.randrange(max(1, len(reference.gpu_free(n))))
            pods = 1 if whole_node or gpu is not None else pods
            where = {"node": n, "pods": pods, "whole_node": whole_node, "gpu": gpu}
            commands.append(Command(op="place", job=job.spec.name, pod_set=index, **where))
            missing -= pods
    return commands


SUITS = {  # the states in which a command makes sense; it is mostly, not always, tried in these
    "admit": ("queued",),
    "unadmit": ("admitted",),
    "place": ("queued", "admitted", "partial", "running"),
    "evict": ("partial", "running", "suspended"),
    "suspend": ("running",),
    "resume": ("suspended",),
    "hold": ("queued",),
    "cancel": tuple(JOB_STATES),
    "reserve": ("queued", "admitted"),
    "unreserve": ("queued", "admitted"),
}
HOW_OFTEN = ["place"] * 6 + ["evict"] * 6 + ["suspend"] * 2 + ["resume"] * 2 + ["reserve"] * 2 + list(SUITS)


def random_command(rng: random.Random, reference: ReferenceWorld, jobs: Sequence[Job]) -> Command:
    states = {j.state for j in jobs}
    sensible = [op for op in HOW_OFTEN if states & set(SUITS[op])]
    op = rng.choice(sensible if sensible and chance(rng, 0.9) else HOW_OFTEN)
    names = [j.spec.name for j in jobs if j.state in SUITS[op]]
    if op == "unreserve":
        names = [j.spec.name for j in jobs if j.reservations]
    if not names or chance(rng, 0.15):
        names = [j.spec.name for j in jobs]
    if not names or chance(rng, 0.02):
        names = [*reference.row_of, "nobody"]
    name = rng.choice(names)
    job = reference.jobs.get(name)
    num_sets = len(job.counts) if job else 1
    known = list(reference.nodes)
    node = rng.choice(known if known and chance(rng, 0.95) else [*known, "nowhere"])
    until = reference.now_ms + rng.choice([-10, 0, 50, 50, 100, 1 << 62])
    match op:
        case "admit":
            index = rng.randrange(num_sets)
            request = reference.request_of(job.spec.pod_sets[index]) if job else {}
            flavors = dict.fromkeys(request, rng.choice(reference.spec.flavors))
            return Command(op="admit", job=name, pod_set=index, pods=rng.randint(0, 4), flavors=flavors)
        case "place":
            index = rng.randrange(num_sets)
            is_whole_node, pods = chance(rng, 0.1), rng.choice([1, 1, 1, 2, 3, 5])
            gpu = rng.choice([0, 1, 3]) if pods == 1 and not is_whole_node and chance(rng, 0.15) else None
            return Command(op="place", job=name, pod_set=index, node=node, pods=pods, whole_node=is_whole_node, gpu=gpu)
        case "evict":
            return Command(
                op="evict",
                job=name,
                pod_set=rng.randrange(num_sets) if chance(rng, 0.2) else None,
                node=node if chance(rng, 0.2) else None,
                pods=rng.choice([None, None, 1, 2]),
                grace_ms=rng.choice([0, 0, 30, 100]),
                then=rng.choice(["requeue", "requeue", "shrink", "cancel"]),
            )
        case "suspend":
            freed = [r for r in reference.spec.resources if chance(rng, 0.5)]
            return Command(op="suspend", job=name, freed=freed)
        case "hold":
            return Command(op="hold", job=name, until_ms=until)
        case "cancel":
            return Command(op="cancel", job=name, reason=rng.choice(["by_scheduler", "unspecified"]))
        case "reserve":
            some = [r for r in reference.spec.resources if r != "pods" and chance(rng, 0.8)]
            amounts = {r: rng.choice([0, 1000, 1000, 2000, 4000 if r == "gpu" else 500]) for r in some}
            return Command(op="reserve", job=name, node=node, amounts=amounts, until_ms=until)
        case _:
            return Command(op=op, job=name)
