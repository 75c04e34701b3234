"""From files to `Manifests`: which object is read by what; workloads last, since they name priority classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangline.envs.errors import GanglineError
from gangline.envs.files.kubernetes import Document, Fields, documents, files_of, node_of, priority_class_of
from gangline.envs.files.kueue.configuration import read_config_map, read_configuration
from gangline.envs.files.kueue.objects import LocalQueue, Manifests
from gangline.envs.files.kueue.queues import cluster_queue, cohort, flavor, local_queue, topology
from gangline.envs.files.kueue.workloads import GROUP, QUEUE_LABEL, job, workload
from gangline.envs.files.text import Unknown, shown


def read(*paths: str | Path) -> Manifests:
    """Read manifest files and folders.

    Raises:
        GanglineError: one line with file, document and path of the field: a value that makes no sense, an object that
            is there twice, a flavor without the quota of a covered resource, a priority class that is not there.
    """
    if not paths:
        raise GanglineError("manifests: no file, expected at least one")
    unknown = Unknown()
    found: dict[str, dict[str, Any]] = {}
    places: dict[tuple[str, str], str] = {}
    skipped: list[str] = []
    later: list[tuple[Document, Fields]] = []
    files = files_of(paths)
    for path in files:
        for document in documents(path):
            top = Fields(document.content, document.where, "", unknown)
            place, reader = KINDS.get((document.api.partition("/")[0], document.kind), ("", None))
            if place == "workloads":
                later.append((document, top))  # they need the priority classes
            elif reader is None:
                name = shown(str((document.content.get("metadata") or {}).get("name", "")))[1:-1]
                skipped.append(f"{document.kind} {name} ({document.where})")
            else:
                result = reader(top)
                if result is None:
                    continue
                _once(found, places, place, _key(result), result, document.where)
    for document, top in later:
        made = workload(top, found) if document.kind == "Workload" else job(top, found)
        if made is None:
            skipped.append(f"{document.kind} without the label {QUEUE_LABEL} ({document.where})")
        else:
            _once(found, places, "workloads", made.full_name, made, document.where)
    configuration = found.pop("configuration", {})
    return Manifests(
        **found,
        configuration=next(iter(configuration.values()), None),
        skipped=tuple(skipped),
        unknown=unknown.warn(str(files[0]) if len(files) == 1 else f"{len(files)} files from {files[0]}"),
    )


def _key(result: Any) -> str:
    if isinstance(result, LocalQueue):
        return f"{result.namespace}/{result.name}"
    return getattr(result, "name", "configuration")


def _once(
    found: dict[str, dict[str, Any]],
    places: dict[tuple[str, str], str],
    place: str,
    name: str,
    result: Any,
    where: str,
) -> None:
    if (place, name) in places:
        raise GanglineError(
            f"{where}: {shown(name)} is there already ({places[place, name]}), expected each object once"
        )
    places[place, name] = where
    found.setdefault(place, {})[name] = result


# (API group, kind) -> (field of `Manifests`, what reads it)
KINDS: dict[tuple[str, str], tuple[str, Callable[[Fields], Any] | None]] = {
    (GROUP, "ClusterQueue"): ("cluster_queues", cluster_queue),
    (GROUP, "Cohort"): ("cohorts", cohort),
    (GROUP, "LocalQueue"): ("local_queues", local_queue),
    (GROUP, "ResourceFlavor"): ("flavors", flavor),
    (GROUP, "Topology"): ("topologies", topology),
    (GROUP, "WorkloadPriorityClass"): ("workload_classes", priority_class_of),
    (GROUP, "Workload"): ("workloads", None),
    ("batch", "Job"): ("workloads", None),
    ("scheduling.k8s.io", "PriorityClass"): ("priority_classes", priority_class_of),
    ("v1", "Node"): ("nodes", node_of),
    (f"config.{GROUP}", "Configuration"): ("configuration", read_configuration),
    ("v1", "ConfigMap"): ("configuration", read_config_map),
}
