"""RLScheduler's published tables: queue, release and backfill semantics against numbers that others have printed.

Mean bounded slowdown over ten sequences of 1,024 jobs on 256 processors, three orders, with and without backfill, two
Lublin traces: all twelve to the two decimals that are printed. The protocol, the sequence starts and the values are in
`anchor_rlscheduler.json`; `baselines/committed.py` is the protocol. `pytest -s` prints the figures.

The protocol takes the events of one instant one at a time, arrivals before releases, and `committed` does so by
itself. Without that the blocking values stay, and four with backfill move: 235.55 for FCFS and 75.08 for F1 on the
first trace, 247.96 for FCFS and 92.11 for SJF on the second.

The sequences have up to 99 job sizes, more shapes than the small size class holds: the first run compiles the medium
one, which takes a minute or two.
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pytest
from workloads.files import data

from gangline.baselines import base
from gangline.envs.core.spec import NodeSpec, OptionsSpec, TenantSpec, WorldSpec
from gangline.envs.core.trace import JobTrace
from gangline.envs.core.types import SIZE_CLASSES
from gangline.envs.core.world import World
from gangline.envs.workloads.base import fresh
from gangline.envs.workloads.traces import swf

NUM_JOBS = 1024
SETS = ("lublin_256", "lublin_256_new2")
ORDERS = {"fcfs": "submit", "sjf": "claim", "f1": "f1"}
MEDIUM = SIZE_CLASSES[1]
CLUSTER = WorldSpec(
    nodes=[NodeSpec(name=f"n{i}", amounts={"gpu": 16_000}) for i in range(16)],
    tenants=[TenantSpec(name="all")],
    options=OptionsSpec(half_life_ms=None),
)


@lru_cache(maxsize=1)
def anchor() -> dict[str, Any]:
    """The published values and the protocol."""
    return json.loads(data("anchor_rlscheduler.json").read_text())["sets"]  # type: ignore[no-any-return]


@cache
def sequences(name: str) -> list[JobTrace]:
    """The ten sequences of a trace, on the clock of the file: F1 takes the submit time from there."""
    whole = swf.load(data(anchor()[name]["file"]), tenant="none", procs="max")
    parts = []
    for start in anchor()[name]["starts"]:
        part = whole.select(np.arange(start, start + NUM_JOBS))
        rows = part.rows.copy()
        for column in ("submit_ms", "eligible_ms"):
            rows[column] += whole.report["t0_source_ms"]
        parts.append(fresh(part, rows))
    return parts


def mean_bsld(name: str, scheduler: base.CompiledScheduler) -> float:
    """Mean over the sequences of the mean bounded slowdown, `max(1, (wait + run) / max(run, 10 s))`."""
    means = []
    for jobs in sequences(name):
        world = World(CLUSTER, jobs, size=MEDIUM)
        world.run(scheduler)
        ended = world.ended()
        assert len(ended) == NUM_JOBS
        assert (ended["end_ms"] - ended["first_start_ms"] == ended["work_ms"]).all()
        slowdown = (ended["end_ms"] - ended["submit_ms"]) / np.maximum(ended["work_ms"], 10_000)
        means.append(np.maximum(slowdown, 1).mean())
    return float(np.mean(means))


@pytest.mark.parametrize("backfill", [False, True], ids=["blocking", "backfill"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SETS)
def test_the_published_value_comes_out(name: str, order: str, backfill: bool) -> None:
    want_bsld = anchor()[name]["published"]["bf" if backfill else "nobf"]["bsld"][order]
    bsld = mean_bsld(name, base.build("committed", order=ORDERS[order], backfill=backfill))
    print(f"\n{name} {order}{' + backfill' if backfill else ''}: bsld {bsld:.4f}, published {want_bsld}")
    assert round(bsld, 2) == want_bsld


def test_f1_needs_the_submit_time_of_the_file() -> None:
    """With each sequence's clock at 0 its first jobs would have a logarithm of almost nothing, and go first."""
    jobs = sequences("lublin_256")[0]
    rows = jobs.rows.copy()
    first_ms = int(rows["submit_ms"][0])
    for column in ("submit_ms", "eligible_ms"):
        rows[column] -= first_ms
    on_its_own_clock = World(CLUSTER, fresh(jobs, rows), size=MEDIUM)
    on_the_files_clock = World(CLUSTER, jobs, size=MEDIUM)
    for world in (on_its_own_clock, on_the_files_clock):
        world.run(base.build("committed", order="f1"))
    ends, want_ends = on_its_own_clock.ended(), on_the_files_clock.ended()
    assert sorted(ends["end_ms"] + first_ms) != sorted(want_ends["end_ms"])
