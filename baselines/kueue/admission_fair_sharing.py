"""Admission fair sharing: LocalQueues of one ClusterQueue go in the order of what they have used lately.

Usage decays with a half-life and is sampled; between samples an admission counts by a penalty at once.
Source: Kueue pkg/util/admissionfairsharing, pkg/cache/queue/afs. Differs: admission follows the reservation of quota at
once (no admission checks), so a penalty is settled when it is charged.
"""

from __future__ import annotations

import math
from typing import Any

from gangline.baselines.kueue.state import Bucket
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER, NONE


@helper
def local_queue_usage(w: Any, k: Any, local_queue: int) -> float:
    """Weighted decayed usage of a LocalQueue, penalties included; infinite for one of weight 0."""
    if local_queue == NONE:
        return 0.0
    record = k.local_queues[local_queue]
    if record.weight <= 0:
        return math.inf
    usage = 0.0
    for r in range(w.params.num_resources):
        usage += k.resource_weight[r] * record.consumed[r] * k.resource_unit[r]
    return usage / record.weight


@helper
def alpha(k: Any, elapsed_ms: int) -> float:
    """Weight of what has been used in the last `elapsed_ms` against what was used before."""
    if k.half_life_ms <= 0:
        return 0.0
    return float(1.0 - 0.5 ** (elapsed_ms / k.half_life_ms))


@helper
def charge_penalty(w: Any, k: Any, slot: int) -> None:
    """An admission counts before it is sampled."""
    local_queue = k.workloads[slot].local_queue
    if local_queue == NONE:
        return
    record = k.local_queues[local_queue]
    factor = alpha(k, k.sampling_ms)
    elapsed_ms = w.now_ms - record.settled_ms
    for r in range(w.params.num_resources):
        record.consumed[r] *= 1.0 - alpha(k, elapsed_ms)
    record.settled_ms = w.now_ms
    ps = w.jobs[slot].first_pod_set
    while ps != NONE:
        for r in range(w.params.num_resources):
            if (w.pod_sets[ps].asked >> r) & 1:
                record.consumed[r] += factor * k.pod_sets[ps].count * w.pod_sets[ps].request[r]
        ps = w.pod_sets[ps].next


@helper
def sample_usage(w: Any, k: Any) -> int:
    """Take the samples that are due; returns when the next one is, NEVER if nothing is used."""
    if not k.fair_admission:
        return NEVER
    if k.sampled_ms + k.sampling_ms <= w.now_ms:
        _sample(w, k)
    return k.sampled_ms + k.sampling_ms if w.num_running > 0 else NEVER


@helper
def _sample(w: Any, k: Any) -> None:
    """One sample: what was consumed fades, what the admitted workloads use now is added."""
    k.sampled_ms = w.now_ms
    for local_queue in range(len(k.local_queues)):
        record = k.local_queues[local_queue]
        factor = alpha(k, w.now_ms - record.settled_ms)
        record.settled_ms = w.now_ms
        for r in range(w.params.num_resources):
            record.consumed[r] *= 1.0 - factor if k.half_life_ms > 0 else 0.0
            record.factor = factor
    for slot in range(w.jobs_used):
        note = k.workloads[slot]
        if note.bucket != Bucket.RESERVED or note.local_queue == NONE:
            continue
        record = k.local_queues[note.local_queue]
        ps = w.jobs[slot].first_pod_set
        while ps != NONE:
            for r in range(w.params.num_resources):
                if (w.pod_sets[ps].asked >> r) & 1:
                    record.consumed[r] += record.factor * k.pod_sets[ps].reserved * w.pod_sets[ps].request[r]
            ps = w.pod_sets[ps].next
