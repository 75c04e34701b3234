"""What a running job does with its GPUs as time passes: overhead, work, checkpoints; what a stop costs.

docs/model.md section 3. Every function is exact: work is thousandths x ms, GPU time milli-GPU x ms. Nothing here
needs an event per checkpoint: any number of them is passed in one step.
"""

from __future__ import annotations

from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.core.types import FULL_SPEED, NEVER, NONE, JobKind, JobState, PodState


@helper
def progress_until(position_ms: int, interval_ms: int, cost_ms: int) -> int:
    """Milliseconds of progress between the start of a checkpoint cycle and a position, cycles run on."""
    period = interval_ms + cost_ms
    return (position_ms // period) * interval_ms + min(position_ms % period, interval_ms)


@helper
def pass_time(
    progress: Any, gpu_time: Any, elapsed_ms: int, gpus: int, speed: int, interval_ms: int, cost_ms: int
) -> None:
    """Let `elapsed_ms` pass for something that runs on `gpus` milli-GPU.

    Args:
        progress: PROGRESS of the job or batch pod.
        gpu_time: GPU_TIME of the job, the counters that the time goes to.
        elapsed_ms: ms since the last call; must not reach beyond the finish.
        gpus: requested milli-GPU that are bound.
        speed: thousandths.
        interval_ms: of checkpoints, NEVER = none.
        cost_ms: to write one.
    """
    overhead = min(elapsed_ms, progress.overhead_ms)
    progress.overhead_ms -= overhead
    gpu_time.overhead += overhead * gpus
    rest = elapsed_ms - overhead
    if rest == 0:
        return
    if interval_ms >= NEVER:
        progress.left -= rest * speed
        progress.undecided += rest * gpus
        return
    period = interval_ms + cost_ms
    before = progress.cycle_ms
    after = before + rest
    worked = progress_until(after, interval_ms, cost_ms) - progress_until(before, interval_ms, cost_ms)
    progress.left -= worked * speed
    gpu_time.overhead += (rest - worked) * gpus
    if after >= period:
        since = progress_until(after % period, interval_ms, cost_ms)
        gpu_time.kept += progress.undecided + (worked - since) * gpus
        progress.undecided = since * gpus
        progress.saved_left = progress.left + since * speed
        progress.cycle_ms = after % period
    else:
        progress.undecided += worked * gpus
        progress.cycle_ms = after


@helper
def time_until(progress: Any, target_left: int, speed: int, interval_ms: int, cost_ms: int) -> int:
    """Milliseconds until the work left has come down to `target_left`, overhead and checkpoint writes included."""
    to_do = (progress.left - target_left + speed - 1) // speed
    if to_do <= 0:
        return progress.overhead_ms
    if interval_ms >= NEVER:
        return progress.overhead_ms + to_do
    goal = min(progress.cycle_ms, interval_ms) + to_do
    cycles = (goal - 1) // interval_ms  # work that ends at a checkpoint does not wait for its write
    return progress.overhead_ms + cycles * (interval_ms + cost_ms) + goal - cycles * interval_ms - progress.cycle_ms


@helper
def begin_attempt(progress: Any, overhead_ms: int) -> None:
    """Start or restart: overhead first, then a fresh checkpoint cycle."""
    progress.overhead_ms = overhead_ms
    progress.cycle_ms = 0


@helper
def roll_back(progress: Any, gpu_time: Any) -> int:
    """Return to the last checkpoint; returns the GPU time lost, milli-GPU x ms."""
    lost = progress.undecided
    gpu_time.lost += lost
    progress.undecided = 0
    progress.left = progress.saved_left
    progress.overhead_ms = 0
    progress.cycle_ms = 0
    return lost


@helper
def settle_undecided(progress: Any, gpu_time: Any) -> None:
    """At an end: what was not yet decided is kept."""
    gpu_time.kept += progress.undecided
    progress.undecided = 0


@helper
def accrue_job(w: Any, slot: int) -> None:
    """Bring a job's counters, and its batch pods' progress, up to now."""
    job = w.jobs[slot]
    elapsed = w.now_ms - job.accrued_ms
    if elapsed == 0:
        return
    job.accrued_ms = w.now_ms
    if job.first_pod == NONE:
        return
    gpu_time = job.gpu_time
    held = job.gpus_bound + job.gpus_surplus + job.gpus_releasing
    if held > 0:
        job.holding_ms += elapsed
    gpu_time.held += elapsed * held
    gpu_time.surplus += elapsed * job.gpus_surplus
    gpu_time.releasing += elapsed * job.gpus_releasing
    if job.state == JobState.SUSPENDED:
        gpu_time.suspended += elapsed * job.gpus_bound
    elif job.kind == JobKind.SERVICE:
        gpu_time.kept += elapsed * job.gpus_bound
    elif job.kind == JobKind.BATCH:
        at = job.first_pod
        while at != NONE:
            pod = w.pods[at]
            if pod.state == PodState.BOUND:
                pass_time(pod.progress, gpu_time, elapsed, pod.gpus_asked, w.nodes[pod.node].speed, NEVER, 0)
            at = pod.next
    elif job.state == JobState.RUNNING and not job.is_hung:
        pass_time(
            job.progress,
            gpu_time,
            elapsed,
            job.gpus_bound,
            job.speed,
            job.checkpoint_interval_ms,
            job.checkpoint_cost_ms,
        )
    else:
        gpu_time.hang += elapsed * job.gpus_bound


@helper
def job_speed(w: Any, slot: int) -> int:
    """Speed of a training job on its bound pods, thousandths."""
    job = w.jobs[slot]
    slowest = NEVER
    first_node = NONE
    one_node = True
    at = job.first_pod
    while at != NONE:
        pod = w.pods[at]
        if pod.state == PodState.BOUND:
            slowest = min(slowest, w.nodes[pod.node].speed)
            if first_node == NONE:
                first_node = pod.node
            elif pod.node != first_node:
                one_node = False
        at = pod.next
    speed = slowest
    if not one_node:
        speed = speed * _locality(w, slot) // FULL_SPEED
    if job.num_bound < job.num_wanted:
        speed = speed * job.num_bound // job.num_wanted
    return max(speed, 1)


@helper
def _locality(w: Any, slot: int) -> int:
    """Locality factor (thousandths) of a job that spans several nodes."""
    topology = w.params.locality_topology
    if topology == NONE:
        return FULL_SPEED
    common = NONE
    at = w.jobs[slot].first_pod
    is_first = True
    while at != NONE:
        pod = w.pods[at]
        if pod.state == PodState.BOUND:
            domain = w.nodes[pod.node].domain[topology]
            if is_first:
                common = domain
                is_first = False
            else:
                common = lowest_common_domain(w, common, domain)
            if common == NONE:
                break
        at = pod.next
    last = len(w.params.locality) - 1
    if common == NONE:
        return w.params.locality[last]
    return w.params.locality[min(w.domains[common].tier, last)]


@helper
def lowest_common_domain(w: Any, a: int, b: int) -> int:
    """Lowest domain that contains both, or NONE. Tiers grow towards the root."""
    while a != b:
        if a == NONE or b == NONE:
            return NONE
        if w.domains[a].tier <= w.domains[b].tier:
            a = w.domains[a].parent
        else:
            b = w.domains[b].parent
    return a
