"""`World`: a simulated cluster as a Python object, over the record and tables that the kernels work on.

`World.from_state(spec)` enters any legal mid-life state; `apply` takes transactions by names; `advance` lets time
pass; `run` puts a compiled scheduler at the door; `inject` drives what happens from outside; `get_state` and
`set_state` copy everything. The Gymnasium and PettingZoo environments, the batch and the conformance runs stand on
the same kernels.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from gangline.envs.core import building, driver
from gangline.envs.core.spec import ChangeSpec, Command, JobSpec, LiveSpec, WorldSpec
from gangline.envs.core.state import restore_state, state_of
from gangline.envs.core.trace import JobTrace
from gangline.envs.core.types import (
    DECISION,
    GPU_TIME,
    LOG_ROW,
    MAX_COMMANDS,
    NEVER,
    NO_TIME,
    NONE,
    SCHEDULE_ROW,
    ErrorCode,
    JobState,
    NodeState,
    Op,
    Outcome,
    PodState,
    Reason,
    Result,
    SizeClass,
    Then,
    world_dtype,
)
from gangline.envs.errors import GanglineError, unknown_name


class CompiledDoor(Protocol):
    """What `World.run` asks of a compiled scheduler: see `baselines/base.py`."""

    def compiled(self, size: SizeClass) -> Any:
        """Its `decide`, compiled for worlds of a size class."""

    def private_for(self, world: World) -> np.ndarray:
        """Its fresh private bytes for a world."""


class World:
    """One simulated cluster.

    Attributes:
        records: (1,) world record; `record` is its one element.
        schedule: (num_changes,) SCHEDULE_ROW.
        trace: jobs that arrive, read-only; not set on the world of an environment.
        log: (num_jobs,) LOG_ROW, the first `record["log_used"]` are written.
        names: what indices are called.
    """

    def __init__(
        self, spec: WorldSpec, trace: JobTrace | None = None, *, size: SizeClass | None = None, log: bool = True
    ) -> None:
        """Build the world of a spec; with a trace, its jobs arrive and the spec's `jobs` must be empty.

        Raises:
            GanglineError: if the spec contradicts itself, or is larger than the largest size class.
        """
        self.spec = spec
        self.names = building.names_of(spec)
        jobs: tuple[JobSpec, ...] = ()
        if trace is None:
            trace, jobs = building.trace_of(spec, self.names)
        elif spec.jobs:
            raise GanglineError("a world takes its jobs from a trace or from its spec, not from both")
        self.trace = trace
        self._rows = trace.rows
        self._pod_sets = trace.pod_sets
        self.job_names: tuple[str, ...] = tuple(j.name for j in jobs)
        self._row_of: dict[str, int] = {name: row for row, name in enumerate(self.job_names)}
        self.size = size or building.size_class_for(spec, trace)
        self.records = building.new_records(1, world_dtype(self.size))
        building.fill_record(self.record, spec, self.names, trace)
        self.schedule = building.schedule_of(spec.changes, self.names, self._row_of)
        self.record["end_change"] = len(self.schedule)
        self.log = np.zeros(trace.num_jobs if log else 0, LOG_ROW)
        self.decision = np.zeros(1, DECISION)
        living = [row for row, job in enumerate(jobs) if job.live is not None]
        rejects = bool(self.record["params"]["reject_oversized"])
        self.record["params"]["reject_oversized"] = False
        self.record["next_row"] = len(living)
        driver.start_worlds(self.records, *self.tables[::2])
        for row in living:
            self._enter(row, jobs[row])
        self.record["params"]["reject_oversized"] = rejects
        if living:
            driver.clear_history(self.records, 0)
        self.check()

    def attach(
        self,
        spec: WorldSpec,
        names: building.Names,
        size: SizeClass,
        records: np.ndarray,
        rows: np.ndarray,
        pod_sets: np.ndarray,
        log: np.ndarray,
    ) -> None:
        """Become the face of a record that belongs to an environment: same memory, same tables."""
        self.spec = spec
        self.names = names
        self.size = size
        self.records = records
        self.job_names = ()
        self._row_of = {}
        self._rows = rows
        self._pod_sets = pod_sets
        self.schedule = np.zeros(0, SCHEDULE_ROW)
        self.log = log
        self.decision = np.zeros(1, DECISION)

    @classmethod
    def from_state(cls, spec: WorldSpec) -> World:
        """Enter the state that a spec describes. See `core/spec.py`."""
        return cls(spec)

    @property
    def record(self) -> np.void:
        """The state record."""
        return self.records[0]  # type: ignore[no-any-return]

    @property
    def now_ms(self) -> int:
        """The clock, ms."""
        return int(self.record["now_ms"])

    @property
    def tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Rows, pod sets, schedule and log, as the kernels take them."""
        return self._rows, self._pod_sets, self.schedule, self.log

    # -- time and commands -------------------------------------------------------------------------------------

    def next_event_ms(self) -> int | None:
        """Time of the next event, or None."""
        time_ms = driver.next_event_time(self.records, 0)
        return None if time_ms >= NEVER else int(time_ms)

    def advance(self, until_ms: int) -> None:
        """Apply all events up to and including `until_ms`, nobody being asked."""
        if until_ms < self.now_ms:
            raise GanglineError(f"cannot go back from {self.now_ms} ms to {until_ms} ms")
        driver.advance(self.records, 0, *self.tables, until_ms)
        self.check()

    def apply(self, transactions: Sequence[Sequence[Command]]) -> list[str]:
        """Apply transactions, each whole or not at all; returns a lower-case `Result` name for each."""
        out = self.decision[0]
        out["num_commands"] = 0
        out["num_transactions"] = len(transactions)
        if sum(len(t) for t in transactions) > MAX_COMMANDS:
            raise GanglineError(f"more than {MAX_COMMANDS} commands at once, expected fewer: apply them in parts")
        out["results"][: len(transactions)] = Result.OK
        for number, transaction in enumerate(transactions):
            for command in transaction:
                self._write_command(out, command, number)
        driver.apply(self.records, 0, self.decision, *self.tables)
        self.check()
        return [Result(int(r)).name.lower() for r in out["results"][: len(transactions)]]

    def run(self, scheduler: CompiledDoor, until_ms: int | None = None) -> None:
        """Let a compiled scheduler run the world until a time (None: until nothing happens any more)."""
        driver.run_scheduler(
            self.size,
            self.records,
            0,
            scheduler.compiled(self.size),
            scheduler.private_for(self),
            self.decision,
            *self.tables,
            NEVER if until_ms is None else until_ms,
        )
        self.check()

    def cycles(self, scheduler: CompiledDoor, count: int) -> int | None:
        """Ask a compiled scheduler `count` times, the clock standing; returns when it wants to be asked again."""
        until = driver.run_cycles(
            self.size,
            self.records,
            0,
            scheduler.compiled(self.size),
            scheduler.private_for(self),
            self.decision,
            *self.tables,
            count,
        )
        self.check()
        return None if until >= NEVER else int(until)

    # -- from outside ------------------------------------------------------------------------------------------

    def inject(self, event: ChangeSpec | tuple[str, str]) -> None:
        """Make something happen now: a `ChangeSpec` (its time is ignored), or (what, job) with what one of
        finish, fail, cancel, node_fail: the job ends so.
        """
        if isinstance(event, ChangeSpec):
            change = np.zeros(1, SCHEDULE_ROW)
            building.fill_change(change[0], event, self.names, self._row_of)
            driver.inject_change(self.records, 0, change, self.log)
        else:
            what, job = event
            ends = {
                "finish": (Outcome.DONE, Reason.UNSPECIFIED),
                "fail": (Outcome.FAILED, Reason.UNSPECIFIED),
                "cancel": (Outcome.CANCELLED, Reason.BY_USER),
                "node_fail": (Outcome.NODE_FAIL, Reason.UNSPECIFIED),
            }
            if what not in ends:
                raise unknown_name("event", what, ends)
            slot = self.slot_of(job)
            if slot is None:
                raise GanglineError(f"job {job!r} is not in the world, expected a job that has arrived and not ended")
            driver.inject_end(self.records, 0, slot, *ends[what], self.log)
        driver.advance(self.records, 0, *self.tables, self.now_ms)
        self.check()

    def get_state(self) -> bytes:
        """Everything that can change, as bytes for `set_state`."""
        return pickle.dumps((state_of(self.record), self.ended().tobytes()))

    def set_state(self, state: bytes) -> None:
        """Return to a state of this world, or of one built from the same spec and trace."""
        record, log = pickle.loads(state)
        try:
            restore_state(self.record, record)
        except ValueError as error:
            raise GanglineError(str(error)) from None
        written = np.frombuffer(log, LOG_ROW)
        self.log[: len(written)] = written

    # -- reading -----------------------------------------------------------------------------------------------

    def slot_of(self, job: str) -> int | None:
        """Slot of a live job by name, or None."""
        row = self._row_of.get(job)
        if row is None:
            digits = job.removeprefix("job-")
            if self.job_names or not digits.isdecimal():
                return None
            row = int(digits)
        used = int(self.record["jobs_used"])
        jobs = self.record["jobs"][:used]
        found = np.flatnonzero((jobs["row"] == row) & (jobs["state"] != JobState.FREE))
        return int(found[0]) if len(found) else None

    def job_name(self, row: int) -> str:
        """Name of a job by its trace row."""
        return self.job_names[row] if row < len(self.job_names) else f"job-{row}"

    def refresh(self) -> None:
        """Bring every lazily kept counter up to now."""
        driver.bring_up_to_date(self.records, 0)

    def ended(self) -> np.ndarray:
        """(num_ended,) LOG_ROW: the log so far."""
        return self.log[: int(self.record["log_used"])]

    def dump(self) -> dict[str, Any]:
        """The whole state by names, every counter brought up to now: for tests, debugging and people."""
        self.refresh()
        w = self.record
        return {
            "now_ms": self.now_ms,
            "nodes": {name: self._dump_node(w["nodes"][n]) for n, name in enumerate(self.names.nodes)},
            "jobs": {
                self.job_name(int(job["row"])): self._dump_job(job)
                for job in w["jobs"][: int(w["jobs_used"])]
                if job["state"] != JobState.FREE
            },
            "tenants": {name: self._dump_tenant(w["tenants"][k]) for k, name in enumerate(self.names.tenants)},
            "queues": {name: self._dump_queue(w["queues"][q]) for q, name in enumerate(self.names.queues)},
            "ended": [self._dump_ended(row) for row in self.ended()],
            "totals": self._dump_totals(w["totals"]),
        }

    def _amounts(self, values: np.ndarray, has: int | None = None) -> dict[str, int]:
        return {
            name: int(values[r])
            for r, name in enumerate(self.names.resources)
            if (has is None and values[r]) or (has is not None and has >> r & 1)
        }

    def _dump_node(self, node: np.void) -> dict[str, Any]:
        has = int(node["has"])
        return {
            "state": NodeState(int(node["state"])).name.lower(),
            "idle": self._amounts(node["idle"], has),
            "releasing": self._amounts(node["releasing"], has),
            "planned": self._amounts(node["planned"], has),
            "gpu_free": [int(g) for g in node["gpu_free"][: int(node["num_gpus"])]],
        }

    def pods_of(self, job: np.void) -> list[np.void]:
        """Live pods of a job record, in order of binding."""
        pods = []
        at = int(job["first_pod"])
        while at != NONE:
            pods.append(self.record["pods"][at])
            at = int(pods[-1]["next"])
        return pods

    def pod_sets_of(self, job: np.void) -> list[np.void]:
        """Pod sets of a job record."""
        pod_sets = []
        at = int(job["first_pod_set"])
        while at != NONE:
            pod_sets.append(self.record["pod_sets"][at])
            at = int(pod_sets[-1]["next"])
        return pod_sets

    def _dump_pod(self, pod: np.void) -> tuple[int, str, tuple[int, ...], int]:
        mask = int(pod["gpu_mask"])
        return (
            int(self.record["pod_sets"][int(pod["pod_set"])]["index"]),
            self.names.nodes[int(pod["node"])],
            tuple(g for g in range(16) if mask >> g & 1),
            int(pod["gpu_milli"]),
        )

    def _dump_job(self, job: np.void) -> dict[str, Any]:
        pods = self.pods_of(job)
        gpu_time = {name: int(job["gpu_time"][name]) for name in GPU_TIME.names or ()}
        gpu_time["undecided"] = int(job["progress"]["undecided"]) + sum(int(p["progress"]["undecided"]) for p in pods)
        is_training = int(job["kind"]) == 0
        return {
            "state": JobState(int(job["state"])).name.lower(),
            "bound": [self._dump_pod(p) for p in pods if p["state"] == PodState.BOUND],
            "releasing": [(*self._dump_pod(p), int(p["release_ms"])) for p in pods if p["state"] == PodState.RELEASING],
            "admitted": [
                (
                    int(s["index"]),
                    int(s["num_admitted"]),
                    {
                        self.names.resources[r]: self.names.flavors[int(s["admitted_flavor"][r])]
                        for r in range(len(self.names.resources))
                        if s["admitted_flavor"][r] != NONE
                    },
                )
                for s in self.pod_sets_of(job)
                if job["is_admitted"] and s["num_admitted"] > 0
            ],
            "speed": int(job["speed"]),
            "left": int(job["progress"]["left"]) if is_training else 0,
            "saved_left": int(job["progress"]["saved_left"]) if is_training else 0,
            "gpu_time": gpu_time,
            "starts": int(job["starts"]),
            "preemptions": int(job["preemptions"]),
            "first_start_ms": None if job["first_start_ms"] >= NEVER else int(job["first_start_ms"]),
            "eligible_ms": int(job["eligible_ms"]),
            "last_submit_ms": int(job["last_submit_ms"]),
            "demand": int(job["demand"]),
            "is_hung": bool(job["is_hung"]),
        }

    def _dump_tenant(self, tenant: np.void) -> dict[str, Any]:
        fields = ("held", "running", "demand", "fair", "held_area", "running_area", "demand_area", "fair_area")
        return {
            **{f: int(tenant[f]) for f in (*fields, "over_area", "deficit_area")},
            "usage": float(tenant["usage"]),
        }

    def _dump_queue(self, queue: np.void) -> dict[str, int]:
        return {"/".join(c): int(queue["usage"][i]) for i, c in enumerate(self.names.cells) if queue["usage"][i]}

    def _dump_ended(self, row: np.void) -> dict[str, Any]:
        return {
            "name": self.job_name(int(row["row"])),
            "outcome": Outcome(int(row["outcome"])).name.lower(),
            "reason": Reason(int(row["reason"])).name.lower(),
            "submit_ms": int(row["submit_ms"]),
            "first_start_ms": None if row["first_start_ms"] >= NEVER else int(row["first_start_ms"]),
            "end_ms": int(row["end_ms"]),
            "starts": int(row["starts"]),
            "preemptions": int(row["preemptions"]),
            "holding_ms": int(row["holding_ms"]),
            "gpu_time": {name: int(row[name]) for name in GPU_TIME.names or ()},
        }

    def _dump_totals(self, totals: np.void) -> dict[str, int]:
        fields = [n for n in totals.dtype.names or () if n.endswith("_area") and n != "jain_area"]
        counts = ("kept_bad", "num_arrived", "num_ended", "num_preemptions")
        return {
            **{f: int(totals[f]) for f in (*fields, *counts)},
            "kept": int(totals["gpu_time"]["kept"]),
        }

    # -- inside ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise what a kernel has noted.

        Raises:
            GanglineError: the record is full.
            RuntimeError: the scheduler cycles without end.
        """
        code = ErrorCode(int(self.record["error"]))
        if code == ErrorCode.NONE:
            return
        value = int(self.record["error_value"])
        if code == ErrorCode.ENDLESS_CYCLE:
            raise RuntimeError(f"the scheduler asked for another cycle without changing anything, at {self.now_ms} ms")
        what = code.name.lower().removeprefix("too_many_").replace("_", " ")
        raise GanglineError(
            f"the world needs room for {value} {what} at once, size class {self.size.name!r} holds less"
        )

    def _write_command(self, out: np.void, command: Command, transaction: int) -> None:
        record = out["commands"][int(out["num_commands"])]
        out["num_commands"] += 1
        record["op"] = Op[command.op.upper()]
        record["transaction"] = transaction
        slot = self.slot_of(command.job)
        record["job"] = NONE if slot is None else slot
        default_pod_set = NONE if command.op == "evict" else 0
        record["pod_set"] = default_pod_set if command.pod_set is None else command.pod_set
        record["node"] = NONE
        if command.node is not None:
            known = command.node in self.names.nodes
            record["node"] = self.names.nodes.index(command.node) if known else len(self.names.nodes)
        default_pods = NONE if command.op == "evict" else 1
        record["pods"] = default_pods if command.pods is None else command.pods
        record["then"] = Then[command.then.upper()]
        record["beyond_quota"] = command.beyond_quota
        record["whole_node"] = command.whole_node
        record["gpu"] = NONE if command.gpu is None else command.gpu
        record["grace_ms"] = command.grace_ms
        record["until_ms"] = command.until_ms
        record["reason"] = Reason[command.reason.upper()]
        record["freed_mask"] = sum(1 << self.names.find("resources", r) for r in command.freed)
        record["flavor"] = NONE
        for resource, flavor in command.flavors.items():
            record["flavor"][self.names.find("resources", resource)] = self.names.find("flavors", flavor)
        record["amount"] = 0
        for resource, amount in command.amounts.items():
            record["amount"][self.names.find("resources", resource)] = amount

    def _enter(self, row: int, job: JobSpec) -> None:
        live = job.live or LiveSpec()
        slot = driver.enter_job(self.records, 0, self.tables[0], row, self.tables[1], self.log)
        self.check()
        for admission in live.admissions:
            flavors = np.full(len(self.names.resources), NONE, np.int8)
            for resource, flavor in admission.flavors.items():
                flavors[self.names.find("resources", resource)] = self.names.find("flavors", flavor)
            admit_ms = self.now_ms if live.admit_ms is None else live.admit_ms
            driver.enter_admission(
                self.records, 0, slot, admission.pod_set, admission.count, flavors, admit_ms, self.log
            )
        for pods in live.pods:
            driver.enter_pods(
                self.records,
                0,
                slot,
                pods.pod_set,
                self.names.find("nodes", pods.node),
                pods.count,
                NONE if pods.gpu is None else pods.gpu,
                pods.whole_node,
                NEVER if pods.release_ms is None else pods.release_ms,
                self.log,
            )
        if live.suspended:
            driver.enter_suspension(self.records, 0, slot, self.log)
        times = [live.first_start_ms, live.start_ms, live.last_submit_ms, live.evict_ms, live.eligible_ms]
        if live.pods and live.start_ms is None:
            times[1] = self.now_ms
        if live.first_start_ms is None:
            times[0] = times[1]
        driver.enter_history(
            self.records,
            0,
            slot,
            live.progress_ms,
            live.saved_ms,
            int(bool(live.pods)) if live.starts is None else live.starts,
            live.preemptions,
            np.array([NO_TIME if t is None else t for t in times], np.int64),
            live.evicted_to == "cancel",
            self.log,
        )
