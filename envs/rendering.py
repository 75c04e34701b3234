"""Pictures of a world. `text_view` draws it as text: GPUs as letters of their tenants, queue, tenants' shares."""

from __future__ import annotations

import numpy as np

from gangline.envs.core.types import NONE, ONE_GPU, JobState, NodeState, PodState
from gangline.envs.core.world import World

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
MOST_NODES = 64
MOST_JOBS = 12


def text_view(world: World) -> str:
    """The cluster at this instant.

    A GPU is `.` (free), its tenant's letter (whole), the letter in lower case (shared), `x` (node down).
    """
    world.refresh()
    w = world.record
    lines = [f"t = {world.now_ms / 3_600_000:.2f} h"]
    lines += [_node_line(world, n) for n in range(min(int(w["num_nodes"]), MOST_NODES))]
    if int(w["num_nodes"]) > MOST_NODES:
        lines.append(f"... and {int(w['num_nodes']) - MOST_NODES} more nodes")
    lines += _queue_lines(world)
    lines += _tenant_lines(world)
    return "\n".join(lines)


def _node_line(world: World, n: int) -> str:
    node = world.record["nodes"][n]
    cells = ["x" if node["state"] == NodeState.DOWN else "."] * int(node["num_gpus"])
    at = int(node["first_pod"])
    while at != NONE:
        pod = world.record["pods"][at]
        tenant = int(world.record["jobs"][int(pod["job"])]["tenant"])
        letter = LETTERS[tenant % len(LETTERS)]
        shared = int(pod["gpu_milli"]) < ONE_GPU
        for g in range(len(cells)):
            if int(pod["gpu_mask"]) >> g & 1 and pod["state"] in (PodState.BOUND, PodState.RELEASING):
                cells[g] = letter.lower() if shared else letter
        at = int(pod["next_on_node"])
    return f"{world.names.nodes[n]:>12} |{''.join(cells)}|"


def _queue_lines(world: World) -> list[str]:
    w = world.record
    jobs = w["jobs"][: int(w["jobs_used"])]
    waiting = jobs[np.isin(jobs["state"], (JobState.QUEUED, JobState.ADMITTED))]
    waiting = waiting[np.argsort(waiting["submit_ms"], kind="stable")]
    lines = [f"queue: {len(waiting)} jobs, {int(w['gpus_waiting']) / ONE_GPU:g} GPUs"]
    for job in waiting[:MOST_JOBS]:
        age_h = (world.now_ms - int(job["submit_ms"])) / 3_600_000
        lines.append(
            f"  {world.job_name(int(job['row'])):>12}  {world.names.tenants[int(job['tenant'])]:<10}"
            f" {int(job['gpus_wanted']) / ONE_GPU:>5g} GPU  waits {age_h:.2f} h"
        )
    if len(waiting) > MOST_JOBS:
        lines.append(f"  ... and {len(waiting) - MOST_JOBS} more")
    return lines


def _tenant_lines(world: World) -> list[str]:
    w = world.record
    lines = ["tenants:   holds / fair share / entitled   (GPUs)"]
    for k, name in enumerate(world.names.tenants):
        t = w["tenants"][k]
        held, fair, entitled = (int(t[f]) / ONE_GPU for f in ("held", "fair", "entitled"))
        lines.append(f"  {LETTERS[k % len(LETTERS)]} {name:<10} {held:>6g} / {fair:>6g} / {entitled:>6g}")
    return lines
