"""The slow twin of `envs/timeline.py`: at each instant it looks the whole log through again.

Rows are dicts with the fields of the recording's rows; times in ms, amounts in milli-GPU, Fractions where one divides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from reference.simulator import water_fill

Row = Mapping[str, Any]
DAY_MS = 86_400_000
NEVER = 1 << 62
MINUTE_MS = 60_000


def timeline(
    log: Mapping[str, Sequence[Row]], num_tenants: int, begin_ms: int, end_ms: int, start_ms: int, stop_ms: int
) -> dict[str, Any]:
    """Everything that a timeline says, by name."""
    tenants = range(num_tenants)
    cuts = {start_ms, stop_ms} | {row["time_ms"] for row in log["cluster"]}
    cuts |= {start_ms + day * DAY_MS for day in range((stop_ms - start_ms) // DAY_MS + 1)}
    cuts |= {row[name] for kind in ("attempts", "waits") for row in log[kind] for name in ("begin_ms", "end_ms")}
    times = sorted(t for t in cuts if start_ms <= t <= stop_ms)
    areas = {name: [0] * num_tenants for name in ("held", "demand", "fair", "borrowed", "beyond_limit")}
    lent, gap, kueue, inversion = 0, Fraction(0), Fraction(0), 0
    flows = [[Fraction(0)] * num_tenants for _ in tenants]
    envy = [[Fraction(0)] * num_tenants for _ in tenants]
    days = [[[0] * num_tenants, [0] * num_tenants] for _ in range((stop_ms - start_ms) // DAY_MS)]
    cluster = dict.fromkeys(("up", "idle", "whole_free", "stranded", "fragmented", "waiting"), Fraction(0))
    for at, until in pairwise(times):
        length = until - at
        now, here = [tenant_at(log, k, at) for k in tenants], cluster_at(log, at)
        fair = water_fill(here["up"], [r["weight"] for r in now], [r["demand"] for r in now])
        for name in cluster:
            cluster[name] += length * Fraction(here[name])
        over = [max(0, r["held"] - r["nominal"]) for r in now]
        under = [max(0, r["nominal"] - r["held"]) for r in now]
        volume = min(sum(over), sum(under))
        lent += length * volume
        weights = sum(r["weight"] for r in now)
        shares = [Fraction(r["dominant"]) * weights / r["weight"] for r in now]
        wanting = [shares[k] for k in tenants if now[k]["demand"] > 0]
        gap += length * (max(shares) - min(wanting) if wanting else 0)
        lendable = sum(r["nominal"] for r in now)
        if lendable:
            mean_weight = Fraction(weights, num_tenants)
            kueue += length * max(
                1000 * Fraction(over[k], lendable) / (now[k]["weight"] / mean_weight) for k in tenants
            )
        for k in tenants:
            r = now[k]
            areas["held"][k] += length * r["held"]
            areas["demand"][k] += length * r["demand"]
            areas["fair"][k] += length * fair[k]
            areas["borrowed"][k] += length * over[k]
            areas["beyond_limit"][k] += length * max(0, r["held"] - r["limit"])
            day = (at - start_ms) // DAY_MS
            if day < len(days):
                days[day][0][k] += length * r["held"]
                days[day][1][k] += length * fair[k]
            for other in tenants:
                if volume and under[k] and over[other]:
                    flows[k][other] += (
                        length * volume * Fraction(under[k], sum(under)) * Fraction(over[other], sum(over))
                    )
                theirs = Fraction(now[other]["held"] * r["weight"], now[other]["weight"])
                if other != k:
                    envy[k][other] += length * max(0, min(theirs, r["demand"]) - min(r["held"], r["demand"]))
            inversion += length * inverted(log, k, at)
    stopped = [a for a in log["attempts"] if a["end"] in (2, 3, 4) and start_ms <= a["end_ms"] <= stop_ms]
    return {
        **{f"tenants {name}": values for name, values in areas.items()},
        "lent": lent,
        "flows": flows,
        "envy": envy,
        "dominant_gap": gap,
        "kueue_share": kueue,
        "day_phi": days,
        "cluster": cluster,
        "inversion": inversion,
        "reclaim_ms": sorted(reclaims(log, end_ms, start_ms, stop_ms)),
        "thrash": sum(
            a["starts"] > 1 and not a["was_there"] and a["end_ms"] - a["begin_ms"] < a["thrash_ms"] for a in stopped
        ),
        "stops": stops(log, stopped),
    }


def tenant_at(log: Mapping[str, Sequence[Row]], tenant: int, time_ms: int) -> Row:
    """A tenant's latest row at a time."""
    return [r for r in log["changes"] if r["tenant"] == tenant and r["time_ms"] <= time_ms][-1]


def cluster_at(log: Mapping[str, Sequence[Row]], time_ms: int) -> Row:
    """The cluster's latest row at a time."""
    return [r for r in log["cluster"] if r["time_ms"] <= time_ms][-1]


