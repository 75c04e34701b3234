"""From files to `Manifests`: Queue, PodGroup, Job, Pod, HyperNode; what names priority classes is read last."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gangline.envs.errors import GanglineError
from gangline.envs.files.kubernetes import (
    Document,
    Fields,
    PriorityClass,
    documents,
    files_of,
    kind_of,
    meta_of,
    node_of,
    pod_template,
    priority_class_of,
    priority_of,
)
from gangline.envs.files.text import Unknown, shown
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

GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
PREEMPTABLE = "volcano.sh/preemptable"
TASK_LABELS = ("volcano.sh/task-spec",)
HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"
SLA_WAITING_TIME = "sla-waiting-time"
MAX_REPLICAS = 100_000


def read(*paths: str | Path) -> Manifests:
    """Read manifest files and folders.

    Raises:
        GanglineError: one line with file, document and path of the field: a value that makes no sense, an object that
            is there twice, a priority class that is not there, a HyperNode inside itself.
    """
    if not paths:
        raise GanglineError("manifests: no file, expected at least one")
    unknown = Unknown()
    files = files_of(paths)
    found: dict[str, dict[str, Any]] = {
        name: {} for name in ("queues", "pod_groups", "pods", "hyper_nodes", "nodes", "priority_classes")
    }
    skipped: list[str] = []
    later: list[tuple[Document, Fields]] = []
    for path in files:
        for document in documents(path):
            top = Fields(document.content, document.where, "", unknown)
            place, reader = KINDS.get((document.api.partition("/")[0], document.kind), ("", None))
            if reader is not None:
                _once(found[place], reader(top), document.where)
            elif place:
                later.append((document, top))
            else:
                name = shown(str((document.content.get("metadata") or {}).get("name", "")))[1:-1]
                skipped.append(f"{document.kind} {name} ({document.where})")
    for document, top in later:
        if document.kind == "PodGroup":
            _once(found["pod_groups"], _pod_group(top, found["priority_classes"]), document.where)
        elif document.kind == "Job":
            group, pods = _job(top, found["priority_classes"])
            _once(found["pod_groups"], group, document.where)
            for pod in pods:
                _once(found["pods"], pod, document.where)
        else:
            single = _pod(top, found["priority_classes"])
            if single is None:
                skipped.append(f"Pod without a group ({document.where})")
            else:
                _once(found["pods"], single, document.where)
    site = Manifests(
        **found,
        skipped=tuple(skipped),
        unknown=unknown.warn(str(files[0]) if len(files) == 1 else f"{len(files)} files from {files[0]}"),
    )
    _check_hyper_nodes(site)
    return site


def _once(found: dict[str, Any], result: Any, where: str) -> None:
    name = getattr(result, "full_name", result.name)
    if name in found:
        raise GanglineError(f"{where}: {shown(name)} is there already, expected each object once")
    found[name] = result


def _queue(top: Fields) -> Queue:
    meta, spec = meta_of(top), top.sub("spec")
    status = top.sub("status")
    top.done()
    guarantee = spec.sub("guarantee")
    queue = Queue(
        name=meta.name,
        weight=spec.integer("weight", 1, least=1),
        parent=spec.text("parent") or None,
        priority=spec.integer("priority", 0),
        capability=spec.amounts("capability"),
        deserved=spec.amounts("deserved"),
        guarantee=guarantee.amounts("resource"),
        reclaimable=spec.flag("reclaimable", True),
        state=status.choice("state", ("Open", "Closed", "Closing", "Unknown"), "Open"),
        hierarchy=meta.annotations.get(HIERARCHY),
        hierarchy_weights=meta.annotations.get(HIERARCHY_WEIGHTS),
    )
    guarantee.done()
    spec.ignore("affinity", "dequeueStrategy", "extendClusters", "type", "state")
    spec.done()
    return queue


def _pod_group(top: Fields, classes: Mapping[str, PriorityClass]) -> PodGroup:
    meta, spec, status = meta_of(top), top.sub("spec"), top.sub("status")
    top.done()
    name = spec.text("priorityClassName") or None
    group = PodGroup(
        name=meta.name,
        namespace=meta.namespace,
        queue=spec.text("queue") or DEFAULT_QUEUE,
        min_member=spec.integer("minMember", 0, least=0),
        min_task_member=spec.integers("minTaskMember"),
        min_resources=spec.amounts("minResources") if "minResources" in spec else None,
        priority=priority_of(name, classes, f"{spec.where}: spec.priorityClassName"),
        priority_class=name,
        phase=status.choice("phase", ("Pending", "Running", "Unknown", "Inqueue", "Completed"), "Pending"),
        network_topology=_topology(spec),
        sub_groups=tuple(_sub_group(entry) for entry in spec.each("subGroupPolicy")),
        preemptable=_preemptable({**meta.annotations, **meta.labels}),
        sla_waiting_time=meta.annotations.get(SLA_WAITING_TIME),
        created_ms=meta.created_ms,
        uid=meta.uid,
    )
    spec.ignore("minResources")
    spec.done()
    return group


def _topology(spec: Fields) -> NetworkTopology | None:
    if "networkTopology" not in spec:
        spec.ignore("networkTopology")
        return None
    fields = spec.sub("networkTopology")
    name = fields.text("highestTierName") or None
    topology = NetworkTopology(
        mode=fields.choice("mode", ("hard", "soft"), "hard"),
        highest_tier_allowed=fields.integer("highestTierAllowed", 1 if name is None else None, least=0),
        highest_tier_name=name,
    )
    fields.done()
    return topology


def _sub_group(entry: Fields) -> SubGroup:
    keys = []
    for i, key in enumerate(entry.list("matchLabelKeys")):
        if not isinstance(key, str):
            raise GanglineError(f"{entry.where}: {entry.path}.matchLabelKeys[{i}] is {kind_of(key)}, expected a label")
        keys.append(key)
    group = SubGroup(
        name=entry.name(),
        size=entry.integer("subGroupSize", least=1),
        min_sub_groups=entry.integer("minSubGroups", least=0),
        match_label_keys=tuple(keys),
        network_topology=_topology(entry),
    )
    entry.ignore("labelSelector")
    entry.done()
    return group


def _preemptable(marks: Mapping[str, str]) -> bool | None:
    """`volcano.sh/preemptable`; a text that is no switch counts as false, as in Volcano. None = not said."""
    if PREEMPTABLE not in marks:
        return None
    return marks[PREEMPTABLE].strip().lower() in ("1", "t", "true")


class _Task(NamedTuple):
    """A task of a Volcano Job, as far as its PodGroup is concerned."""

    priority: int | None
    replicas: int
    min_available: int
    requests: Mapping[str, int]


def _job(top: Fields, classes: Mapping[str, PriorityClass]) -> tuple[PodGroup, list[Pod]]:
    """The PodGroup and the pods of a Volcano Job."""
    meta, spec = meta_of(top), top.sub("spec")
    top.done()
    marked = _preemptable({**meta.annotations, **meta.labels})
    pods: list[Pod] = []
    tasks: dict[str, _Task] = {}
    sub_groups = []
    for i, fields in enumerate(spec.each("tasks")):
        name = fields.text("name") or f"default{i}"
        if name in tasks:
            raise fields.wrong("name", "a name that no other task of the job has")
        template = pod_template(fields.sub("template"))
        priority = template.priority
        if priority is None and template.priority_class:
            priority = priority_of(template.priority_class, classes, f"{fields.where}: {fields.at('template')}")
        replicas = fields.integer("replicas", 1, least=0)
        if replicas > MAX_REPLICAS:
            raise fields.wrong("replicas", f"at most {MAX_REPLICAS}")
        tasks[name] = _Task(priority, replicas, fields.integer("minAvailable", replicas, least=0), template.requests)
        if tasks[name].min_available > replicas:
            raise fields.wrong("minAvailable", f"at most replicas, {replicas}")
        own = _preemptable({**template.annotations, **template.labels})
        pods += [
            Pod(
                name=f"{meta.name}-{name}-{index}",
                namespace=meta.namespace,
                pod_group=f"{meta.namespace}/{meta.name}",
                requests=template.requests,
                task=name,
                priority=priority,
                preemptable=next((mark for mark in (own, marked) if mark is not None), True),
                preemption_policy=template.preemption_policy,
                labels=template.labels,
                node_selector=template.node_selector,
            )
            for index in range(replicas)
        ]
        if "partitionPolicy" in fields:
            sub_groups.append(_partition(fields.sub("partitionPolicy"), name))
        fields.ignore("dependsOn", "maxRetry", "partitionPolicy", "policies", "topologyPolicy")
        fields.done()
    if not tasks:
        raise spec.wrong("tasks", "at least one task")
    min_available = spec.integer("minAvailable", sum(task.min_available for task in tasks.values()), least=0)
    if min_available > len(pods):
        raise spec.wrong("minAvailable", f"at most the job's {len(pods)} pods")
    priority_class = spec.text("priorityClassName") or None
    group = PodGroup(
        name=meta.name,
        namespace=meta.namespace,
        queue=spec.text("queue") or DEFAULT_QUEUE,
        min_member=min_available,
        min_task_member={name: task.min_available for name, task in tasks.items()},
        min_resources=_min_resources(list(tasks.values()), min_available),
        priority=priority_of(priority_class, classes, f"{spec.where}: spec.priorityClassName"),
        priority_class=priority_class,
        network_topology=_topology(spec),
        sub_groups=tuple(sub_groups),
        preemptable=marked,
        sla_waiting_time=meta.annotations.get(SLA_WAITING_TIME),
        created_ms=meta.created_ms,
        uid=meta.uid,
    )
    spec.ignore("maxRetry", "minSuccess", "plugins", "policies", "runningEstimate", "schedulerName")
    spec.ignore("ttlSecondsAfterFinished", "volumes")
    spec.done()
    return group, pods


def _partition(fields: Fields, task: str) -> SubGroup:
    """`partitionPolicy` of a task: its pods in partitions of equal size."""
    group = SubGroup(
        name=task,
        size=fields.integer("partitionSize", least=1),
        min_sub_groups=fields.integer("minPartitions", least=0),
        network_topology=_topology(fields),
    )
    fields.ignore("totalPartitions")
    fields.done()
    return group


def _min_resources(tasks: list[_Task], min_available: int) -> dict[str, int]:
    """What the first `min_available` pods ask for: each task's minimum, then what is left, both by priority."""
    tasks = sorted(tasks, key=lambda task: -(task.priority or 0))
    firsts = [task.requests for task in tasks for _ in range(task.min_available)]
    rests = [task.requests for task in tasks for _ in range(task.min_available, task.replicas)]
    total: dict[str, int] = {}
    for requests in [*firsts, *rests][:min_available]:
        for resource, value in requests.items():
            total[resource] = total.get(resource, 0) + value
    return total


