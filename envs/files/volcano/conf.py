"""`volcano-scheduler.conf`: actions, tiers of plugins, switches, arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gangline.envs.errors import GanglineError
from gangline.envs.files.kubernetes import Fields, load_yaml, parse_yaml
from gangline.envs.files.text import Unknown, nearest, shown

ACTIONS = (
    *("enqueue", "allocate", "backfill", "preempt", "reclaim", "shuffle", "gangpreempt", "gangreclaim"),
    *("elect", "reserve"),  # of old versions
)
PLUGINS = (
    *("binpack", "capacity", "cdp", "conformance", "deviceshare", "drf", "extender", "gang", "network-topology-aware"),
    *(
        "group-topology-affinity",
        "nodegroup",
        "nodeorder",
        "numaaware",
        "overcommit",
        "pdb",
        "predicates",
        "priority",
        "proportion",
    ),
    *("rescheduling", "resource-strategy-fit", "resourcequota", "sla", "task-topology", "tdm", "usage"),
    *("crossquota", "reservation", "sra"),
)
# The word in the file (`enableJobOrder`; some versions write `enabledJobOrder`) less its beginning -> ours.
SWITCHES = {
    "Allocatable": "allocatable",
    "BestNode": "best_node",
    "ClusterOrder": "cluster_order",
    "Hierarchy": "hierarchy",
    "HyperNodeGradient": "hypernode_gradient",
    "HyperNodeOrder": "hypernode_order",
    "JobEnqueued": "job_enqueued",
    "JobOrder": "job_order",
    "JobPipelined": "job_pipelined",
    "JobReady": "job_ready",
    "JobStarving": "job_starving",
    "NamespaceOrder": "namespace_order",
    "NodeOrder": "node_order",
    "Overused": "overused",
    "Predicate": "predicate",
    "Preemptable": "preemptable",
    "Preemptive": "preemptive",
    "QueueOrder": "queue_order",
    "Reclaimable": "reclaimable",
    "ReservedNodes": "reserved_nodes",
    "SubJobOrder": "sub_job_order",
    "SubJobPipelined": "sub_job_pipelined",
    "SubJobReady": "sub_job_ready",
    "TargetJob": "target_job",
    "TaskOrder": "task_order",
    "Victim": "victim",
}
OFF_UNLESS_SAID = ("hierarchy", "cluster_order")  # every other switch is on once a file is loaded


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A plugin of a tier.

    Attributes:
        name: Volcano's.
        switches: those that the file sets: ours -> on or off.
        arguments: as the file gives them; numbers and switches in quotes stay texts.
    """

    name: str
    switches: Mapping[str, bool] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def is_on(self, switch: str) -> bool:
        """Whether a switch of `SWITCHES` is on: as the file says, else Volcano's default."""
        return self.switches.get(switch, switch not in OFF_UNLESS_SAID)

    @property
    def enabled(self) -> tuple[str, ...]:
        """The switches that are on."""
        return tuple(switch for switch in SWITCHES.values() if self.is_on(switch))


@dataclass(frozen=True, kw_only=True)
class SchedulerConf:
    """A `volcano-scheduler.conf`.

    Attributes:
        actions: in order.
        tiers: plugins of each tier, in order.
        action_arguments: action -> arguments, from `configurations`.
        unknown: fields that were passed over, with their place.
    """

    actions: tuple[str, ...]
    tiers: tuple[tuple[Plugin, ...], ...]
    action_arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


def read_conf(path: str | Path) -> SchedulerConf:
    """Read `volcano-scheduler.conf`, or the ConfigMap with it (`kubectl get configmap -o yaml`).

    Raises:
        GanglineError: one line with the file and the path of the field: an action or a plugin that Volcano does not
            have, a wrong value, drf with hierarchy beside proportion.
    """
    path = Path(path)
    unknown = Unknown()
    where = f"volcano conf {path}"
    contents = [content for content in load_yaml(path, "volcano conf") if content is not None]
    if len(contents) != 1:
        raise GanglineError(f"{where}: {len(contents)} documents, expected one")
    top = Fields(contents[0], where, "", unknown)
    if top.text("kind") == "ConfigMap":
        data = top.labels("data")
        keys = [key for key in data if key.endswith(".conf")]
        if len(keys) != 1:
            raise top.wrong("data", "one entry volcano-scheduler.conf")
        inner = f"{where} {keys[0]}"
        inside = [content for content in parse_yaml(data[keys[0]], inner) if content is not None]
        top = top.within(inside[0] if inside else {}, inner)
    conf = _conf(top)
    return SchedulerConf(
        actions=conf.actions,
        tiers=conf.tiers,
        action_arguments=conf.action_arguments,
        unknown=unknown.warn(str(path)),
    )


def _conf(top: Fields) -> SchedulerConf:
    if "tiers" not in top:
        raise top.wrong("tiers", "a list of tiers with plugins")
    actions = tuple(action.strip() for action in top.name("actions").split(",") if action.strip())
    for action in actions:
        _known(top, "actions", "action", action, ACTIONS)
    tiers = []
    for tier in top.each("tiers"):
        plugins = tuple(_plugin(entry) for entry in tier.each("plugins"))
        names = {plugin.name: plugin for plugin in plugins}
        if "proportion" in names and "drf" in names and names["drf"].is_on("hierarchy"):
            raise GanglineError(
                f"{tier.where}: {tier.path} has proportion beside drf with enableHierarchy, expected one of them"
            )
        tiers.append(plugins)
        tier.done()
    arguments = {}
    for entry in top.each("configurations"):
        name = entry.name()
        _known(entry, "name", "action", name, ACTIONS)
        arguments[name] = _arguments(entry)
        entry.done()
    top.ignore("metrics", "tracing")
    top.done()
    return SchedulerConf(actions=actions, tiers=tuple(tiers), action_arguments=arguments)


def _known(fields: Fields, key: str, what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise GanglineError(
            f"{fields.where}: {fields.at(key)} has the {what} {shown(name)}, expected one of {', '.join(known)}"
            f"{nearest(name, known)}"
        )


def _plugin(entry: Fields) -> Plugin:
    name = entry.name()
    _known(entry, "name", "plugin", name, PLUGINS)
    switches = {}
    for key in entry.keys():  # noqa: SIM118
        found = re.fullmatch(r"[eE]nabled?([A-Z]\w*)", key)
        if found and found[1] in SWITCHES:
            switches[SWITCHES[found[1]]] = entry.flag(key, True)
    plugin = Plugin(name=name, switches=switches, arguments=_arguments(entry))
    entry.ignore(*(f"enable{word}" for word in SWITCHES))  # so that a misspelt one has a nearest
    entry.done()
    return plugin


def _arguments(entry: Fields) -> dict[str, Any]:
    arguments = entry.sub("arguments")
    return {key: arguments.raw(key) for key in arguments.keys()}  # noqa: SIM118