def inverted(log: Mapping[str, Sequence[Row]], tenant: int, time_ms: int) -> int:
    """GPUs of a tenant's attempts that a waiting job of higher priority could take."""
    most = 0
    running = [a for a in log["attempts"] if a["tenant"] == tenant and a["begin_ms"] <= time_ms < a["end_ms"]]
    for wait in log["waits"]:
        if wait["tenant"] == tenant and wait["begin_ms"] <= time_ms < wait["end_ms"]:
            below = sum(a["gpus"] for a in running if a["priority"] < wait["priority"])
            if 0 < wait["gpus"] <= below:
                most = max(most, below)
    return most


def reclaim_delay(log: Mapping[str, Sequence[Row]], wait: Row) -> int | None:
    """How long a wait has gone on while the job would have fitted into its tenant's nominal quota; None = never."""
    before = [r for r in log["changes"] if r["tenant"] == wait["tenant"] and r["time_ms"] < wait["end_ms"]]
    since = None
    for row in reversed(before):
        if row["held"] + wait["gpus"] > row["nominal"]:
            break
        since = row["time_ms"]
    return None if since is None else wait["end_ms"] - max(wait["begin_ms"], since)


def reclaims(log: Mapping[str, Sequence[Row]], end_ms: int, start_ms: int, stop_ms: int) -> list[int]:
    """Delays of the starts of the window, and of the waits that are open at its end."""
    found = []
    for wait in log["waits"]:
        counts = wait["attempt"] >= 0 and start_ms <= wait["end_ms"] <= stop_ms
        delay = reclaim_delay(log, wait)
        if (counts or (wait["is_open"] and end_ms >= stop_ms)) and delay is not None and wait["gpus"] > 0:
            found.append(delay)
    return found


def stops(log: Mapping[str, Sequence[Row]], stopped: Sequence[Row]) -> dict[str, int]:
    """Stops by reason."""
    counts = dict.fromkeys(("by_node", "by_hang", "priority", "reclaim", "fair_share", "other"), 0)
    within = {w["attempt"] for w in log["waits"] if w["attempt"] >= 0 and reclaim_delay(log, w) is not None}
    for attempt in stopped:
        if attempt["end"] != 4:
            counts["by_node" if attempt["end"] == 2 else "by_hang"] += 1
            continue
        got: dict[int, int] = {}
        for span in log["spans"]:
            if span["attempt"] == attempt["number"]:
                for gpu in span["gpus"]:
                    later = [s for s in log["spans"] if gpu in s["gpus"] and s["begin_ms"] >= span["end_ms"]]
                    taker = min(later, key=lambda s: s["begin_ms"], default=None)
                    if not taker or taker["attempt"] == attempt["number"] or taker["kind"] == 3:
                        continue
                    if taker["begin_ms"] - span["end_ms"] <= MINUTE_MS:
                        amount = min(span["gpu_milli"], taker["gpu_milli"])
                        got[taker["attempt"]] = got.get(taker["attempt"], 0) + amount
        reason = "other"
        if got:
            best = log["attempts"][min(got, key=lambda number: (-got[number], number))]
            if best["tenant"] != attempt["tenant"]:
                reason = "reclaim" if best["number"] in within else "fair_share"
            elif best["priority"] > attempt["priority"]:
                reason = "priority"
        counts[reason] += 1
    return counts


def means_over(
    log: Mapping[str, Sequence[Row]], num_tenants: int, end_ms: int, tenant: int, begin_ms: int, until_ms: int
) -> tuple[Fraction, Fraction]:
    """A tenant's mean active jobs and mean max(entitlement, fair share) over an interval."""
    until_ms = max(min(until_ms, end_ms), begin_ms)
    cuts = sorted({begin_ms, until_ms} | {r["time_ms"] for r in log["cluster"] if begin_ms < r["time_ms"] < until_ms})
    sums = [Fraction(0), Fraction(0)]
    pieces = list(pairwise(cuts)) or [(begin_ms, begin_ms + 1)]
    for at, until in pieces:
        now, up = [tenant_at(log, k, at) for k in range(num_tenants)], cluster_at(log, at)["up"]
        fair = water_fill(up, [r["weight"] for r in now], [r["demand"] for r in now])[tenant]
        entitled = Fraction(up * now[tenant]["weight"], sum(r["weight"] for r in now))
        sums[0] += (until - at) * now[tenant]["active"]
        sums[1] += (until - at) * max(entitled, Fraction(fair))
    length = max(until_ms - begin_ms, 1)
    return sums[0] / length, sums[1] / length


def mean_in_system(log: Mapping[str, Sequence[Row]], end_ms: int, begin_ms: int, until_ms: int) -> Fraction:
    """Mean jobs in the system over an interval."""
    until_ms = max(min(until_ms, end_ms), begin_ms)
    cuts = sorted({begin_ms, until_ms} | {r["time_ms"] for r in log["cluster"] if begin_ms < r["time_ms"] < until_ms})
    if begin_ms == until_ms:
        return Fraction(cluster_at(log, begin_ms)["in_system"])
    area = sum((until - at) * cluster_at(log, at)["in_system"] for at, until in pairwise(cuts))
    return Fraction(area) / (until_ms - begin_ms)