def _pod(top: Fields, classes: Mapping[str, PriorityClass]) -> Pod | None:
    """A pod that names its PodGroup; None of others."""
    meta, spec, status = meta_of(top), top.sub("spec"), top.sub("status")
    marks = {**meta.annotations, **meta.labels}
    group = next((marks[key] for key in GROUP_ANNOTATIONS if key in marks), None)
    if group is None:
        return None
    template = pod_template(top)
    priority = template.priority
    if priority is None and template.priority_class:
        priority = priority_of(template.priority_class, classes, f"{top.where}: spec.priorityClassName")
    preemptable = _preemptable(marks)
    return Pod(
        name=meta.name,
        namespace=meta.namespace,
        pod_group=f"{meta.namespace}/{group}",
        requests=template.requests,
        task=next((marks[key] for key in TASK_LABELS if key in marks), ""),
        priority=priority,
        preemptable=True if preemptable is None else preemptable,
        preemption_policy=template.preemption_policy,
        node=spec.text("nodeName") or None,
        phase=status.choice("phase", ("Pending", "Running", "Succeeded", "Failed", "Unknown"), "Pending"),
        labels=template.labels,
        node_selector=template.node_selector,
    )


def _hyper_node(top: Fields) -> HyperNode:
    meta, spec = meta_of(top), top.sub("spec")
    top.done()
    tier = spec.raw("tier")
    if isinstance(tier, str) and tier.isascii() and tier.isdigit():
        tier = int(tier)  # first versions wrote "1"
    if isinstance(tier, bool) or not isinstance(tier, int) or tier < 1:
        raise spec.wrong("tier", "a whole number of at least 1")
    members = []
    for member in spec.each("members"):
        kind = member.choice("type", ("Node", "HyperNode"))
        if kind is None:
            raise member.wrong("type", "Node or HyperNode")
        members.append((kind, *_selector(member.sub("selector"), member)))
        member.done()
    found = HyperNode(name=meta.name, tier=tier, tier_name=spec.text("tierName") or None, members=tuple(members))
    spec.done()
    return found


