"""What a recording says about a window: exact integrals that need to know who held what when.

    timeline = timeline_of(recording, start_ms, stop_ms)
    timeline.agrees_with(held=..., fair=..., demand=...)   # with the core's own integrals, to the last milli-GPU x ms

One sweep over the rows of a recording, linear in their number: between two rows everything is constant. Amounts are
milli-GPU, times ms; sums are integers where the definition has no division in it. "metrics 5" is section 5 of
`spec/metrics.md`. A tenant's fair share is computed by the core's own `water_fill`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gangline.envs.core.compiled import helper, kernel
from gangline.envs.core.fair_share import water_fill
from gangline.envs.core.spec import HOUR_MS
from gangline.envs.core.types import NEVER, NONE
from gangline.envs.recording import ATTEMPT, CHANGE, CLUSTER, SPAN, WAIT, End, Kind, Recording

DAY_MS = 24 * HOUR_MS
NUM_BUCKETS = 240  # of the series that are drawn
TAKEN_WITHIN_MS = 60_000  # who gets a preempted job's GPUs so soon is the one that it was stopped for
MAX_TENANTS = 256
MAX_GPUS = 16  # of a node
FULL_SPEED = 1000

_TENANT = np.dtype([("weight", np.int64), ("demand", np.int64), ("fair", np.int64)], align=True)
_SHARES = np.dtype(  # what `water_fill` reads and writes of a world
    [
        ("gpus_up", np.int64),
        ("demand", np.int64),
        ("num_tenants", np.int32),
        ("tenants", _TENANT, (MAX_TENANTS,)),
    ],
    align=True,
)
TENANT_AREAS = ("held", "demand", "fair", "borrowed", "beyond_limit", "lent")
CLUSTER_AREAS = ("up", "idle", "whole_free", "stranded", "fragmented", "waiting")
SERIES = ("held", "fair", "demand", "nominal")
STOPS = ("by_node", "by_hang", "priority", "reclaim", "fair_share", "other")


@dataclass(frozen=True, eq=False)
class Log:
    """The rows of a recording, without the world: what a timeline is computed from. Shapes as in `Recording`."""

    begin_ms: int
    end_ms: int
    changes: np.ndarray
    attempts: np.ndarray
    spans: np.ndarray
    cluster: np.ndarray
    waits: np.ndarray

    @classmethod
    def of(cls, recording: Recording) -> Log:
        """The rows of a closed recording."""
        r = recording
        return cls(r.begin_ms, r.end_ms, r.changes, r.attempts, r.spans, r.cluster, r.waits)

    @classmethod
    def empty(cls) -> Log:
        """No row at all."""
        kinds = (CHANGE, ATTEMPT, SPAN, CLUSTER, WAIT)
        return cls(0, 0, *(np.zeros(0, kind) for kind in kinds))


@dataclass(frozen=True, eq=False)
class Timeline:
    """Integrals of a window.

    Attributes:
        start_ms, stop_ms: the window.
        tenants: by TENANT_AREAS name, (num_tenants,) int64 milli-GPU x ms. `lent` is a tenant's part of what was lent.
        lent: `int min(sum_k [A_k - Q_k]+, sum_k [Q_k - A_k]+) dt`, milli-GPU x ms.
        flows: (num_tenants, num_tenants) milli-GPU x ms lent by the first to the second, each lender and each borrower
            in proportion to what it lends and borrows at the time.
        envy: (num_tenants, num_tenants) `int E_kl dt`, milli-GPU x ms.
        dominant_gap: `int (max_k ds_k - min_k ds_k) dt`, ms; the minimum over tenants with demand.
        kueue_share: `int max_k (Kueue's weighted share) dt`, thousandths x ms.
        day_phi: (num_days, 2, num_tenants) `int A_k dt` and `int F_k dt` of each whole 24 h window.
        cluster: by CLUSTER_AREAS name, milli-GPU x ms (waiting: jobs x ms).
        edges_ms: (num_buckets + 1,) of the series.
        series: (4, num_buckets, num_tenants) mean SERIES of each bucket, GPUs.
        cluster_series: (6, num_buckets) mean CLUSTER_AREAS of each bucket, GPUs (waiting: jobs).
        reclaim_ms: (num_reclaims,) delay of every start within the tenant's own quota, and of those that wait still.
        inversion: GPU time held by lower priority while higher priority of the same tenant waits, milli-GPU x ms.
        stops: attempts of the window that were stopped, by STOPS name.
        stop_flows: (num_tenants, num_tenants) milli-GPU taken from attempts of the first, and got by the second next.
        thrash: stops within 2 x (restart cost + checkpoint interval) of a restart.
        hung_ms: time without progress of each attempt that had some.
        run_area, speed_area: milli-GPU x ms of running pods, and the same x speed.
    """

    start_ms: int
    stop_ms: int
    tenants: dict[str, np.ndarray]
    lent: int
    flows: np.ndarray
    envy: np.ndarray
    dominant_gap: float
    kueue_share: float
    day_phi: np.ndarray
    cluster: dict[str, float]
    edges_ms: np.ndarray
    series: np.ndarray
    cluster_series: np.ndarray
    reclaim_ms: np.ndarray
    inversion: int
    stops: dict[str, int]
    stop_flows: np.ndarray
    thrash: int
    hung_ms: np.ndarray
    run_area: int
    speed_area: int
    log: Log

    def agrees_with(self, held: Sequence[int], demand: Sequence[int], fair: Sequence[int]) -> bool:
        """Whether the recording missed nothing: its integrals equal those of the core, by tenant, exactly."""
        own = (self.tenants[name].tolist() for name in ("held", "demand", "fair"))
        return all(mine == list(theirs) for mine, theirs in zip(own, (held, demand, fair), strict=True))

    def means_over(self, tenant: np.ndarray, begin_ms: np.ndarray, end_ms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each interval, the tenant's mean number of active jobs, and mean `max(e_k C, F_k)` in milli-GPU.

        Args:
            tenant: (n,) index.
            begin_ms, end_ms: (n,) int64, inside the recording; where they are equal, the values of that instant.
        """
        return _means_over(self.log, len(self.tenants["held"]), tenant, begin_ms, end_ms)

    def mean_in_system(self, begin_ms: np.ndarray, end_ms: np.ndarray) -> np.ndarray:
        """(n,) mean number of jobs in the system over intervals inside the recording; at an instant, its number."""
        times, jobs = np.append(self.log.cluster["time_ms"], self.log.end_ms), self.log.cluster["in_system"]
        sums = np.concatenate([[0], np.cumsum(jobs * np.diff(times))])

        def until(moment: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            at = np.clip(np.searchsorted(times, moment, "right") - 1, 0, len(jobs) - 1)
            return sums[at] + jobs[at] * (moment - times[at]), jobs[at]

        end_ms = np.maximum(np.minimum(end_ms, self.log.end_ms), begin_ms)
        (first, now), (last, _) = until(begin_ms), until(end_ms)
        length = end_ms - begin_ms
        return np.where(length > 0, (last - first) / np.maximum(length, 1), now)  # type: ignore[no-any-return]


def timeline_of(log: Log, num_tenants: int, start_ms: int, stop_ms: int) -> Timeline:
    """Everything above, over the window from `start_ms` to `stop_ms`."""
    length = stop_ms - start_ms
    areas = np.zeros((num_tenants, len(TENANT_AREAS)), np.int64)
    flows, envy = np.zeros((num_tenants, num_tenants)), np.zeros((num_tenants, num_tenants))
    num_days = length // DAY_MS
    days = np.zeros((num_days, 2, num_tenants), np.int64)
    edges = start_ms + np.arange(NUM_BUCKETS + 1, dtype=np.int64) * length // NUM_BUCKETS
    series = np.zeros((len(SERIES), NUM_BUCKETS, num_tenants))
    sums, floats = np.zeros(1, np.int64), np.zeros(2)
    shares = np.zeros(1, _SHARES)
    _sweep(
        log.changes, np.zeros(num_tenants, CHANGE), log.cluster, log.end_ms, start_ms, stop_ms, shares, num_tenants,
        areas, flows, envy, days, edges,
        series, sums, floats,
    )  # fmt: skip
    widths = np.maximum(np.diff(edges), 1)
    cluster_series, cluster = _cluster_areas(log, start_ms, stop_ms, edges)
    within_quota, reclaim = _reclaims(log, num_tenants, start_ms, stop_ms)
    stops, stop_flows = _stops(log, num_tenants, within_quota, start_ms, stop_ms)
    attempts = log.attempts
    inside = (attempts["begin_ms"] <= stop_ms) & (attempts["end_ms"] >= start_ms)
    is_stop = _is_stop(attempts, start_ms, stop_ms)
    lasted = attempts["end_ms"] - attempts["begin_ms"]
    return Timeline(
        start_ms=start_ms,
        stop_ms=stop_ms,
        tenants={name: areas[:, i] for i, name in enumerate(TENANT_AREAS)},
        lent=int(sums[0]),
        flows=flows,
        envy=envy,
        dominant_gap=float(floats[0]),
        kueue_share=float(floats[1]),
        day_phi=days,
        cluster=cluster,
        edges_ms=edges,
        series=series / widths[None, :, None] / FULL_SPEED,
        cluster_series=cluster_series,
        reclaim_ms=reclaim,
        inversion=_inversion(log, num_tenants, start_ms, stop_ms),
        stops=stops,
        stop_flows=stop_flows,
        thrash=int(
            (is_stop & (attempts["starts"] > 1) & ~attempts["was_there"] & (lasted < attempts["thrash_ms"])).sum()
        ),
        hung_ms=attempts["hung_ms"][inside & (attempts["hung_ms"] > 0)],
        run_area=int(attempts["run_area"][inside].sum()),
        speed_area=int(attempts["speed_area"][inside].sum()),
        log=log,
    )


# ---------------------------------------------------------------------------------------------------------------
# The sweep over tenants
# ---------------------------------------------------------------------------------------------------------------


@kernel
def _sweep(
    changes: Any,
    now: Any,
    cluster: Any,
    end_ms: int,
    start_ms: int,
    stop_ms: int,
    shares: Any,
    num_tenants: int,
    areas: Any,
    flows: Any,
    envy: Any,
    days: Any,
    edges: Any,
    series: Any,
    sums: Any,
    floats: Any,
) -> None:
    at = 0
    bucket = 0
    for i in range(len(cluster)):
        at = take_changes(changes, at, cluster[i].time_ms, now)
        begin = max(cluster[i].time_ms, start_ms)
        end = min(cluster[i + 1].time_ms if i + 1 < len(cluster) else end_ms, stop_ms)
        if end <= begin:
            continue
        s = shares[0]
        fill(s, now, cluster[i].up, num_tenants)
        add_tenant_areas(s, now, end - begin, num_tenants, areas)
        sums[0] += add_flows(now, end - begin, num_tenants, areas, flows)
        add_envy(now, end - begin, num_tenants, envy)
        floats[0] += (end - begin) * dominant_gap(now, num_tenants)
        floats[1] += (end - begin) * kueue_share(now, num_tenants)
        add_days(s, now, begin, end, start_ms, num_tenants, days)
        bucket = add_buckets(s, now, begin, end, num_tenants, bucket, edges, series)


@helper
def take_changes(changes: Any, at: int, time_ms: int, now: Any) -> int:
    """Apply the rows up to a time; returns the next one."""
    while at < len(changes) and changes[at].time_ms <= time_ms:
        now[changes[at].tenant] = changes[at]
        at += 1
    return at


@helper
def fill(s: Any, now: Any, up: int, num_tenants: int) -> None:
    """Set every tenant's fair share."""
    s.gpus_up = up
    s.num_tenants = num_tenants
    s.demand = 0
    for k in range(num_tenants):
        s.tenants[k].weight = now[k].weight
        s.tenants[k].demand = now[k].demand
        s.demand += now[k].demand
    water_fill(s)


@helper
def add_tenant_areas(s: Any, now: Any, elapsed: int, num_tenants: int, areas: Any) -> None:
    """TENANT_AREAS but for what is lent."""
    for k in range(num_tenants):
        areas[k, 0] += elapsed * now[k].held
        areas[k, 1] += elapsed * now[k].demand
        areas[k, 2] += elapsed * s.tenants[k].fair
        areas[k, 3] += elapsed * max(0, now[k].held - now[k].nominal)
        areas[k, 4] += elapsed * max(0, now[k].held - now[k].limit)


@helper
def add_flows(now: Any, elapsed: int, num_tenants: int, areas: Any, flows: Any) -> int:
    """Who lends to whom; returns what is lent, milli-GPU x ms. metrics 6, lend volume."""
    borrowed = 0
    unused = 0
    for k in range(num_tenants):
        borrowed += max(0, now[k].held - now[k].nominal)
        unused += max(0, now[k].nominal - now[k].held)
    lent = min(borrowed, unused)
    if lent > 0:
        for lender in range(num_tenants):
            part = max(0, now[lender].nominal - now[lender].held)
            if part > 0:
                areas[lender, 5] += elapsed * (lent * part // unused)
                for k in range(num_tenants):
                    takes = max(0, now[k].held - now[k].nominal)
                    if takes > 0:
                        flows[lender, k] += elapsed * lent * (part / unused) * (takes / borrowed)
    return elapsed * lent


@helper
def add_envy(now: Any, elapsed: int, num_tenants: int, envy: Any) -> None:
    """`E_kl = [min(A_l w_k / w_l, D_k) - min(A_k, D_k)]+`. metrics 5."""
    for k in range(num_tenants):
        own = min(now[k].held, now[k].demand)
        if own < now[k].demand:
            for other in range(num_tenants):
                if now[other].weight > 0 and other != k:
                    theirs = now[other].held * (now[k].weight / now[other].weight)
                    gain = min(theirs, float(now[k].demand)) - own
                    if gain > 0:
                        envy[k, other] += elapsed * gain


@helper
def dominant_gap(now: Any, num_tenants: int) -> float:
    """`max_k ds_k - min_k ds_k`, ds = dominant share / e_k; the minimum over tenants with demand. metrics 5."""
    weights = 0
    for k in range(num_tenants):
        weights += now[k].weight
    most = 0.0
    least = np.inf
    for k in range(num_tenants):
        if now[k].weight > 0:
            share = now[k].dominant * (weights / now[k].weight)
            most = max(most, share)
            if now[k].demand > 0:
                least = min(least, share)
    return max(0.0, most - least) if least < np.inf else 0.0


@helper
def kueue_share(now: Any, num_tenants: int) -> float:
    """`max_k 1000 [A_k - Q_k]+ / sum Q / (w_k / mean w)`. metrics 5, Kueue's weighted share of GPUs in one cohort."""
    lendable = 0
    weights = 0
    for k in range(num_tenants):
        lendable += now[k].nominal
        weights += now[k].weight
    most = 0.0
    if lendable > 0:
        for k in range(num_tenants):
            if now[k].weight > 0:
                relative = now[k].weight * num_tenants / weights
                most = max(most, 1000.0 * max(0, now[k].held - now[k].nominal) / lendable / relative)
    return most


@helper
def add_days(s: Any, now: Any, begin: int, end: int, start_ms: int, num_tenants: int, days: Any) -> None:
    """`int A_k` and `int F_k` of each whole day since the window began."""
    while begin < end:
        day = (begin - start_ms) // DAY_MS
        if day >= len(days):
            return
        until = min(end, start_ms + (day + 1) * DAY_MS)
        for k in range(num_tenants):
            days[day, 0, k] += (until - begin) * now[k].held
            days[day, 1, k] += (until - begin) * s.tenants[k].fair
        begin = until


@helper
def add_buckets(s: Any, now: Any, begin: int, end: int, num_tenants: int, bucket: int, edges: Any, series: Any) -> int:
    """SERIES of the buckets that a piece touches; returns the last of them."""
    while begin < end:
        while bucket < len(edges) - 2 and edges[bucket + 1] <= begin:
            bucket += 1
        until = min(end, edges[bucket + 1])
        if until <= begin:
            return bucket
        for k in range(num_tenants):
            series[0, bucket, k] += (until - begin) * now[k].held
            series[1, bucket, k] += (until - begin) * s.tenants[k].fair
            series[2, bucket, k] += (until - begin) * now[k].demand
            series[3, bucket, k] += (until - begin) * now[k].nominal
        begin = until
    return bucket


# ---------------------------------------------------------------------------------------------------------------
# The cluster
# ---------------------------------------------------------------------------------------------------------------


def _cluster_areas(log: Log, start_ms: int, stop_ms: int, edges: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
    """Means by bucket, and integrals over the window."""
    means = np.zeros((len(CLUSTER_AREAS), len(edges) - 1))
    whole = dict.fromkeys(CLUSTER_AREAS, 0.0)
    if not len(log.cluster) or stop_ms <= start_ms:
        return means, whole
    times = np.append(log.cluster["time_ms"], log.end_ms)
    widths = np.maximum(np.diff(edges), 1)
    for i, name in enumerate(CLUSTER_AREAS):
        values = log.cluster[name]
        sums = np.concatenate([[0], np.cumsum(values * np.diff(times))])
        at = np.clip(np.searchsorted(times, edges, "right") - 1, 0, len(values) - 1)
        area = sums[at] + values[at] * (np.clip(edges, times[0], times[-1]) - times[at])
        means[i] = np.diff(area) / widths / (1 if name == "waiting" else FULL_SPEED)
        whole[name] = (area[-1] - area[0]).item()
    return means, whole


# ---------------------------------------------------------------------------------------------------------------
# Attempts: reclaim delay, priority inversion, stops. metrics 6
# ---------------------------------------------------------------------------------------------------------------


def _is_stop(attempts: np.ndarray, start_ms: int, stop_ms: int) -> np.ndarray:
    """(num_attempts,) bool: stopped in the window without having ended."""
    in_window = (attempts["end_ms"] >= start_ms) & (attempts["end_ms"] <= stop_ms)
    return in_window & np.isin(attempts["end"], (End.BY_NODE, End.BY_HANG, End.STOPPED))  # type: ignore[no-any-return]


def _reclaims(log: Log, num_tenants: int, start_ms: int, stop_ms: int) -> tuple[np.ndarray, np.ndarray]:
    """(num_attempts,) bool, starts within the tenant's own quota; and (n,) int64, how long those have waited for it.

    The delay runs from when the job has waited and its tenant has held so little that the job fits into its nominal
    quota beside it, without a break, to its start. A job that waits still counts with its delay so far.
    """
    waits = log.waits[np.lexsort((log.waits["row"], log.waits["end_ms"]))]
    sizes, size = np.unique(waits["gpus"], return_inverse=True)
    delay = np.full(len(waits), -1, np.int64)
    if len(waits):
        since = np.full((num_tenants, len(sizes)), NEVER, np.int64)  # since when a job of the size fits into the quota
        _sweep_reclaims(log.changes, waits, sizes, size.astype(np.int64), since, delay)
    within = np.zeros(len(log.attempts), bool)
    started = waits["attempt"] != NONE
    within[waits["attempt"][started & (delay >= 0)]] = True
    in_window = (waits["end_ms"] >= start_ms) & (waits["end_ms"] <= stop_ms)
    counts = (started & in_window) | (waits["is_open"] & (log.end_ms >= stop_ms))
    return within, np.sort(delay[counts & (delay >= 0) & (waits["gpus"] > 0)])


@kernel
def _sweep_reclaims(changes: Any, waits: Any, sizes: Any, size: Any, since: Any, delay: Any) -> None:
    at = 0
    for i in range(len(waits)):
        wait = waits[i]
        while at < len(changes) and changes[at].time_ms < wait.end_ms:
            row = changes[at]
            for j in range(len(sizes)):
                if row.held + sizes[j] > row.nominal:
                    since[row.tenant, j] = NEVER
                elif since[row.tenant, j] == NEVER:
                    since[row.tenant, j] = row.time_ms
            at += 1
        fits_since = since[wait.tenant, size[i]]
        if fits_since < NEVER:
            delay[i] = wait.end_ms - max(wait.begin_ms, fits_since)


def _inversion(log: Log, num_tenants: int, start_ms: int, stop_ms: int) -> int:
    """GPU time held by attempts while a job of higher priority of the same tenant waits that they could make room for.

    At each time, for each tenant: the most that its attempts below the priority of some waiting job hold, where that
    is no less than the job wants. metrics 6.
    """
    attempts, waits = log.attempts, log.waits
    priorities = np.unique(np.concatenate([attempts["priority"], waits["priority"]]))
    if len(priorities) < 2:
        return 0
    sizes = np.unique(waits["gpus"])
    holds, wants = (np.zeros(2 * len(rows), _EVENT) for rows in (attempts, waits))
    for events, rows in ((holds, attempts), (wants, waits)):
        for part, name, sign in ((events[: len(rows)], "begin_ms", 1), (events[len(rows) :], "end_ms", -1)):
            part["time_ms"], part["sign"], part["tenant"] = rows[name], sign, rows["tenant"]
            part["level"] = np.searchsorted(priorities, rows["priority"])
            part["gpus"] = rows["gpus"]
    wants["size"] = np.searchsorted(sizes, wants["gpus"])
    holds["size"] = NONE
    events = np.concatenate([holds, wants])
    events = events[np.argsort(events["time_ms"], kind="stable")]
    held = np.zeros((num_tenants, len(priorities)), np.int64)
    waiting = np.zeros((num_tenants, len(priorities), len(sizes)), np.int64)
    rate = np.zeros(num_tenants, np.int64)
    return int(_sweep_inversion(events, held, waiting, rate, sizes, start_ms, stop_ms))


_EVENT = np.dtype(
    [
        ("time_ms", np.int64),
        ("gpus", np.int64),
        ("tenant", np.int32),
        ("level", np.int32),
        ("size", np.int32),  # of a wait; NONE = an attempt
        ("sign", np.int32),
    ],
    align=True,
)


@kernel
def _sweep_inversion(events: Any, held: Any, waiting: Any, rate: Any, sizes: Any, start_ms: int, stop_ms: int) -> int:
    total_rate = 0
    area = 0
    last = start_ms
    i = 0
    while i < len(events):
        time_ms = events[i].time_ms
        until = min(max(time_ms, start_ms), stop_ms)
        area += total_rate * (until - last)
        last = until
        j = i
        while j < len(events) and events[j].time_ms == time_ms:
            e = events[j]
            if e.size == NONE:
                held[e.tenant, e.level] += e.sign * e.gpus
            else:
                waiting[e.tenant, e.level, e.size] += e.sign
            j += 1
        for m in range(i, j):
            k = events[m].tenant
            most = 0
            below = 0
            for level in range(held.shape[1]):
                for z in range(len(sizes)):
                    if waiting[k, level, z] > 0 and 0 < sizes[z] <= below:
                        most = below
                below += held[k, level]
            total_rate += most - rate[k]
            rate[k] = most
        i = j
    return area + total_rate * (stop_ms - last)


def _stops(
    log: Log, num_tenants: int, within_quota: np.ndarray, start_ms: int, stop_ms: int
) -> tuple[dict[str, int], np.ndarray]:
    """Stops by reason, and whose GPUs went to whom.

    An evicted attempt was stopped for whoever got most of its GPUs within a minute: `priority` if that is a job of the
    same tenant with a higher priority, `reclaim` if another tenant's start was within its own quota, `fair_share` if it
    was not; else `other`.
    """
    attempts = log.attempts
    is_stop = _is_stop(attempts, start_ms, stop_ms)
    flows = np.zeros((num_tenants, num_tenants))
    counts = dict.fromkeys(STOPS, 0)
    counts["by_node"] = int((is_stop & (attempts["end"] == End.BY_NODE)).sum())
    counts["by_hang"] = int((is_stop & (attempts["end"] == End.BY_HANG)).sum())
    evicted = is_stop & (attempts["end"] == End.STOPPED)
    victim, taker, gpus = _takers(log, evicted)
    np.add.at(flows, (attempts["tenant"][victim], attempts["tenant"][taker]), gpus)
    got: dict[tuple[int, int], int] = {}
    for v, t, g in zip(victim.tolist(), taker.tolist(), gpus.tolist(), strict=True):
        got[v, t] = got.get((v, t), 0) + g
    best: dict[int, tuple[int, int]] = {}
    for (v, t), g in got.items():
        best[v] = max(best.get(v, (-1, 0)), (g, -t))
    for v in np.flatnonzero(evicted).tolist():
        reason = "other"
        if v in best:
            t = -best[v][1]
            if attempts["tenant"][t] != attempts["tenant"][v]:
                reason = "reclaim" if within_quota[t] else "fair_share"
            elif attempts["priority"][t] > attempts["priority"][v]:
                reason = "priority"
        counts[reason] += 1
    return counts, flows


def _takers(log: Log, evicted: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each GPU of an evicted attempt that went on to another soon: the two attempts, and how much of the GPU."""
    nothing = np.zeros(0, np.int64)
    if not evicted.any():
        return nothing, nothing, nothing
    spans = log.spans
    bits = (spans["gpu_mask"][:, None] >> np.arange(MAX_GPUS)) & 1
    span, gpu = np.nonzero(bits)
    place = spans["node"][span].astype(np.int64) * MAX_GPUS + gpu
    begin, end = spans["begin_ms"][span] - log.begin_ms, spans["end_ms"][span] - log.begin_ms
    stride = int(log.end_ms - log.begin_ms) + TAKEN_WITHIN_MS + 2
    order = np.argsort(place * stride + begin, kind="stable")
    span, place, begin, end = span[order], place[order], begin[order], end[order]
    key = place * stride + begin
    last = np.flatnonzero(evicted[spans["attempt"][span]] & (spans["attempt"][span] != NONE))
    found = np.searchsorted(key, key[last] - begin[last] + end[last], "left")
    is_there = found < len(key)
    last, found = last[is_there], found[is_there]
    soon = (place[found] == place[last]) & (begin[found] - end[last] <= TAKEN_WITHIN_MS)
    last, found = last[soon], found[soon]
    victim, taker = spans["attempt"][span[last]], spans["attempt"][span[found]]
    other = (victim != taker) & (spans["kind"][span[found]] != Kind.RELEASING)
    amount = np.minimum(spans["gpu_milli"][span[last]], spans["gpu_milli"][span[found]]).astype(np.int64)
    return victim[other], taker[other], amount[other]


# ---------------------------------------------------------------------------------------------------------------
# Means over each job's own interval
# ---------------------------------------------------------------------------------------------------------------


def _means_over(
    log: Log, num_tenants: int, tenant: np.ndarray, begin_ms: np.ndarray, end_ms: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    end = np.maximum(np.minimum(end_ms, log.end_ms), begin_ms)
    times = np.concatenate([begin_ms, end])
    order = np.argsort(times, kind="stable")
    sums = np.zeros((len(times), 2))
    rates = np.zeros((len(times), 2))
    shares = np.zeros(1, _SHARES)
    tenants = np.concatenate([tenant, tenant])[order].astype(np.int64)
    now, area, rate = np.zeros(num_tenants, CHANGE), np.zeros((num_tenants, 2)), np.zeros((num_tenants, 2))
    _sweep_means(
        log.changes, now, area, rate, log.cluster, log.end_ms, shares, num_tenants, times[order], tenants, sums, rates
    )
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    first, last = back[: len(begin_ms)], back[len(begin_ms) :]
    length = np.maximum(end - begin_ms, 1)[:, None]
    means = np.where(end[:, None] > begin_ms[:, None], (sums[last] - sums[first]) / length, rates[first])
    return means[:, 0], means[:, 1]


@kernel
def _sweep_means(
    changes: Any,
    now: Any,
    area: Any,
    rate: Any,
    cluster: Any,
    end_ms: int,
    shares: Any,
    num_tenants: int,
    times: Any,
    tenants: Any,
    sums: Any,
    rates: Any,
) -> None:
    """(n, 2) at each time: integrals since the beginning of active jobs and of `max(e_k C, F_k)`, and the rates."""
    at = 0
    query = 0
    for i in range(len(cluster)):
        at = take_changes(changes, at, cluster[i].time_ms, now)
        begin = cluster[i].time_ms
        end = cluster[i + 1].time_ms if i + 1 < len(cluster) else end_ms
        s = shares[0]
        fill(s, now, cluster[i].up, num_tenants)
        weights = 0
        for k in range(num_tenants):
            weights += now[k].weight
        for k in range(num_tenants):
            entitled = cluster[i].up * (now[k].weight / weights) if weights > 0 else 0.0
            rate[k, 0] = now[k].active
            rate[k, 1] = max(entitled, float(s.tenants[k].fair))
        is_last = i + 1 == len(cluster)
        while query < len(times) and (times[query] < end or is_last):
            k = tenants[query]
            for c in range(2):
                sums[query, c] = area[k, c] + rate[k, c] * max(0, min(times[query], end) - begin)
                rates[query, c] = rate[k, c]
            query += 1
        for k in range(num_tenants):
            for c in range(2):
                area[k, c] += rate[k, c] * (end - begin)
