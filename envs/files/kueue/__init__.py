"""Manifests of Kueue: queues, cohorts, flavors, topologies, priority classes, workloads and Jobs, its configuration.

    site = kueue.read("queues.yaml", "jobs/")
    site.cluster_queues["team-a"].quotas()     # {("default", "nvidia.com/gpu"): Quota(nominal=8, ...)}

Both v1beta1 and v1beta2 are understood: `cohort` and `cohortName`, `parent` and `parentName`, `priorityClassName` and
`priorityClassRef`, `Borrow`/`Preempt` and `MayStopSearch`. Amounts are base units (milli-CPU, bytes, whole pieces).
A `batch/v1` Job is the workload that Kueue would make of it. Namespaces and namespace selectors are not followed.
Source: kubernetes-sigs/kueue `apis/kueue`, `apis/config`, `pkg/controller/jobs/job`.
"""

from __future__ import annotations

from gangline.envs.files.kueue.objects import (
    Assignment,
    ClusterQueue,
    Cohort,
    Configuration,
    FlavorFungibility,
    FlavorQuotas,
    LocalQueue,
    Manifests,
    PodSet,
    Preemption,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Topology,
    TopologyRequest,
    Workload,
)
from gangline.envs.files.kueue.reading import KINDS, read

__all__ = [
    "KINDS",
    "Assignment",
    "ClusterQueue",
    "Cohort",
    "Configuration",
    "FlavorFungibility",
    "FlavorQuotas",
    "LocalQueue",
    "Manifests",
    "PodSet",
    "Preemption",
    "Quota",
    "ResourceFlavor",
    "ResourceGroup",
    "Topology",
    "TopologyRequest",
    "Workload",
    "read",
]
