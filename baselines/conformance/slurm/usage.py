"""Usage line by line: what each job's run added to which association, as slurmctld logged it.

The log gives the seconds of ticks and ends; with these, every amount is exact. Jobs start and end when they did.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from gangline.baselines.conformance.cases import Case, Facts, Outcome
from gangline.baselines.conformance.slurm.formulas import check_rows
from gangline.baselines.conformance.slurm.replay import Replay
from gangline.baselines.conformance.slurm.worlds import SECOND_MS, slurm_world
from gangline.envs.errors import GanglineError

ADDED = re.compile(r"Adding ([\d.]+) new usage to assoc \d+ \((.*?)/(.*?)/.*?\) raw usage is now ([\d.]+)\.")
DECAY = re.compile(r"Decay factor over (\d+) seconds goes from ([\d.]+) -> ([\d.]+)")
DECIMALS = 1e-6


def run_usage(about: Case, case: Case) -> Outcome:
    """The recorded runs, charged by the compiled scheduler; after each logged instant the log's numbers."""
    try:
        world, config = slurm_world(about, case)
    except GanglineError as error:
        return Outcome(skipped=str(error))
    observed = case["observed"]
    jobs = []
    for job in world.jobs:
        ran_s = observed[job.name]["end"] - observed[job.name]["start"]
        jobs.append(dataclasses.replace(job, work_ms=ran_s * SECOND_MS, killed_at_claim=False))
    options = dataclasses.replace(world.options, limit_check_ms=0)
    replay = Replay(dataclasses.replace(world, jobs=jobs, options=options), config)
    facts = Facts()
    marks = sorted([(float(at), "log", lines) for at, lines in instants(case["log"])] + _snapshots(case), key=_moment)
    first_tick = next((int(at) for at, lines in instants(case["log"]) if any(DECAY.search(x) for x in lines)), None)
    if first_tick is not None:
        replay.set_next_tick(first_tick)
    for at, kind, content in marks:
        replay.run_until(int(at) + 1 if kind == "log" else at)  # the log's clock runs up to a second ahead
        rows = replay.associations()
        if kind == "snapshot":
            check_rows(facts, content["sshare"], rows, f"at {at:g} s: ")
        else:
            _check_lines(facts, content, rows, at)
    for label, job in observed.items():
        facts.check(f"{label} nodes", job["nodes"], _packed(replay.runs[label][-1].nodes))
    return facts.outcome()


def _moment(mark: tuple[float, str, Any]) -> tuple[float, str]:
    return mark[0], mark[1]


def _snapshots(case: Case) -> list[tuple[float, str, Any]]:
    return [(float(s["at"]), "snapshot", s) for s in case["snapshots"] if "sshare" in s]


def instants(log: list[tuple[float, str]]) -> Iterator[tuple[float, list[str]]]:
    """The log's lines by their time."""
    lines: dict[float, list[str]] = {}
    for at, line in log:
        lines.setdefault(at, []).append(line)
    yield from lines.items()


def _check_lines(facts: Facts, lines: list[str], rows: dict[tuple[str, str | None], Any], at: float) -> None:
    """Every association's raw usage after the instant, as its last line says."""
    raw: dict[tuple[str, str | None], float] = {}
    for line in lines:
        added = ADDED.search(line)
        if added:
            account, user = added[2], added[3]
            raw[account, None if user == "(null)" else user] = float(added[4])
    for key, want in raw.items():
        who = ":".join(filter(None, key))
        facts.check_near(f"at {at:g} s: raw usage of {who}", want, float(rows[key]["raw"]), DECIMALS)


def _packed(nodes: list[str]) -> str:
    """Node names as Slurm prints a run of them."""
    stem = nodes[0].rstrip("0123456789")
    numbers = [int(n.removeprefix(stem)) for n in nodes]
    return nodes[0] if len(nodes) == 1 else f"{stem}[{numbers[0]}-{numbers[-1]}]"
