"""Volcano's files: `volcano-scheduler.conf`, and manifests of Queues, PodGroups, Jobs, HyperNodes.

    conf = volcano.read_conf("volcano-scheduler.conf")   # or the ConfigMap that holds it
    conf.actions, conf.tiers[0][1].switches
    site = volcano.read("queues.yaml", "jobs/", "nodes.yaml")
    site.pod_groups["default/train"], site.pods

A `batch.volcano.sh` Job becomes the PodGroup and the pods that Volcano's controller would make of it. Amounts are base
units (milli-CPU, bytes, whole pieces). Source: volcano-sh/volcano `pkg/scheduler/conf`, `pkg/controllers/job`;
volcano-sh/apis.
"""

from __future__ import annotations

from gangline.envs.files.volcano.conf import Plugin, SchedulerConf, read_conf
from gangline.envs.files.volcano.objects import (
    DEFAULT_QUEUE,
    HyperNode,
    Manifests,
    NetworkTopology,
    Pod,
    PodGroup,
    Queue,
    SubGroup,
)
from gangline.envs.files.volcano.reading import KINDS, read

__all__ = [
    "DEFAULT_QUEUE",
    "KINDS",
    "HyperNode",
    "Manifests",
    "NetworkTopology",
    "Plugin",
    "Pod",
    "PodGroup",
    "Queue",
    "SchedulerConf",
    "SubGroup",
    "read",
    "read_conf",
]
