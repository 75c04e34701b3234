"""Recorded runs: the scheduler runs the case from its inputs alone, and what it did is compared with the record.

Order, nodes, states, victims, reasons and priorities are exact. Clock values may differ by what the real system's
latencies make of them; a queue listing is compared with everything that was true within that time of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from gangline.baselines.conformance.cases import Case, Facts, Outcome
from gangline.baselines.conformance.slurm.formulas import check_rows
from gangline.baselines.conformance.slurm.replay import Replay, Run
from gangline.baselines.conformance.slurm.worlds import LIMIT_CHECK_S, node_names, slurm_world
from gangline.baselines.slurm.setup import Tres
from gangline.envs.errors import GanglineError

CLOCK_S = 3.0  # README: clock values +-3 s
BACKFILL_S = 5.0  # and up to one bf_interval for backfill starts
PLAN_S = 2.0
PHASES_S = (15, 0, 1, 5, 10, 20, 25, 29)
SAME_GROUP_S = 2.0  # starts nearer than this have no order
FACTOR = 1e-6
LIMITS = ("QOS", "Assoc", "Max")


def run_recorded(about: Case, case: Case) -> Outcome:
    """A run case. What the wall clock said at its second 0 is not recorded but moves plans: one phase must fit all."""
    outcome = _run_from(about, case, PHASES_S[0])
    for phase_s in PHASES_S[1:]:
        if outcome.passed or outcome.skipped is not None:
            break
        other = _run_from(about, case, phase_s)
        if other.passed:
            return other
    return outcome


def _run_from(about: Case, case: Case, phase_s: int) -> Outcome:
    """The same with the wall clock so many seconds past a multiple of 30 at the start."""
    try:
        world, config = slurm_world(about, case)
    except GanglineError as error:
        return Outcome(skipped=str(error))
    facts = Facts()
    replay = Replay(world, config, phase_s)
    first_tick = tick_of(case)
    if first_tick is not None:
        replay.set_next_tick(first_tick)
    seen: list[dict[str, Any]] = []
    for snapshot in sorted(case["snapshots"], key=lambda s: s["at"]):
        _watch(replay, seen, snapshot["at"])
        _check_snapshot(facts, replay, case, snapshot)
    _watch(replay, seen, last_second(case))
    for snapshot in case["snapshots"]:
        _check_queue(facts, seen, case, snapshot)
    _check_starts(facts, replay, case)
    for label, observed in case["observed"].items():
        _check_job(facts, replay, case, label, observed)
    return facts.outcome()


def last_second(case: Case) -> float:
    """When the recording stopped: after the last thing it says to have happened."""
    times = [snapshot["at"] for snapshot in case["snapshots"]]
    times += [o[key] for o in case["observed"].values() for key in ("start", "end") if o.get(key) is not None]
    return float(max(times)) + CLOCK_S


def tick_of(case: Case) -> float | None:
    """The second of a tick, as the ages that it left show; None if none shows."""
    max_age_s = 60.0 * float(case["config"].get("PriorityMaxAge", 7 * 1440))
    for snapshot in case["snapshots"]:
        for row in snapshot.get("sprio", ()):
            eligible = case["observed"][row["label"]].get("eligible")
            if row["norm_age"] > 0 and eligible is not None:
                tick = round(eligible + row["norm_age"] * max_age_s)
                period_s = 60 * int(case["config"].get("PriorityCalcPeriod", 5))
                return tick - (tick // period_s) * period_s
    return None


def _watch(replay: Replay, seen: list[dict[str, Any]], until_s: float) -> None:
    """Run on, a quarter of a second at a time, and keep what the queue looked like."""
    while replay.now_s < until_s:
        replay.run_until(min(until_s, replay.now_s + 0.25))
        queue = {}
        for label in replay.runs:
            state = replay.state_of(label)
            if state is not None:
                nodes = replay.runs[label][-1].nodes if state != "PD" else None
                queue[label] = (state, nodes, replay.reason_of(label), replay.priority_of(label))
        seen.append({"at": replay.now_s, "queue": queue})


# ---------------------------------------------------------------------------------------------------------------
# Listings
# ---------------------------------------------------------------------------------------------------------------


def _check_snapshot(facts: Facts, replay: Replay, case: Case, snapshot: Mapping[str, Any]) -> None:
    """Priorities, factors, shares and plans at a moment."""
    when = f"at {snapshot['at']:g} s: "
    for row in snapshot.get("sprio", ()):
        where = f"{when}{row['label']} in {row['partition']}"
        facts.check(f"{where} priority", row["priority"], replay.priority_of(row["label"], row["partition"]))
        mine = replay.remembered(row["label"])
        if mine is None:
            continue
        for column, field in (("norm_fairshare", "fair_share"), ("norm_jobsize", "job_size"), ("norm_age", "age")):
            if row[column] > 0:  # a factor without a weight is printed as 0
                facts.check_near(f"{where} {column}", row[column], float(mine[field]), FACTOR)
    if "sshare" in snapshot:
        rows = replay.associations()
        check_rows(facts, snapshot["sshare"], rows, when)
    if case["config"].get("SchedulerType") == "sched/backfill":
        plans = replay.plans()
        for row in snapshot.get("planned", ()):
            if row["planned_start"] is None or row["reason"] not in ("Resources", "Priority"):
                continue
            start_s, nodes = plans.get(row["label"], (None, None))
            facts.check_near(f"{when}{row['label']} planned start", row["planned_start"], start_s, PLAN_S)
            if row["planned_nodes"] is not None:
                facts.check(f"{when}{row['label']} planned nodes", node_names(row["planned_nodes"]), nodes)


def _check_queue(facts: Facts, seen: list[dict[str, Any]], case: Case, snapshot: Mapping[str, Any]) -> None:
    """Each line of a queue listing was true at some moment near it."""
    slack_s = CLOCK_S + BACKFILL_S
    near = [s["queue"] for s in seen if abs(s["at"] - snapshot["at"]) <= slack_s]
    ages = int(case["config"].get("PriorityWeightAge", 0)) > 0
    anywhere = {label for label, o in case["observed"].items() if o.get("nodes", "") is None}
    for row in snapshot.get("queue", ()):
        nodes = node_names(row["nodes"]) if row["nodes"] and row["label"] not in anywhere else None
        want = (row["state"], nodes, row["reason"], None if ages else row["priority"])
        found = [queue.get(row["label"]) for queue in near]
        is_there = any(
            line is not None and all(w is None or w == x for w, x in zip(want, line, strict=True)) for line in found
        )
        if not is_there:
            facts.check(f"at {snapshot['at']:g} s: {row['label']}", want, list(dict.fromkeys(map(str, found))))


def _agree(want: tuple[Any, ...], line: tuple[Any, ...]) -> bool:
    """Whether a line of the queue says what was listed; None = not compared."""
    return all(w is None or w == x for w, x in zip(want, line, strict=True))


# ---------------------------------------------------------------------------------------------------------------
# What became of each job
# ---------------------------------------------------------------------------------------------------------------


def _check_starts(facts: Facts, replay: Replay, case: Case) -> None:
    """Order of starts, never-started jobs, victims."""
    groups = case["facts"]["start_groups"]
    first = {label: runs[0].start_s for label, runs in replay.runs.items() if runs}
    for before, after in pairwise(groups):
        if after["start"] - before["start"] <= SAME_GROUP_S:
            continue
        for a in before["labels"]:
            for b in after["labels"]:
                if a in first and b in first and first[a] > first[b]:
                    facts.check(f"order of {a} and {b}", (before["start"], after["start"]), (first[a], first[b]))
    for label in case["facts"]["never_started"]:
        facts.check(f"{label} starts", [], [run.start_s for run in replay.runs[label]])
    if "victims" in case["facts"]:
        want = [victim["label"] for victim in case["facts"]["victims"]]
        actual = [victim.label for victim in replay.victims]
        lost = {label for label, o in case["observed"].items() if o["state"] == "NODE_FAIL"}
        facts.check("victims", want, [label for label in actual if label not in lost or label in want])
        for victim, ours in zip(case["facts"]["victims"], replay.victims, strict=False):
            facts.check_near(f"{victim['label']} goes", victim["at"], ours.at_s, CLOCK_S + BACKFILL_S)


def _check_job(facts: Facts, replay: Replay, case: Case, label: str, observed: Mapping[str, Any]) -> None:
    """State, start, end, nodes, GPUs, what is allocated, priority, planned start of one job."""
    facts.check(f"{label} state", _settled(observed["state"]), _settled(replay.final_state(label)))
    runs = replay.runs[label]
    run: Run | None = runs[-1] if runs and observed.get("start") is not None else None
    if observed.get("start") is not None:
        slack_s = CLOCK_S + BACKFILL_S * (observed.get("scheduler") == "Backfill" or "PreemptType" in case["config"])
        slack_s += _links(case, label)
        facts.check_near(f"{label} start", observed["start"], run.start_s if run else None, slack_s)
        if run and observed.get("end") is not None:
            late_s = LIMIT_CHECK_S if observed["state"] == "TIMEOUT" else 0
            facts.check_near(f"{label} end", observed["end"], run.end_s, slack_s + late_s)
        if run and observed.get("nodes"):
            facts.check(f"{label} nodes", node_names(observed["nodes"]), run.nodes)
    mine = replay.remembered(label)
    if run and mine is not None and observed["state"] in ("RUNNING", "SUSPENDED"):
        facts.check(f"{label} tres", _numbers(observed["tres"]), _allocated(replay, mine))
        wanted = {node: ids for names, ids in observed.get("gres", {}).items() for node in node_names(names)}
        for node, ids in wanted.items():
            spans = node_names("g" + ids[ids.index("(IDX:") + 5 : -1].join("[]"))
            facts.check(f"{label} GPUs on {node}", [int(s[1:]) for s in spans], replay.gpus_of(label).get(node))
        if observed.get("end_if_limit") is not None and not _alternates(case):
            facts.check_near(f"{label} limit", observed["end_if_limit"], int(mine["end_ms"]) / 1000, slack_s)
    if mine is not None and observed.get("priority") is not None and observed.get("restarts") is None:
        facts.check(f"{label} priority", observed["priority"], replay.priority_of(label))
    slot = replay.world.slot_of(label)
    if slot is not None and observed["state"] == "PENDING":
        if observed.get("begin_time") is not None:
            eligible_s = int(replay.world.record["jobs"][slot]["eligible_ms"]) / 1000
            facts.check_near(f"{label} begin time", observed["begin_time"], eligible_s, CLOCK_S + BACKFILL_S)
        facts.check(f"{label} reason", observed["reason"], replay.reason_of(label))
        is_planned = observed.get("planned_start") is not None and not _rests_on_unrecorded(replay, case, label)
        if is_planned and case["config"]["SchedulerType"] == "sched/backfill":
            start_s, _ = replay.plans().get(label, (None, []))
            slack_s = PLAN_S + (CLOCK_S if "PreemptType" in case["config"] else 0)
            facts.check_near(f"{label} planned start", observed["planned_start"], start_s, slack_s)


def _rests_on_unrecorded(replay: Replay, case: Case, label: str) -> bool:
    """Whether a job before this one waits for its turn but the record has no plan for it: those behind rest on that."""
    for record in replay.slurm.order[: int(replay.own["num_order"])]:
        other = replay.world.job_name(int(record["row"]))
        observed = case["observed"][other]
        if other == label:
            return False
        if observed["state"] == "PENDING" and observed["reason"] == "Priority" and not observed.get("planned_start"):
            return True
    return False


def _settled(state: str | None) -> str | None:
    """Jobs that take turns are running or suspended by chance."""
    return "RUNNING" if state == "SUSPENDED" else state


def _alternates(case: Case) -> bool:
    return case["config"].get("PreemptMode") == "GANG"


def _links(case: Case, label: str) -> float:
    """Latency that has come together on the way to a job's start: 0.8 s for each start group before it."""
    earlier = [g for g in case["facts"]["start_groups"] if g["start"] < case["observed"][label]["start"]]
    return 0.8 * len(earlier)


def _numbers(tres: str) -> dict[str, float]:
    pairs = (item.rpartition("=") for item in tres.split(","))
    return {name: float(value) for name, _, value in pairs}


def _allocated(replay: Replay, mine: Any) -> dict[str, float]:
    """A running job's TRES as `scontrol` prints them."""
    tres = Tres(replay.world)
    found = {
        name: float(mine["tres"][at]) / float(tres.scale[at]) for name, at in tres.index.items() if mine["tres"][at] > 0
    }
    if mine["billing"] > 0:
        found["billing"] = float(mine["billing"])
    return found
