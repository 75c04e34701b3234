"""The compiled scheduler on a recorded case's world, stopped where a recording has to be looked at."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from gangline.baselines.conformance.slurm.formulas import association_names
from gangline.baselines.slurm.config import SlurmConfig
from gangline.baselines.slurm.scheduler import slurm
from gangline.baselines.slurm.setup import accounts_in
from gangline.baselines.slurm.tables import BILLING_TRES, TYPE_TRES, Reason, Stage, opened
from gangline.envs.core import driver
from gangline.envs.core.spec import WorldSpec
from gangline.envs.core.types import AGAIN, NEVER, NONE, JobState, Outcome, PodState
from gangline.envs.core.world import World

SECOND_MS = 1000
STATES = {
    Outcome.DONE: "COMPLETED",
    Outcome.FAILED: "FAILED",
    Outcome.TIMEOUT: "TIMEOUT",
    Outcome.NODE_FAIL: "NODE_FAIL",
    Outcome.PREEMPTED: "PREEMPTED",
    Outcome.CANCELLED: "CANCELLED",
}


@dataclass
class Run:
    """One start of a job."""

    start_s: float
    nodes: list[str]
    by: str = "Main"
    end_s: float | None = None
    suspended: list[tuple[float, float | None]] = field(default_factory=list)


@dataclass
class Victim:
    """A job that had to go."""

    label: str
    at_s: float


class Replay:
    """A world, its scheduler, and a diary of what happened."""

    def __init__(self, spec: WorldSpec, config: SlurmConfig, epoch_s: int = 0, by_hand: bool = False) -> None:
        self.world = World.from_state(spec)
        self.scheduler = slurm(config)
        self.config = config
        self.block: np.ndarray = self.scheduler.private_for(self.world)
        self.own["epoch_ms"] = epoch_s * SECOND_MS
        self.own["by_hand"] = by_hand
        self.runs: dict[str, list[Run]] = {name: [] for name in self.world.job_names}
        self.victims: list[Victim] = []
        self.first_priority: dict[str, int] = {}  # at submission
        self._preemptions = dict.fromkeys(self.world.job_names, 0)
        self._next_look_ms: int = NEVER  # when the scheduler wants to be asked, after a look outside any event
        self.look()
        self.note()

    @property
    def slurm(self) -> SimpleNamespace:
        """The scheduler's tables."""
        return opened(self.block, self.world.size)

    def associations(self) -> dict[tuple[str, str | None], np.void]:
        """Rows of the table of associations by (account, user)."""
        config = dataclasses.replace(self.config, accounts=accounts_in(self.config, self.world))
        names = list(association_names(config))
        return dict(zip(names, self.slurm.assocs[: len(names)], strict=True))

    @property
    def own(self) -> Any:
        """The scheduler's header."""
        return self.slurm.own[0]

    @property
    def now_s(self) -> float:
        """The clock."""
        return self.world.now_ms / SECOND_MS

    def set_next_tick(self, second: float) -> None:
        """When usage is brought up to date next; the last time was one period before."""
        self.own["next_tick_ms"] = int(second) * SECOND_MS
        self.own["tick_s"] = int(second) - self.own["calc_period_s"]

    # -- time ------------------------------------------------------------------------------------------------------

    def run_until(self, second: float) -> None:
        """Let the scheduler run the world, event by event, and write the diary."""
        until_ms = round(second * SECOND_MS)
        while True:
            next_ms = self.world.next_event_ms()
            if self._next_look_ms <= until_ms and (next_ms is None or self._next_look_ms < next_ms):
                self._run(self._next_look_ms)
                self.look()
                self.note()
                continue
            if next_ms is None or next_ms > until_ms:
                break
            self._next_look_ms = NEVER  # from now on the world's own timer
            self._run(next_ms)
            self.note()
        if until_ms > self.world.now_ms:
            self._run(until_ms)
            self.note()

    def _run(self, until_ms: int) -> None:
        world = self.world
        driver.run_scheduler(
            world.size,
            world.records,
            0,
            self.scheduler.compiled(world.size),
            self.block,
            world.decision,
            *world.tables,
            until_ms,
        )
        world.check()

    def look(self) -> None:
        """Let the scheduler look at the world as it is, without waiting for an event."""
        world = self.world
        totals = world.record["totals"]
        for _ in range(10_000):
            events = int(totals["num_events"])
            next_ms = driver.run_cycles(
                world.size,
                world.records,
                0,
                self.scheduler.compiled(world.size),
                self.block,
                world.decision,
                *world.tables,
                1,
            )
            world.check()
            self._next_look_ms = next_ms if world.now_ms < next_ms else NEVER
            if next_ms != AGAIN and totals["num_events"] == events:  # nor has anything happened at this instant
                return

    def one_pass(self, kind: str) -> None:
        """Run exactly one pass now: `Main` or `Backfill`."""
        self.own["asked"] = Stage.BACKFILL if kind == "Backfill" else Stage.MAIN
        self.look()
        self.note(kind)

    def save(self) -> Any:
        """Everything that `restore` needs to come back to this moment."""
        diary = copy.deepcopy((self.runs, self.victims, self._preemptions, self.first_priority))
        return self.world.get_state(), self.block.copy(), self._next_look_ms, diary

    def restore(self, moment: Any) -> None:
        """Come back to a moment."""
        state, block, self._next_look_ms, diary = moment
        self.world.set_state(state)
        self.block[:] = block
        self.runs, self.victims, self._preemptions, self.first_priority = copy.deepcopy(diary)

    # -- the diary ---------------------------------------------------------------------------------------------------

    def note(self, by: str | None = None) -> None:
        """Write down who has started, stopped, gone on or ended since the last look."""
        now_s = self.now_s
        live = {self.world.job_name(int(job["row"])): job for job in self.jobs()}
        order = sorted(live, key=lambda name: int(live[name]["start_ms"]))
        for label in order:
            if label not in self.first_priority and self.remembered(label) is not None:
                self.first_priority[label] = int(self.remembered(label)["priority"])  # type: ignore[index]
            job, runs = live[label], self.runs[label]
            is_on = job["num_bound"] > 0
            is_open = bool(runs) and runs[-1].end_s is None
            if is_open and (not is_on or round(runs[-1].start_s * SECOND_MS) != int(job["start_ms"])):
                runs[-1].end_s = now_s
                is_open = False
            if int(job["preemptions"]) > self._preemptions[label]:
                self._preemptions[label] = int(job["preemptions"])
                self.victims.append(Victim(label, now_s))
            if is_on and not is_open:
                runs.append(Run(int(job["start_ms"]) / SECOND_MS, self.nodes_of(job), by or self.stage()))
            if is_on:
                stops = runs[-1].suspended
                is_stopped = job["state"] == JobState.SUSPENDED
                if is_stopped and (not stops or stops[-1][1] is not None):
                    stops.append((now_s, None))
                elif not is_stopped and stops and stops[-1][1] is None:
                    stops[-1] = (stops[-1][0], now_s)
        for row in self.world.ended():
            label = self.world.job_name(int(row["row"]))
            runs = self.runs[label]
            if runs and runs[-1].end_s is None:
                runs[-1].end_s = int(row["end_ms"]) / SECOND_MS
            elif not runs and row["first_start_ms"] < NEVER:  # started and ended between two looks
                runs.append(Run(int(row["first_start_ms"]) / SECOND_MS, [], "Main", int(row["end_ms"]) / SECOND_MS))
            if int(row["preemptions"]) > self._preemptions[label]:
                self._preemptions[label] = int(row["preemptions"])
                self.victims.append(Victim(label, int(row["end_ms"]) / SECOND_MS))

    def stage(self) -> str:
        """What the scheduler was doing when it came to rest."""
        return "Backfill" if self.own["stage"] == Stage.BACKFILL else "Main"

    # -- reading -------------------------------------------------------------------------------------------------------

    def jobs(self) -> Iterator[np.void]:
        """Live jobs."""
        used = int(self.world.record["jobs_used"])
        for job in self.world.record["jobs"][:used]:
            if job["state"] != JobState.FREE:
                yield job

    def nodes_of(self, job: np.void) -> list[str]:
        """Names of the nodes that a job has pods on, by index."""
        found = {int(p["node"]) for p in self.world.pods_of(job) if p["state"] == PodState.BOUND}
        return [self.world.names.nodes[n] for n in sorted(found)]

    def gpus_of(self, label: str) -> dict[str, list[int]]:
        """GPU indices of a live job by node."""
        slot = self.world.slot_of(label)
        found: dict[str, list[int]] = {}
        for pod in self.world.pods_of(self.world.record["jobs"][slot]) if slot is not None else ():
            if pod["state"] == PodState.BOUND and pod["gpu_mask"]:
                gpus = found.setdefault(self.world.names.nodes[int(pod["node"])], [])
                gpus += [g for g in range(16) if int(pod["gpu_mask"]) >> g & 1]
        return {node: sorted(gpus) for node, gpus in found.items()}

    def priority_of(self, label: str, partition: str | None = None) -> int | None:
        """Priority of a waiting job in a partition (None: the highest); of a running one as it was when it started."""
        slot = self.world.slot_of(label)
        if slot is None:
            return None
        tables = self.slurm
        if partition is not None:
            at = [p.name for p in self.config.partitions].index(partition)
            for record in tables.order[: int(self.own["num_order"])]:
                if record["slot"] == slot and record["partition"] == at:
                    return int(record["priority"])
        return int(tables.slots[slot]["priority"])

    def remembered(self, label: str) -> np.void | None:
        """What the scheduler remembers of a live job."""
        slot = self.world.slot_of(label)
        if slot is None:
            return None
        mine: np.void = self.slurm.slots[slot]
        return mine if mine["row"] == self.world.record["jobs"][slot]["row"] else None

    def plans(self) -> dict[str, tuple[float, list[str]]]:
        """(planned start, nodes) of the last backfill pass, by label; the earliest of its partitions."""
        found: dict[str, tuple[float, list[str]]] = {}
        words = int(self.own["words"])
        tables = self.slurm
        for i, plan in enumerate(tables.plans[: int(self.own["num_plans"])]):
            if plan["start_ms"] >= NEVER:
                continue
            label = self.world.job_name(int(plan["row"]))
            bits = tables.plan_nodes[i * words : (i + 1) * words]
            nodes = [name for n, name in enumerate(self.world.names.nodes) if int(bits[n // 64]) >> (n % 64) & 1]
            start_s = int(plan["start_ms"]) / SECOND_MS
            if label not in found or start_s < found[label][0]:
                found[label] = (start_s, nodes)
        return found

    def reason_of(self, label: str) -> str:
        """Why a job waits, in Slurm's words."""
        slot = self.world.slot_of(label)
        if slot is None:
            return "None"
        job = self.world.record["jobs"][slot]
        if job["state"] == JobState.NOT_ELIGIBLE:
            return "Dependency" if job["after_job"] != NONE else "BeginTime"
        if job["num_bound"] > 0:
            return "None"
        mine = self.slurm.slots[slot]
        if mine["reason"] == Reason.RESOURCES and mine["reason_pass"] != self.own["num_passes"]:
            return "Priority"  # somebody else is first now
        return reason_name(int(mine["reason"]), self.tres_class(int(mine["reason_tres"])))

    def tres_class(self, tres: int) -> str:
        """What a TRES is called in a reason."""
        if tres == BILLING_TRES:
            return "Billing"
        if tres >= TYPE_TRES or tres == int(self.world.record["params"]["gpu_resource"]):
            return "GRES"
        if tres < len(self.world.names.resources):
            return {"cpu": "Cpu", "mem": "Mem", "memory": "Mem"}.get(self.world.names.resources[tres], "GRES")
        return "Node"

    def state_of(self, label: str) -> str | None:
        """R, S, PD; None when it has ended or not arrived."""
        slot = self.world.slot_of(label)
        if slot is None:
            return None
        job = self.world.record["jobs"][slot]
        if job["state"] == JobState.SUSPENDED:
            return "S"
        return "R" if job["num_bound"] > 0 else "PD"

    def final_state(self, label: str) -> str | None:
        """The state as `scontrol show job` would print it."""
        state = self.state_of(label)
        if state is not None:
            return {"R": "RUNNING", "S": "SUSPENDED", "PD": "PENDING"}[state]
        for row in self.world.ended():
            if self.world.job_name(int(row["row"])) == label:
                return STATES.get(Outcome(int(row["outcome"])))
        return None


def reason_name(reason: int, tres: str) -> str:
    """A reason in Slurm's words."""
    return {
        Reason.NONE: "Priority",
        Reason.PRIORITY: "Priority",
        Reason.RESOURCES: "Resources",
        Reason.HELD: "JobHeldUser",
        Reason.QOS_GRP_JOBS: "QOSGrpJobsLimit",
        Reason.QOS_MAX_JOBS_PER_USER: "QOSMaxJobsPerUserLimit",
        Reason.QOS_MAX_JOBS_PER_ACCOUNT: "MaxJobsPerAccount",
        Reason.ASSOC_GRP_JOBS: "AssocGrpJobsLimit",
        Reason.ASSOC_MAX_JOBS: "AssocMaxJobsLimit",
        Reason.QOS_MAX_WALL: "QOSMaxWallDurationPerJobLimit",
        Reason.ASSOC_MAX_WALL: "AssocMaxWallDurationPerJobLimit",
        Reason.QOS_GRP_TRES: f"QOSGrp{tres}",
        Reason.QOS_MAX_TRES_PER_USER: f"QOSMax{tres}PerUser",
        Reason.QOS_MAX_TRES_PER_ACCOUNT: f"MaxTRESPerAccount_{tres}",
        Reason.QOS_MAX_TRES_PER_JOB: f"QOSMax{tres}PerJob",
        Reason.ASSOC_GRP_TRES: f"AssocGrp{tres}",
        Reason.ASSOC_MAX_TRES_PER_JOB: f"AssocMax{tres}PerJob",
        Reason.ASSOC_GRP_TRES_MINS: f"AssocGrp{tres}Minutes",
        Reason.QOS_GRP_WALL: "QOSGrpWallLimit",
        Reason.ASSOC_GRP_WALL: "AssocGrpWallLimit",
        Reason.QOS_GRP_TRES_MINS: f"QOSGrp{tres}Minutes",
        Reason.QOS_MAX_TRES_PER_NODE: f"QOSMax{tres}PerNode",
        Reason.ASSOC_MAX_TRES_PER_NODE: f"AssocMax{tres}PerNode",
        Reason.QOS_MAX_TRES_MINS: f"QOSMax{tres}MinutesPerJob",
        Reason.ASSOC_MAX_TRES_MINS: f"AssocMax{tres}MinutesPerJob",
        Reason.ARRAY_TASKS: "JobArrayTaskLimit",
    }.get(Reason(reason), "None")
