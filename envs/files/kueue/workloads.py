"""Workload, and the `batch/v1` Job of which Kueue makes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline.envs.errors import GanglineError
from gangline.envs.files.kubernetes import Fields, Meta, meta_of, pod_template, priority_of, time_ms
from gangline.envs.files.kueue.objects import Assignment, PodSet, TopologyRequest, Workload
from gangline.envs.files.text import shown

GROUP = "kueue.x-k8s.io"
QUEUE_LABEL = f"{GROUP}/queue-name"
PRIORITY_LABEL = f"{GROUP}/priority-class"
MIN_PARALLELISM = f"{GROUP}/job-min-parallelism"


def workload(top: Fields, found: Mapping[str, Mapping[str, Any]]) -> Workload:
    """A Workload, with what it holds in a running cluster."""
    meta, spec, status = meta_of(top), top.sub("spec"), top.sub("status")
    top.done()
    priority = spec.integer("priority")
    ref = spec.sub("priorityClassRef")
    source = spec.text("priorityClassSource", "") or ref.text("group", "")
    name = spec.text("priorityClassName") or ref.text("name")
    ref.ignore("kind")
    ref.done()
    if priority is None:
        kind = "priority_classes" if "scheduling" in source else "workload_classes"
        priority = priority_of(name, found.get(kind, {}), f"{spec.where}: {spec.path}")
    pod_sets = []
    for entry in spec.each("podSets"):
        template = pod_template(entry.sub("template"))
        request = entry.sub("topologyRequest")
        topology = (
            _topology_request(request) if "topologyRequest" in entry else annotated_topology(template.annotations)
        )
        pod_sets.append(
            PodSet(
                name=entry.text("name", "main"),
                count=entry.integer("count", 1, least=0),
                min_count=entry.integer("minCount", least=0),
                requests=template.requests,
                node_selector=template.node_selector,
                topology=topology,
            )
        )
        entry.done()
    if not pod_sets:
        raise spec.wrong("podSets", "at least one pod set")
    seconds = spec.integer("maximumExecutionTimeSeconds", least=1)
    workload = Workload(
        name=meta.name,
        namespace=meta.namespace,
        local_queue=spec.text("queueName", ""),
        pod_sets=tuple(pod_sets),
        priority=priority,
        created_ms=meta.created_ms,
        uid=meta.uid,
        is_active=spec.flag("active", True),
        claim_ms=None if seconds is None else seconds * 1000,
        **_admission(status),
    )
    spec.ignore("preemptionGates")
    spec.done()
    return workload


def _admission(status: Fields) -> dict[str, Any]:
    """What a running cluster says of a workload: `kubectl get workloads -o yaml`."""
    since = {
        condition.text("type"): condition.parsed("lastTransitionTime", time_ms)
        for condition in status.each("conditions")
        if condition.text("status") == "True"
    }
    if "admission" not in status:
        return {}
    admission = status.sub("admission")
    return {
        "cluster_queue": admission.name("clusterQueue"),
        "assignments": tuple(
            Assignment(
                pod_set=entry.text("name", "main"),
                count=entry.integer("count", least=0),
                flavors=entry.labels("flavors"),
                usage=entry.amounts("resourceUsage"),
            )
            for entry in admission.each("podSetAssignments")
        ),
        "reserved_ms": since.get("QuotaReserved"),
        "evicted_ms": since.get("Evicted"),
    }


def _topology_request(request: Fields) -> TopologyRequest:
    slices = []
    for layer in request.each("podsetSliceRequiredTopologyConstraints"):
        slices.append((layer.name("topology"), layer.integer("size", 1, least=1)))
    if "podSetSliceRequiredTopology" in request:
        slices.append((request.name("podSetSliceRequiredTopology"), request.integer("podSetSliceSize", 1, least=1)))
    asked = TopologyRequest(
        required=request.text("required"),
        preferred=request.text("preferred"),
        unconstrained=request.flag("unconstrained", False),
        slices=tuple(slices),
        group=request.text("podSetGroupName"),
    )
    request.ignore("podIndexLabel", "subGroupIndexLabel", "subGroupCount", "podSetSliceSize")
    request.done()
    return asked


def annotated_topology(annotations: Mapping[str, str]) -> TopologyRequest | None:
    """The topology request in a pod template's annotations, if there is one."""
    given = {
        key.removeprefix(f"{GROUP}/podset-"): value
        for key, value in annotations.items()
        if key.startswith(f"{GROUP}/podset-")
    }
    if not given:
        return None
    level, size = given.get("slice-required-topology"), given.get("slice-size", "")
    return TopologyRequest(
        required=given.get("required-topology"),
        preferred=given.get("preferred-topology"),
        unconstrained=given.get("unconstrained-topology") == "true",
        slices=((level, int(size)),) if level and size.isdigit() else (),
        group=given.get("group-name"),
    )


def job(top: Fields, found: Mapping[str, Mapping[str, Any]]) -> Workload | None:
    """The workload of a `batch/v1` Job; None of one that Kueue does not manage."""
    meta, spec = meta_of(top), top.sub("spec")
    queue = meta.labels.get(QUEUE_LABEL) or meta.annotations.get(QUEUE_LABEL)
    if not queue:
        return None
    template = pod_template(spec.sub("template"))
    parallelism, completions = spec.integer("parallelism", 1, least=0), spec.integer("completions", least=0)
    seconds = spec.integer("activeDeadlineSeconds", least=1)
    return Workload(
        name=meta.name,
        namespace=meta.namespace,
        local_queue=queue,
        pod_sets=(
            PodSet(
                count=parallelism if completions is None else min(parallelism, completions),
                min_count=_min_parallelism(top, meta),
                requests=template.requests,
                node_selector=template.node_selector,
                topology=annotated_topology(template.annotations),
            ),
        ),
        priority=job_priority(meta, template.priority, template.priority_class, found, top.where),
        created_ms=meta.created_ms,
        uid=meta.uid,
        claim_ms=None if seconds is None else seconds * 1000,
    )


def _min_parallelism(top: Fields, meta: Meta) -> int | None:
    text = meta.annotations.get(MIN_PARALLELISM)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise GanglineError(
            f"{top.where}: metadata.annotations[{MIN_PARALLELISM}] is {shown(text)}, expected a whole number of at "
            "least 1"
        )
    return int(text)


def job_priority(
    meta: Meta, given: int | None, name: str | None, found: Mapping[str, Mapping[str, Any]], where: str
) -> int:
    """Of a Job: its WorkloadPriorityClass label, else its pods' priority or PriorityClass."""
    label = meta.labels.get(PRIORITY_LABEL)
    if label:
        return priority_of(label, found.get("workload_classes", {}), f"{where}: metadata.labels[{PRIORITY_LABEL}]")
    if given is not None:
        return given
    return priority_of(name, found.get("priority_classes", {}), f"{where}: spec.template.spec.priorityClassName")