def _selector(selector: Fields, member: Fields) -> tuple[str, str]:
    """(how, word) of a member's selector."""
    selector.ignore("type")
    if "exactMatch" in selector:
        found = "exact", selector.sub("exactMatch").name()
    elif "regexMatch" in selector:
        regex = selector.sub("regexMatch")
        found = "regex", regex.name("pattern")
        try:
            re.compile(found[1])
        except re.error as error:
            raise regex.wrong("pattern", f"a regular expression ({error})") from None
    elif "labelMatch" in selector:
        labels = selector.sub("labelMatch").labels("matchLabels")
        if not labels:
            raise selector.wrong("labelMatch", "matchLabels")
        found = "label", ",".join(f"{key}={value}" for key, value in labels.items())
    else:
        raise member.wrong("selector", "exactMatch, regexMatch or labelMatch")
    selector.done()
    return found


def _check_hyper_nodes(site: Manifests) -> None:
    """No HyperNode is inside itself, and what is inside has a lower tier."""
    for name, hyper_node in site.hyper_nodes.items():
        for kind, how, word in hyper_node.members:
            if kind != "HyperNode":
                continue
            for inside in sorted(site._matching(kind, how, word)):
                if site.hyper_nodes[inside].tier >= hyper_node.tier:
                    raise GanglineError(
                        f"manifests: HyperNode {shown(inside)} of tier {site.hyper_nodes[inside].tier} is inside "
                        f"{shown(name)} of tier {hyper_node.tier}, expected a lower tier"
                    )


KINDS: dict[tuple[str, str], tuple[str, Callable[[Fields], Any] | None]] = {
    ("scheduling.volcano.sh", "Queue"): ("queues", _queue),
    ("scheduling.volcano.sh", "PodGroup"): ("pod_groups", None),
    ("batch.volcano.sh", "Job"): ("pod_groups", None),
    ("topology.volcano.sh", "HyperNode"): ("hyper_nodes", _hyper_node),
    ("scheduling.k8s.io", "PriorityClass"): ("priority_classes", priority_class_of),
    ("v1", "Node"): ("nodes", node_of),
    ("v1", "Pod"): ("pods", None),
}
