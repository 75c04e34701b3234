"""The slow twin of `envs/metrics.py`: dicts, lists and loops over the jobs and integrals of a window.

It shares no code with it and uses no numpy. A job is a dict with the fields of a `LINE`, times in ms, amounts in
milli-GPU; `first_start_ms` and `end_ms` are None where they have not come. Fractions keep every sum exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

Job = Mapping[str, Any]
GPU_H = 1000 * 3_600_000
DAY_MS = 86_400_000


def metrics(
    jobs: Sequence[Job],
    totals: Mapping[str, int],
    gpu_time: Mapping[str, int],
    tenants: Mapping[str, Sequence[int]],
    *,
    jain_area: float,
    start_ms: int,
    stop_ms: int,
    now_ms: int,
    gpus: int,
    gpus_per_node: int,
    undecided: int,
    backlog: int,
) -> dict[str, float | int | None]:
    """Every value of a report by its name."""
    length = stop_ms - start_ms
    values: dict[str, Any] = {}

    # what the GPUs did
    kept = gpu_time["kept"] + gpu_time["kept_bad"]
    values["productive_utilization"] = over(kept, gpus * length)
    values["productive_utilization_ok"] = over(gpu_time["kept"], gpus * length)
    values["allocation_utilization"] = over(totals["held_area"], gpus * length)
    values["allocation_utilization_of_up"] = over(totals["held_area"], totals["capacity_area"])
    values["demand_bounded_utilization"] = over(totals["held_area"], totals["wanted_area"])
    values["productive_gpu_h"] = over(kept, GPU_H)
    for waste in ("hang", "lost", "overhead"):
        values[f"wasted_{waste}_gpu_h"] = over(gpu_time[waste], GPU_H)
    for part in ("suspended", "releasing", "surplus"):
        values[f"{part}_gpu_h"] = over(gpu_time[part], GPU_H)
    values["undecided_gpu_h"] = over(undecided, GPU_H)
    values["reserved_gpu_h"] = over(totals["reserved_area"], GPU_H)
    values["backlog_gpu_h"] = over(backlog, GPU_H)

    # jobs
    waits, waits_so_far, gang_waits, queueing, jcts, jcts_so_far, slowdowns, bounded = ([] for _ in range(8))
    weight = weighted = weight_finished = weighted_finished = 0
    owed = starved = unfinished = preempted = all_preemptions = most_preemptions = oldest = 0
    for job in jobs:
        asked = job["gpus"] * job["work_ms"]
        weight += asked
        jct = (job["end_ms"] if is_finished(job) else now_ms) - job["submit_ms"]
        jcts_so_far.append(jct)
        weighted += asked * jct
        wait = jct
        if job["first_start_ms"] is not None:
            wait = job["first_start_ms"] - job["submit_ms"]
            waits.append(wait)
        elif not job["has_ended"]:
            oldest = max(oldest, wait)
        waits_so_far.append(wait)
        if job["gpus"] > gpus_per_node:
            gang_waits.append(wait)
        if wait > DAY_MS and wait > 10 * job["work_ms"]:
            starved += 1
        if is_finished(job):
            jcts.append(jct)
            queueing.append(max(0, jct - job["holding_ms"]))
            weight_finished += asked
            weighted_finished += asked * jct
            if job["outcome"] == "DONE":
                slowdowns.append(Fraction(jct, job["work_ms"]))
                bounded.append(max(Fraction(1), Fraction(jct, max(job["work_ms"], 10_000))))
        else:
            unfinished += 1
            owed += asked if job["has_ended"] else job["left"]
        all_preemptions += job["preemptions"]
        most_preemptions = max(most_preemptions, job["preemptions"])
        preempted += job["preemptions"] > 0
    values["offered_load"] = over(weight, gpus * length)
    for name, times in (("wait", waits), ("jct", jcts)):
        values[f"{name}_mean_s"] = seconds(mean(times))
        for percent in (50, 95, 99):
            values[f"{name}_p{percent}_s"] = seconds(percentile(times, percent))
    values["wait_so_far_mean_s"] = seconds(mean(waits_so_far))
    values["wait_max_s"] = seconds(max(waits_so_far, default=None))
    values["wait_max_gang_s"] = seconds(max(gang_waits, default=None))
    values["oldest_waiting_s"] = seconds(oldest)
    values["queueing_mean_s"] = seconds(mean(queueing))
    values["queueing_p95_s"] = seconds(percentile(queueing, 95))
    values["jct_so_far_mean_s"] = seconds(mean(jcts_so_far))
    values["jct_weighted_s"] = over(weighted_finished, 1000 * weight_finished)
    values["jct_so_far_weighted_s"] = over(weighted, 1000 * weight)
    values["slowdown_mean"] = mean(slowdowns)
    values["slowdown_p50"] = percentile(slowdowns, 50)
    values["slowdown_p95"] = percentile(slowdowns, 95)
    values["bounded_slowdown_mean"] = mean(bounded)
    for percent in (50, 95, 99):
        values[f"bounded_slowdown_p{percent}"] = percentile(bounded, percent)
    values["makespan_s"] = None
    if jobs and unfinished == 0:
        values["makespan_s"] = seconds(max(j["end_ms"] for j in jobs) - min(j["submit_ms"] for j in jobs))
    values["starved_jobs"] = starved
    values["unfinished_jobs"] = unfinished
    values["unfinished_gpu_h"] = over(owed, GPU_H)
    values["waiting_jobs_mean"] = over(totals["waiting_area"], length)
    values["jobs_in_system_mean"] = over(totals["in_system_area"], length)
    values["waiting_load"] = over(totals["gpus_waiting_area"], gpus * length)

    # tenants
    values["over_share"] = over(totals["over_area"], gpus * length)
    over_share, service = values["over_share"], values["productive_utilization"]
    values["score"] = None if over_share is None else service - over_share
    values["deficit"] = over(totals["deficit_area"], gpus * length)
    values["idle_with_demand"] = over(totals["wanted_area"] - totals["held_area"], gpus * length)
    values["unproductive_with_demand"] = over(totals["idle_area"], gpus * length)
    values["jain"] = jain_area / length if length else None
    phi = [
        Fraction(held, fair) for held, fair in zip(tenants["held_area"], tenants["fair_area"], strict=True) if fair > 0
    ]
    values["min_phi"] = min(phi, default=None)
    values["jain_phi"] = sum(phi) ** 2 / (len(phi) * sum(p * p for p in phi)) if any(phi) else None

    # preemption, services, decisions
    values["preemptions"] = totals["num_preemptions"]
    values["preemptions_per_1000_jobs"] = over(1000 * all_preemptions, len(jobs))
    values["preemptions_per_gpu_h"] = over(totals["num_preemptions"] * GPU_H, totals["held_area"])
    values["preemptions_max"] = most_preemptions
    values["preempted_share"] = over(preempted, len(jobs))
    wanted = totals["replica_wanted_area"]
    values["slo_attainment"] = over(wanted - totals["replica_missing_area"], wanted)
    values["decisions_per_hour"] = over(totals["num_decisions"] * 3_600_000, length)
    values.update(dict.fromkeys(OF_A_RECORDING))
    return {name: float(v) if isinstance(v, Fraction) else v for name, v in values.items()}


OF_A_RECORDING = (  # None without one; tests/reference/timeline.py is their twin
    *("productive_utilization_at_speed", "stranded_gpu_h", "hung_attempts", "hang_delay_mean_s"),
    *("fragmentation", "fragmentation_of_free", "whole_free_share"),
    *("jain_phi_day_mean", "jain_phi_day_p5", "envy_max", "dominant_share_gap", "kueue_share_max", "slurm_factor_min"),
    *("ftf_worst", "ftf_p95", "ftf_unfair_share"),
    *(
        "stops_by_node",
        "stops_by_hang",
        "stops_for_priority",
        "stops_for_reclaim",
        "stops_for_fair_share",
        "stops_other",
    ),
    *("thrash", "quota_violation_gpu_h", "borrowed_gpu_h", "lent_gpu_h"),
    *("reclaim_delay_mean_s", "reclaim_delay_p95_s", "priority_inversion_gpu_h"),
)


def is_finished(job: Job) -> bool:
    """Whether a job came to an end of its own."""
    if not job["has_ended"]:
        return False
    if job["outcome"] == "CANCELLED":
        return job["reason"] == "BY_USER"
    return job["outcome"] in ("DONE", "FAILED", "TIMEOUT")


def size_class(job: Job) -> str:
    """Name of the class of a job's GPUs."""
    whole = -(-job["gpus"] // 1000)
    if whole <= 1:
        return str(whole)
    return "2-4" if whole <= 4 else "5-8" if whole <= 8 else ">8"


def split(jobs: Sequence[Job], key: Callable[[Job], Any]) -> dict[Any, list[Job]]:
    """Jobs by a key, in their order."""
    groups: dict[Any, list[Job]] = {}
    for job in jobs:
        groups.setdefault(key(job), []).append(job)
    return groups


def over(part: int, whole: int) -> Fraction | None:
    """part / whole, None where there is no whole."""
    return None if whole == 0 else Fraction(part, whole)


def seconds(time_ms: Any) -> Any:
    """Milliseconds to seconds; None stays None."""
    return None if time_ms is None else Fraction(time_ms) / 1000


def mean(values: Sequence[Any]) -> Any:
    """Exact mean, None of nothing."""
    return Fraction(sum(values)) / len(values) if values else None


def percentile(values: Sequence[Any], percent: int) -> Any:
    """Linear interpolation between the two nearest of the sorted values; None of fewer than 20."""
    if len(values) < 20:
        return None
    ranked = sorted(values)
    at = Fraction((len(ranked) - 1) * percent, 100)
    below = int(at)
    if below == len(ranked) - 1:
        return Fraction(ranked[below])
    return ranked[below] + (at - below) * Fraction(ranked[below + 1] - ranked[below])
