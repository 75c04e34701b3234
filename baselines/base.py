"""The one door: how a scheduler, compiled or written in Python, is asked and answers.

A compiled scheduler is a function `decide(world, private, out) -> next` over the state record: it reads the world,
keeps what it wants to remember in `private` (its own bytes), writes transactions to `out`, and returns AGAIN or the
latest time at which it wants to be asked again (NEVER: at the next event). A Python `Scheduler` sees a
`ClusterView` and returns commands by name. Baselines and agents go through the same simulator, so comparing them is
fair by construction.

To add a baseline: a new file `baselines/<name>.py` with a `build(**options) -> CompiledScheduler` (or `Scheduler`).
`scheduler: <name>` in a configuration finds it by its file name. A combination `a+b`, where `a` decides whether a job
may enter and `b` where its pods go, is the file `baselines/a/then_b.py`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gangline.envs.core.driver import compile_decide, reorder_queue
from gangline.envs.core.placement import Rule
from gangline.envs.core.preemption import VictimRule
from gangline.envs.core.queue import QueueOrder
from gangline.envs.core.simulator import MAX_CYCLES_WITHOUT_CHANGE
from gangline.envs.core.spec import Command
from gangline.envs.core.types import SizeClass
from gangline.envs.core.view import ClusterView
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError, unknown_name


class Scheduler(Protocol):
    """A scheduler written in Python, for policies and experiments."""

    name: str

    def decide(self, view: ClusterView) -> Sequence[Sequence[Command]]:
        """Transactions to apply now; an empty sequence waits for the next event."""


@dataclass(frozen=True)
class CompiledScheduler:
    """A scheduler at the compiled door.

    Attributes:
        name: for tables.
        decide: plain Python function that numba can compile: `(world, private, out) -> next`.
        private: () record dtype array with its parameters, copied fresh for each world; `decide` may write to it.
        scratch_cells: how many int64 cells `private` carries behind the record, by size class; they begin at -1.
        queue_order: what orders the waiting jobs of a group.
    """

    name: str
    decide: Callable[..., Any]
    private: np.ndarray
    scratch_cells: Callable[[SizeClass], int] = lambda size: 0
    queue_order: QueueOrder = QueueOrder.SUBMIT
    options: dict[str, Any] = field(default_factory=dict)

    def compiled(self, size: SizeClass) -> Any:
        """`decide`, compiled for worlds of a size class."""
        return compile_decide(self.decide, size)

    def private_for(self, world: World) -> np.ndarray:
        """(num_bytes,) uint8: fresh private bytes; also sets the world's queue order."""
        set_queue_order(world, self.queue_order)
        cells = np.full(self.scratch_cells(world.size), -1, np.int64)
        return np.concatenate([self.private.reshape(1).view(np.uint8).reshape(-1), cells.view(np.uint8)])


def run_python(world: World, scheduler: Scheduler, until_ms: int | None = None) -> None:
    """Let a scheduler written in Python run a world until a time (None: until nothing happens any more).

    It is asked at every instant at which something happens, and again until it answers with nothing.

    Raises:
        RuntimeError: it goes on giving transactions of which none can be applied.
    """
    view = ClusterView(world)
    while (time_ms := world.next_event_ms()) is not None and (until_ms is None or time_ms <= until_ms):
        world.advance(time_ms)
        in_vain = 0
        while transactions := scheduler.decide(view):
            in_vain = 0 if "ok" in world.apply(transactions) else in_vain + 1
            if in_vain >= MAX_CYCLES_WITHOUT_CHANGE:
                raise RuntimeError(
                    f"scheduler {scheduler.name!r} gave {in_vain} transactions of which none applies, at {time_ms} ms"
                )
    if until_ms is not None:
        world.advance(until_ms)


def set_queue_order(world: World, order: QueueOrder) -> None:
    """Choose what orders a world's waiting jobs; those that wait already are put in order anew."""
    reorder_queue(world.records, 0, int(order))


def placement_rule(name: str) -> Rule:
    """A placement rule by its lower-case name."""
    return _member(Rule, "placement rule", name)


def victim_rule(name: str) -> VictimRule:
    """A victim rule by its lower-case name."""
    return _member(VictimRule, "victim rule", name)


def _member(kind: Any, what: str, name: str) -> Any:
    known = {member.name.lower(): member for member in kind}
    if name not in known:
        raise unknown_name(what, name, known)
    return known[name]


def scheduler_names() -> list[str]:
    """Names of the baselines that ship: the modules of this package that have a `build`."""
    import gangline.baselines as package

    names = []
    for module in pkgutil.iter_modules(package.__path__):
        if module.name in ("base", "conformance", "primitives"):
            continue
        names.append(module.name)
        folder = [f"{path}/{module.name}" for path in package.__path__]
        inner = [part.name for part in pkgutil.iter_modules(folder)] if module.ispkg else []
        names += [f"{module.name}+{part.removeprefix('then_')}" for part in inner if part.startswith("then_")]
    return sorted(names)


def module_of(name: str) -> str:
    """Module of a baseline that ships, by its name."""
    first, plus, second = name.partition("+")
    return f"gangline.baselines.{first}.then_{second}" if plus else f"gangline.baselines.{first}"


def build(name: str, **options: Any) -> CompiledScheduler:
    """A baseline by name, or by dotted path (`my_package.my_scheduler`), with its options checked.

    Raises:
        GanglineError: unknown name or option, with the known ones.
    """
    module_name = name if "." in name else module_of(name)
    if "." not in name and name not in scheduler_names():
        raise unknown_name("scheduler", name, scheduler_names())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise GanglineError(
            f"scheduler {name!r} cannot be imported ({error}), expected a module with build()"
        ) from None
    if not hasattr(module, "build"):
        raise GanglineError(f"scheduler module {module_name!r} has no build(), expected one that returns a scheduler")
    known = inspect.signature(module.build).parameters
    for option in options:
        if option not in known:
            raise unknown_name(f"option of scheduler {name!r}", option, known)
    scheduler: CompiledScheduler = module.build(**options)
    return scheduler
