"""Histories: some forty jobs over three minutes, group of starts by group of starts.

One world lives through the history. At the second of each recorded group it runs one pass of the kind that was
recorded, and must start exactly these jobs on these nodes; at the second of each victim it must name this victim.
Where it does not, an end or a submission within 0.6 s may be taken as before or after the pass, since the real one
took its time; else the group has failed, and the record is followed from there on.

Planned starts are no fact of a history: a listing shows those of a pass some seconds earlier. docs/slurm.md says how
many are reproduced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gangline.baselines.conformance.cases import Case, Facts, Outcome
from gangline.baselines.conformance.slurm.free_runs import check_free_run, is_comparable
from gangline.baselines.conformance.slurm.replay import Replay
from gangline.baselines.conformance.slurm.worlds import slurm_world
from gangline.envs.core.spec import Command
from gangline.envs.errors import GanglineError

SHIFTS_S = (0.0, -0.1, 0.1, -0.2, 0.2, -0.3, 0.3, -0.4, 0.4, -0.5, 0.5, -0.6, 0.6)


def run_history(about: Case, case: Case) -> Outcome:
    """A history, stepwise; then from its inputs alone where that is no matter of chance."""
    try:
        world, config = slurm_world(about, case)
    except GanglineError as error:
        return Outcome(skipped=str(error))
    facts = Facts()
    replay = Replay(world, config, case.get("t0_mod_30", 0), by_hand=True)
    if case["ticks"]:
        replay.set_next_tick(case["ticks"][0])
    num_groups = num_missed = 0
    missed: list[tuple[str, Any, Any]] = []
    for at, kind, content in sorted(marks(case), key=lambda mark: (mark[0], mark[1])):
        num_groups += 1
        want = wanted(case, kind, content, at)
        found = None
        before = replay.save()
        for shift_s in SHIFTS_S:
            replay.restore(before)
            if at + shift_s < replay.now_s:
                continue
            actual = attempt(replay, kind, content, at + shift_s)
            found = actual if found is None else found
            if actual == want:
                break
        else:
            num_missed += 1
            missed.append((f"at {at:g} s: {kind}", want, found))
            replay.restore(before)
            follow(replay, case, kind, content, at)
    for label, observed in case["observed"].items():
        mine = replay.first_priority.get(label)
        if mine is not None and "priority_at_submit" in observed:
            facts.check(f"{label} priority at submission", observed["priority_at_submit"], mine)
    if num_missed > allowed_misses(num_groups):
        for fact, want, found in missed:
            facts.check(fact, want, found)
    if is_comparable(case):
        check_free_run(facts, about, case)
    return facts.outcome()


def allowed_misses(num_groups: int) -> int:
    """A job may have ended or arrived inside a pass: at most one group of about 34."""
    return -(-num_groups // 34)


def marks(case: Case) -> Iterator[tuple[float, str, Any]]:
    """What to look at, and when."""
    until_s = case.get("compare_until", float("inf"))
    for group in case["facts"]["start_groups"]:
        if group["start"] < until_s:
            yield group["start"], "start", group
    for victim in case["facts"]["victims"]:
        if victim["at"] < until_s:
            yield victim["at"], "evict", victim


def wanted(case: Case, kind: str, content: Any, at: float) -> Any:
    """What a mark says to have happened."""
    if kind == "evict":
        return content["label"]
    loose = {(entry["label"], entry["run"]) for entry in case["nodes_not_exact"]}
    found = {}
    for label in content["labels"]:
        starts = [run["start"] for run in case["observed"][label]["runs"]]
        number = min(range(len(starts)), key=lambda i: abs(starts[i] - at))  # a pass takes its time
        run = case["observed"][label]["runs"][number]
        found[label] = sorted(run["nodes"]) if (label, number) not in loose else None
    return Starts(found)


class Starts(dict[str, Any]):
    """Jobs and their nodes; equal where one side does not say which nodes."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict) or set(self) != set(other):
            return False
        return all(None in (self[label], other[label]) or self[label] == other[label] for label in self)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]


def attempt(replay: Replay, kind: str, content: Any, at: float) -> Any:
    """One pass of the kind; who started where, or who had to go."""
    replay.run_until(at)
    before = {label: len(runs) for label, runs in replay.runs.items()}
    num_victims = len(replay.victims)
    replay.one_pass(content.get("scheduler", "Main"))
    if kind == "evict":
        names = [victim.label for victim in replay.victims[num_victims:]]
        return names[0] if len(names) == 1 else names
    return Starts(
        {
            label: sorted(runs[-1].nodes)
            for label, runs in replay.runs.items()
            if len(runs) > before[label] and runs[-1].end_s is None
        }
    )


def follow(replay: Replay, case: Case, kind: str, content: Any, at: float) -> None:
    """Do what the record says."""
    replay.run_until(at)
    if kind == "evict":
        replay.world.apply([[Command(op="evict", job=content["label"])]])
    else:
        for label, nodes in wanted({**case, "nodes_not_exact": []}, kind, content, at).items():
            replay.world.apply([[Command(op="place", job=label, node=node, pods=1) for node in nodes]])
    replay.look()
    replay.note()
