"""Recordings and timelines: they miss nothing, change nothing, and agree with the slow twin over random logs."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import numpy as np
import pytest
from builders import evict, gang, minutes, nodes, place, queue, world
from reference import ReferenceWorld
from reference import timeline as slow
from test_lockstep import random_step, random_world, take
from test_metrics import busy_trace

from gangline.baselines import base
from gangline.envs import metrics, recording
from gangline.envs.core.spec import HOUR_MS, TenantSpec
from gangline.envs.core.types import NEVER, NONE, NodeState
from gangline.envs.core.world import World
from gangline.envs.recording import End, Kind, Recording
from gangline.envs.timeline import Log, timeline_of

NUM_TENANTS = 3

# ---------------------------------------------------------------------------------------------------------------
# Stories
# ---------------------------------------------------------------------------------------------------------------


def lent_and_reclaimed() -> tuple[World, Recording]:
    """4 GPUs, red and blue own 2 each. Red borrows from the start; blue comes at 10 min and gets its own at 30.

    min  0.......10......30......60
    0-1  rrrrrrrrrrrrrrrrrrrrrrrrrr
    2-3  rrrrrrrrrrrrrrrrbbbbbbbbbb
    """
    jobs = [
        gang("own", 1, gpus=2, tenant="red", work_min=60),
        gang("borrows", 1, gpus=2, tenant="red", work_min=60, restart_cost_min=10, checkpoint_min=10),
        gang("claims", 1, gpus=2, tenant="blue", work_min=30, submit_min=10),
    ]
    spec = world(
        nodes(4),
        jobs,
        tenants=[TenantSpec(name="red", weight=1, queue="red"), TenantSpec(name="blue", weight=1, queue="blue")],
        queues=[queue("red", nominal=2), queue("blue", nominal=2)],
    )
    w = World(spec)
    w.advance(0)
    log = Recording(w)
    for time_min, commands in ((0, [place("own", "n0"), place("borrows", "n0")]), (30, [evict("borrows")])):
        w.advance(minutes(time_min))
        log.note()
        w.apply([[command] for command in commands])
        if time_min == 30:
            w.apply([[place("claims", "n0")]])
        log.note()
    return w, log


def finish(w: World, log: Recording, until_min: int) -> None:
    """Let time pass, every instant noted."""
    while (event_ms := w.next_event_ms()) is not None and event_ms <= minutes(until_min):
        w.advance(event_ms)
        log.note()
    w.advance(minutes(until_min))
    log.close()


def test_what_is_lent_borrowed_and_reclaimed() -> None:
    w, log = lent_and_reclaimed()
    finish(w, log, 60)
    timeline = timeline_of(Log.of(log), 2, 0, minutes(60))
    gpu_min = 1000 * minutes(1)
    assert timeline.tenants["borrowed"].tolist() == [2 * 30 * gpu_min, 0]
    assert timeline.lent == 2 * 30 * gpu_min
    assert timeline.flows[1, 0] == 2 * 30 * gpu_min  # blue lends to red
    assert timeline.tenants["lent"].tolist() == [0, 2 * 30 * gpu_min]
    assert timeline.stops["reclaim"] == 1 and sum(timeline.stops.values()) == 1
    assert timeline.stop_flows.tolist() == [[0, 2000], [0, 0]]
    assert timeline.reclaim_ms.tolist() == [minutes(20)]  # what starts as the recording begins has waited for nothing


def test_a_job_that_waits_within_its_quota_counts_with_its_delay_so_far() -> None:
    jobs = [gang("a", 1, gpus=1, tenant="a", work_min=60)]
    w = World(world(nodes(4), jobs, tenants=[TenantSpec(name="a", weight=1)]))
    w.advance(0)
    log = Recording(w)
    finish(w, log, 50)
    assert timeline_of(Log.of(log), 1, 0, minutes(50)).reclaim_ms.tolist() == [minutes(50)]


def test_idle_gpus_are_stranded_where_the_head_fits_the_count_and_no_node() -> None:
    jobs = [gang("a", 2, gpus=1, work_min=60), gang("wide", 1, gpus=2, work_min=60, submit_min=10)]
    w = World(world(nodes(2, 2), jobs, reject_oversized=False))
    w.advance(0)
    log = Recording(w)
    w.apply([[place("a", "n0"), place("a", "n1")]])
    log.note()
    finish(w, log, 40)
    timeline = timeline_of(Log.of(log), len(w.names.tenants), 0, minutes(40))
    assert timeline.cluster["stranded"] == 30 * 2000 * minutes(1)
    assert timeline.cluster["idle"] == 40 * 2000 * minutes(1)
    assert timeline.cluster["whole_free"] == 0


def test_priority_inversion_is_what_lower_priority_holds_while_higher_waits() -> None:
    jobs = [
        gang("low", 1, gpus=4, work_min=60, priority=1),
        gang("high", 1, gpus=2, work_min=10, priority=5, submit_min=20),
    ]
    w = World(world(nodes(4), jobs))
    w.advance(0)
    log = Recording(w)
    w.apply([[place("low", "n0")]])
    log.note()
    finish(w, log, 50)
    assert timeline_of(Log.of(log), len(w.names.tenants), 0, minutes(50)).inversion == 30 * 4000 * minutes(1)


# ---------------------------------------------------------------------------------------------------------------
# In any run
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), [("fifo", {}), ("las", {}), ("fair_reclaim", {"min_run_h": 0.2})])
def test_a_recording_misses_nothing_and_changes_nothing(name: str, options: dict[str, Any]) -> None:
    spec, trace = busy_trace(3)
    scheduler = base.build(name, **options)
    plain, w = World(spec, trace), World(spec, trace)
    plain.run(scheduler, 48 * HOUR_MS)
    start = metrics.snapshot(w)
    log = Recording(w)
    log.run(scheduler, 48 * HOUR_MS, take_times=name == "fifo")
    stop = metrics.snapshot(w)
    assert w.get_state() == plain.get_state()
    log.run(scheduler)
    log.close()
    report = metrics.measure(w, start, stop, log)
    assert report.is_recorded and report.identity_holds
    bits = np.array([bin(mask).count("1") for mask in log.spans["gpu_mask"]])
    spans = log.spans
    held = bits * spans["gpu_milli"].astype(np.int64) * (spans["end_ms"] - spans["begin_ms"])
    assert held.sum() == w.record["totals"]["held_area"]
    assert len(log.instant_s) == (0 if name != "fifo" else len(log.instant_s)) and (name != "fifo" or log.instant_s)
    attempts = log.attempts
    assert (attempts["end"] != End.OPEN).all()
    stopped = np.isin(attempts["end"], (End.BY_NODE, End.BY_HANG, End.STOPPED)).sum()
    assert stopped == w.record["totals"]["num_preemptions"]
    assert (np.bincount(attempts["row"])[w.ended()["row"]] == w.ended()["starts"]).all()
    if name == "fair_reclaim":
        assert report.values["stops_for_reclaim"] > 0
        assert report.values["borrowed_gpu_h"] >= report.values["lent_gpu_h"] > 0


def test_a_scheduler_that_goes_on_remembers() -> None:
    """fair_reclaim and the real systems keep notes: cut in two, a run is the run in one piece."""
    spec, trace = busy_trace(6)
    scheduler = base.build("slurm" if "slurm" in base.scheduler_names() else "fair_reclaim")
    states = []
    for cuts in ((48,), (7, 20, 48)):
        w = World(spec, trace)
        log = Recording(w)
        for hour in cuts:
            log.run(scheduler, hour * HOUR_MS)
        states.append(w.get_state())
    assert states[0] == states[1]


@pytest.mark.parametrize("seed", range(60))
def test_in_random_worlds_a_recording_misses_nothing(seed: int) -> None:
    """Every feature on: node failures, quota changes, batch pods, services, suspension, grace, gangs off."""
    rng = random.Random(f"recording {seed}")
    spec = random_world(rng)
    reference, w = ReferenceWorld.from_state(spec), World.from_state(spec)
    start = metrics.snapshot(w)
    log = Recording(w)
    for _ in range(60):
        what, argument = step = random_step(rng, reference)
        take(step, reference)
        while what == "advance" and (event_ms := w.next_event_ms()) is not None and event_ms <= argument:
            w.advance(event_ms)
            log.note()
        take(step, w)
        log.note()
    log.close()
    report = metrics.measure(w, start, recording=log)
    assert report.is_recorded and report.identity_holds
    spans, window = log.spans, metrics.window_of(w, start)
    bits = np.array([int(mask).bit_count() for mask in spans["gpu_mask"]], np.int64)
    length = spans["end_ms"] - spans["begin_ms"]
    assert int((bits * spans["gpu_milli"] * length).sum()) == window.totals["held_area"]
    in_kind = {kind: int((bits * spans["gpu_milli"] * length)[spans["kind"] == kind].sum()) for kind in Kind}
    if report.gpu_time["surplus"] == 0:
        assert in_kind[Kind.NO_PROGRESS] == report.gpu_time["hang"]
        assert in_kind[Kind.SUSPENDED] == report.gpu_time["suspended"]
        assert in_kind[Kind.RELEASING] == report.gpu_time["releasing"]
    cluster = log.cluster
    last = cluster[-1]
    nodes_ = w.record["nodes"][: int(w.record["num_nodes"])]
    up = nodes_[nodes_["state"] == NodeState.UP]
    gpu = int(w.record["params"]["gpu_resource"])
    if gpu >= 0:
        assert last["idle"] == up["idle"][:, gpu].sum()
        assert last["whole_free"] == up["idle"][up["free_gpus"] == up["num_gpus"], gpu].sum()
    json.dumps(report.to_dict(), allow_nan=False)


def test_a_recording_with_a_gap_is_not_used() -> None:
    spec, trace = busy_trace(3, 60)
    w = World(spec, trace)
    start = metrics.snapshot(w)
    log = Recording(w)
    w.run(base.build("fifo"), 20 * HOUR_MS)
    log.note()
    w.run(base.build("fifo"))
    log.note()
    log.close()
    report = metrics.measure(w, start, recording=log)
    assert not report.is_recorded
    assert report.values["lent_gpu_h"] is None


# ---------------------------------------------------------------------------------------------------------------
# The slow twin
# ---------------------------------------------------------------------------------------------------------------


def random_log(rng: random.Random) -> tuple[Log, dict[str, list[dict[str, Any]]]]:
    """A log that no simulator has written, with ties in time."""
    end = rng.choice([40, 90]) * HOUR_MS
    times = sorted({0, *(rng.randrange(0, end, HOUR_MS // 4) for _ in range(25))})
    rows: dict[str, list[dict[str, Any]]] = {n: [] for n in ("changes", "cluster", "attempts", "waits", "spans")}
    weights = [rng.randint(1, 4) for _ in range(NUM_TENANTS)]
    for t in times:
        up = rng.choice([16000, 12000])
        idle = rng.randrange(0, up)
        rows["cluster"].append(
            {"time_ms": t, "up": up, "idle": idle, "whole_free": idle // 2, "stranded": rng.choice([0, idle])}
            | {"fragmented": idle / 4, "waiting": rng.randrange(9), "in_system": rng.randrange(9, 20)}
        )
        for k in range(NUM_TENANTS):
            if t == 0 or rng.random() < 0.5:
                held = rng.randrange(0, 8000, 500)
                demand = held + rng.choice([0, rng.randrange(0, 8000, 500)])
                nominal = rng.choice([2000, 4000])
                rows["changes"].append(
                    {"time_ms": t, "tenant": k, "held": held, "demand": demand, "nominal": nominal}
                    | {"limit": rng.choice([NEVER, nominal + 1000]), "weight": weights[k], "active": rng.randrange(5)}
                    | {"dominant": rng.randrange(64) / 64}
                )
    for number in range(14):
        begin = rng.choice(times)
        stop = rng.choice([t for t in [*times, end] if t >= begin])
        gpus = rng.choice([1000, 2000, 4000])
        attempt = {"begin_ms": begin, "end_ms": stop, "queued_ms": 0, "priority": rng.randrange(3), "gpus": gpus}
        attempt |= {"thrash_ms": rng.choice([NEVER, 5 * HOUR_MS]), "starts": rng.randint(1, 3)}
        attempt |= {"end": rng.choice(list(End)), "tenant": rng.randrange(NUM_TENANTS), "was_there": False}
        rows["attempts"].append(attempt | {"row": number})
    rows["attempts"].sort(key=lambda a: a["begin_ms"])
    free_from = dict.fromkeys(range(8), 0)  # GPU -> end of its last span: spans on a GPU do not overlap
    for number, attempt in enumerate(rows["attempts"]):
        attempt["number"] = number
        free = [g for g, end_ms in free_from.items() if end_ms <= attempt["begin_ms"]]
        gpus = sorted(rng.sample(free, min(len(free), 3)))
        if gpus and attempt["end_ms"] > attempt["begin_ms"]:
            free_from.update(dict.fromkeys(gpus, attempt["end_ms"]))
            span = {"begin_ms": attempt["begin_ms"], "end_ms": attempt["end_ms"], "attempt": number, "gpu_milli": 1000}
            span |= {"row": attempt["row"], "tenant": attempt["tenant"], "kind": Kind.RUNNING, "gpus": gpus, "node": 0}
            rows["spans"].append(span | {"gpu_mask": sum(1 << g for g in gpus)})
        wait = {"begin_ms": max(0, attempt["begin_ms"] - rng.randrange(0, 9 * HOUR_MS, HOUR_MS // 4))}
        wait |= {"end_ms": attempt["begin_ms"], "attempt": number, "is_open": False}
        rows["waits"].append({name: attempt[name] for name in ("priority", "gpus", "row", "tenant")} | wait)
    for row in range(20, 25):
        wait = {"begin_ms": rng.choice(times), "end_ms": end, "attempt": NONE, "is_open": True, "row": row}
        wait |= {
            "priority": rng.randrange(4),
            "gpus": rng.choice([0, 1000, 3000]),
            "tenant": rng.randrange(NUM_TENANTS),
        }
        rows["waits"].append(wait)
    kinds = {"changes": recording.CHANGE, "attempts": recording.ATTEMPT, "spans": recording.SPAN}
    kinds |= {"cluster": recording.CLUSTER, "waits": recording.WAIT}
    arrays = {}
    for name, kind in kinds.items():
        arrays[name] = np.zeros(len(rows[name]), kind)
        for i, row in enumerate(rows[name]):
            for field in kind.names:
                if field in row:
                    arrays[name][i][field] = row[field]
    return Log(0, end, **arrays), rows


@pytest.mark.parametrize("seed", range(40))
def test_timelines_agree_with_the_slow_twin(seed: int) -> None:
    rng = random.Random(seed)
    log, rows = random_log(rng)
    start, stop = rng.choice([(0, log.end_ms), (3 * HOUR_MS, log.end_ms), (5 * HOUR_MS, log.end_ms - 7 * HOUR_MS)])
    found = timeline_of(log, NUM_TENANTS, start, stop)
    want = slow.timeline(rows, NUM_TENANTS, 0, log.end_ms, start, stop)
    for name in ("held", "demand", "fair", "borrowed", "beyond_limit"):
        assert found.tenants[name].tolist() == want[f"tenants {name}"], name
    for name in ("lent", "inversion", "thrash", "stops"):
        assert getattr(found, name) == want[name], name
    assert found.reclaim_ms.tolist() == want["reclaim_ms"]
    assert found.day_phi.tolist() == want["day_phi"]
    for name in ("flows", "envy"):
        assert getattr(found, name) == pytest.approx(np.array(want[name], float), rel=1e-9), name
    for name in ("dominant_gap", "kueue_share"):
        assert getattr(found, name) == pytest.approx(float(want[name]), rel=1e-9), name
    assert found.cluster == pytest.approx({n: float(v) for n, v in want["cluster"].items()})
    widths = np.diff(found.edges_ms)
    assert (found.series[0] * widths[:, None]).sum(0) * 1000 == pytest.approx(found.tenants["held"])
    assert (found.series[1] * widths[:, None]).sum(0) * 1000 == pytest.approx(found.tenants["fair"])
    tenant = np.array([rng.randrange(NUM_TENANTS) for _ in range(12)])
    begin = np.array([rng.randrange(0, log.end_ms) for _ in tenant])
    end = begin + np.array([rng.choice([0, rng.randrange(50 * HOUR_MS)]) for _ in tenant])
    means = found.means_over(tenant, begin, end)
    in_system = found.mean_in_system(begin, end)
    for i in range(len(tenant)):
        one = slow.means_over(rows, NUM_TENANTS, log.end_ms, int(tenant[i]), int(begin[i]), int(end[i]))
        everyone = slow.mean_in_system(rows, log.end_ms, int(begin[i]), int(end[i]))
        assert in_system[i] == pytest.approx(float(everyone), rel=1e-9)
        assert (means[0][i], means[1][i]) == pytest.approx((float(one[0]), float(one[1])), rel=1e-9)


def test_metrics_of_a_recording_are_the_twins_numbers() -> None:
    """Units and denominators: a random log under a window of no jobs but three."""
    log, rows = random_log(random.Random(5))
    timeline = timeline_of(log, NUM_TENANTS, 0, log.end_ms)
    want = slow.timeline(rows, NUM_TENANTS, 0, log.end_ms, 0, log.end_ms)
    jobs = np.zeros(3, metrics.LINE)
    jobs["tenant"], jobs["gpus"], jobs["work_ms"] = [0, 1, 2], [1000, 4000, 2000], [HOUR_MS, 2 * HOUR_MS, HOUR_MS]
    jobs["submit_ms"], jobs["end_ms"], jobs["first_start_ms"] = HOUR_MS, 9 * HOUR_MS, 2 * HOUR_MS
    jobs["has_ended"] = [True, True, False]
    zeros = {name: (0,) * NUM_TENANTS for name in ("held_area", "fair_area")}
    window = metrics.Window(
        **dict.fromkeys(("start_ms", "undecided", "backlog", "num_rejected", "jain_area"), 0),
        **dict.fromkeys(("stop_ms", "now_ms"), log.end_ms),
        **{"gpus": 16000, "gpus_per_node": 8000, "totals": {}, "gpu_time": {}, "tenants": zeros, "weights": (1, 1, 2)},
        jobs=jobs,
        usage=(1.0, 1.0, 2.0),
        timeline=timeline,
    )
    gpu_h, room = 1000 * HOUR_MS, 16000 * log.end_ms
    phi = [
        sum(h / f for h, f in zip(held, fair, strict=True)) ** 2
        / (NUM_TENANTS * sum((h / f) ** 2 for h, f in zip(held, fair, strict=True)))
        for held, fair in want["day_phi"]
        if all(fair)
    ]
    rho = []
    for job in jobs.tolist():
        row = dict(zip(metrics.LINE.names, job, strict=True))
        until = row["end_ms"] if row["has_ended"] else log.end_ms
        active, fair = slow.means_over(rows, NUM_TENANTS, log.end_ms, row["tenant"], row["submit_ms"], until)
        slowest = max(1, row["gpus"] * max(active, 1) / fair)
        rho.append(float((until - row["submit_ms"]) / (row["work_ms"] * slowest)))
    expected = {
        "stranded_gpu_h": want["cluster"]["stranded"] / gpu_h,
        "fragmentation": want["cluster"]["fragmented"] / room,
        "fragmentation_of_free": want["cluster"]["fragmented"] / want["cluster"]["idle"],
        "whole_free_share": want["cluster"]["whole_free"] / want["cluster"]["idle"],
        "envy_max": max(map(max, want["envy"])) / room,
        "dominant_share_gap": want["dominant_gap"] / log.end_ms,
        "kueue_share_max": want["kueue_share"] / log.end_ms,
        "slurm_factor_min": 0.5,
        "ftf_worst": max(rho),
        "ftf_p95": None,
        "ftf_unfair_share": sum(r > 1 for r in rho) / 3,
        "stops_for_reclaim": want["stops"]["reclaim"],
        "thrash": want["thrash"],
        "quota_violation_gpu_h": sum(want["tenants beyond_limit"]) / gpu_h,
        "borrowed_gpu_h": sum(want["tenants borrowed"]) / gpu_h,
        "lent_gpu_h": want["lent"] / gpu_h,
        "reclaim_delay_mean_s": sum(want["reclaim_ms"]) / len(want["reclaim_ms"]) / 1000,
        "reclaim_delay_p95_s": None,
        "priority_inversion_gpu_h": want["inversion"] / gpu_h,
    }
    if len(phi) == len(want["day_phi"]):
        expected["jain_phi_day_mean"] = sum(phi) / len(phi)
    claims = []
    for job in jobs.tolist():
        row = dict(zip(metrics.LINE.names, job, strict=True))
        until = row["end_ms"] if row["has_ended"] else log.end_ms
        everyone = slow.mean_in_system(rows, log.end_ms, row["submit_ms"], until)
        claims.append(float((until - row["submit_ms"]) / (row["work_ms"] * max(1, row["gpus"] * everyone / 16000))))
    table = metrics.cluster_ftf(window)
    assert (table["jobs"], table["worst"], table["p95"]) == (3, pytest.approx(max(claims)), None)
    assert table["unfair_share"] == sum(r > 1 for r in claims) / 3
    for name, value in expected.items():
        found = metrics.METRICS[name].compute(window)
        assert found == (None if value is None else pytest.approx(float(value))), name


def test_a_timeline_of_a_million_jobs_takes_seconds() -> None:
    """Measured on one core: 2.13 to 2.14 s (3 tries), 15 tenants, two instants a job. The bound leaves room."""
    rng = np.random.default_rng(0)
    count = 2_000_000
    changes = np.zeros(count, recording.CHANGE)
    changes["time_ms"] = np.sort(rng.integers(0, 10**11, count))
    changes["tenant"] = rng.integers(0, 15, count)
    changes["tenant"][:15] = np.arange(15)
    changes["time_ms"][:15] = 0
    changes["held"] = rng.integers(0, 64, count) * 1000
    changes["demand"] = changes["held"] + rng.integers(0, 64, count) * 1000
    changes["nominal"], changes["limit"], changes["weight"] = 32000, NEVER, 1
    cluster = np.zeros(count, recording.CLUSTER)
    cluster["time_ms"], cluster["up"] = changes["time_ms"], 480_000
    empty = Log.empty()
    log = Log(0, 10**11, changes, empty.attempts, empty.spans, cluster, empty.waits)
    timeline_of(random_log(random.Random(0))[0], NUM_TENANTS, 0, HOUR_MS)  # compiles
    begin = time.perf_counter()
    timeline_of(log, 15, 0, 10**11)
    took_s = time.perf_counter() - begin
    assert took_s < 25, took_s
