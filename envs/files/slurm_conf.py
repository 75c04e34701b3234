"""`slurm.conf` and `gres.conf`: settings, nodes, partitions.

    conf = slurm_conf.read("slurm.conf")
    conf.value("PriorityDecayHalfLife")   # 604800000, the default where the file is silent
    conf.parameters["bf_interval"]        # "30"
    conf.nodes, conf.partitions           # host ranges resolved, DEFAULT lines applied
    load_world("small", cluster={"nodes": conf.runs_of_nodes()})

Source: slurm.conf(5), gres.conf(5), Slurm's `parse_config.c`. Not read: `topology.conf`, `cgroup.conf`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gangline.envs.core.spec import NodeSpec
from gangline.envs.core.types import ONE_GPU
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.files import slurm_values
from gangline.envs.files.slurm_values import (
    MIB,
    finite_time_ms,
    hosts,
    seconds_ms,
    time_ms,
    tres_weights,
    yes_or_no,
)
from gangline.envs.files.text import (
    Expected,
    Unknown,
    count,
    lines_of,
    one_of,
    parsed,
    positive,
    read_text,
    shown,
    whole,
    word,
    words,
)

DAY_MS = 24 * 3600 * 1000
MAX_INCLUDES = 16
MEM_OR_LIMIT = ("unlimited", "infinite")
NO_TYPE = ""  # key of GPUs whose type is not said


def limit(text: str) -> int | None:
    """A whole number of at least 0, or None for UNLIMITED."""
    return None if text.strip().lower() in (*MEM_OR_LIMIT, "-1") else count(text)


def modes(text: str) -> tuple[str, ...]:
    """Preemption modes between commas, lower case."""
    return tuple(
        one_of("off", "cancel", "gang", "requeue", "suspend", "within", "priority")(mode) for mode in words(text)
    )


def over_subscribe(text: str) -> str:
    """NO, EXCLUSIVE, YES, FORCE; the last two with a number of jobs or without."""
    if not re.fullmatch(r"(NO|EXCLUSIVE|(YES|FORCE)(:\d{1,6})?)", text.strip().upper()):
        raise Expected("one of NO, EXCLUSIVE, YES, FORCE, FORCE:4")
    return text.strip().upper()


Parser = Callable[[str], Any]

# Settings that say how jobs are scheduled, with their parser and Slurm's default. Times in ms, None = unlimited.
SETTINGS: dict[str, tuple[Parser, Any]] = {
    "AccountingStorageEnforce": (words, ()),
    "AuthInfo": (words, ()),
    "ClusterName": (word, ""),
    "CompleteWait": (seconds_ms, 0),
    "DefMemPerCPU": (limit, 0),
    "DefMemPerGPU": (limit, 0),
    "DefMemPerNode": (limit, 0),
    "DefCpuPerGPU": (count, 0),
    "EnforcePartLimits": (one_of("ALL", "ANY", "NO", "YES"), "NO"),
    "FairShareDampeningFactor": (positive, 1),
    "GresTypes": (words, ()),
    "JobRequeue": (count, 1),
    "KillWait": (seconds_ms, 30_000),
    "MaxArraySize": (count, 1001),
    "MaxJobCount": (positive, 10_000),
    "MaxMemPerCPU": (limit, 0),
    "MaxMemPerNode": (limit, 0),
    "OverTimeLimit": (lambda text: time_ms(text), 0),
    "PreemptExemptTime": (time_ms, None),
    "PreemptMode": (modes, ("off",)),
    "PreemptParameters": (words, ()),
    "PreemptType": (one_of("preempt/none", "preempt/partition_prio", "preempt/qos"), "preempt/none"),
    "PriorityCalcPeriod": (finite_time_ms, 300_000),
    "PriorityDecayHalfLife": (finite_time_ms, 7 * DAY_MS),
    "PriorityFavorSmall": (yes_or_no, False),
    "PriorityFlags": (words, ()),
    "PriorityMaxAge": (finite_time_ms, 7 * DAY_MS),
    "PriorityParameters": (word, ""),
    "PrioritySiteFactorParameters": (word, ""),
    "PrioritySiteFactorPlugin": (word, ""),
    "PriorityType": (one_of("priority/basic", "priority/multifactor"), "priority/multifactor"),
    "PriorityUsageResetPeriod": (
        one_of("NONE", "NOW", "DAILY", "WEEKLY", "MONTHLY", "QUARTERLY", "YEARLY"),
        "NONE",
    ),
    "PriorityWeightAge": (count, 0),
    "PriorityWeightAssoc": (count, 0),
    "PriorityWeightFairshare": (count, 0),
    "PriorityWeightJobSize": (count, 0),
    "PriorityWeightPartition": (count, 0),
    "PriorityWeightQOS": (count, 0),
    "PriorityWeightTRES": (tres_weights, {}),
    "SchedulerParameters": (words, ()),
    "SchedulerTimeSlice": (seconds_ms, 30_000),
    "SchedulerType": (one_of("sched/backfill", "sched/builtin"), "sched/backfill"),
    "SelectType": (word, "select/cons_tres"),
    "SelectTypeParameters": (words, ()),
}

# SchedulerParameters and PreemptParameters: those with a number, those without, those that decide nothing here.
NUMBERED_PARAMETERS = (
    *("batch_sched_delay", "bf_interval", "bf_job_part_count_reserve", "bf_max_job_array_resv", "bf_max_job_assoc"),
    *("bf_max_job_part", "bf_max_job_start", "bf_max_job_test", "bf_max_job_user", "bf_max_job_user_part"),
    *("bf_max_time", "bf_min_age_reserve", "bf_min_prio_reserve", "bf_node_space_size", "bf_resolution", "bf_window"),
    *("bf_window_linear", "bf_yield_interval", "bf_yield_sleep", "build_queue_timeout", "default_queue_depth"),
    *("max_array_tasks", "max_depend_depth", "max_rpc_cnt", "max_sched_time", "max_script_size"),
    *("min_exempt_priority", "partition_job_depth", "preempt_reorder_count", "preempt_send_user_signal"),
    *("reorder_count", "salloc_wait_nodes", "sched_interval", "sched_max_job_start", "sched_min_interval"),
)
PLAIN_PARAMETERS = (
    *("allow_zero_lic", "assoc_limit_stop", "bf_allow_magnetic_slot", "bf_busy_nodes", "bf_continue"),
    *("bf_hetjob_immediate", "bf_hetjob_prio", "bf_ignore_newly_avail_nodes", "bf_licenses", "bf_one_resv_per_job"),
    *("bf_running_job_reserve", "bf_topopt_enable", "bf_topopt_iterations", "correspond_after_task_cnt", "defer"),
    *("defer_batch", "delay_boot", "disable_hetjob_steps", "disable_job_shrink", "enable_hetjob_steps"),
    *("enable_job_state_cache", "enable_user_top", "extra_constraints", "host_affinity", "Ignore_NUMA"),
    *("ignore_prefer_validation", "max_submit_line_size", "max_switch_wait", "no_backup_scheduling"),
    *("nohold_on_prolog_fail", "pack_serial_at_end", "permit_job_expansion", "preempt_strict_order"),
    *("preempt_youngest_first", "reduce_completing_frag", "requeue_setup_env_fail", "retry_interval"),
    *("sbatch_wait_nodes", "send_user_signal", "spec_cores_first", "step_retry_count", "step_retry_time"),
    *("strict_order", "time_min_as_soft_limit", "whole_hetjob", "whole_pack", "youngest_first"),
)

NODE_WORDS: dict[str, Parser] = {
    "Boards": positive,
    "CoresPerSocket": positive,
    "CPUs": positive,
    "Feature": words,
    "Features": words,
    "Gres": slurm_values.gres,
    "Procs": positive,
    "RealMemory": positive,
    "Sockets": positive,
    "SocketsPerBoard": positive,
    "State": word,
    "ThreadsPerCore": positive,
    "Weight": count,
}
NODE_IGNORED = (
    *("BcastAddr", "CoreSpecCount", "CpuBind", "CpuSpecList", "Extra", "InstanceID", "InstanceType", "MemSpecLimit"),
    *("NodeAddr", "NodeHostname", "Parameters", "Port", "Reason", "RestrictedCoresPerGPU", "TmpDisk", "Topology"),
    *("TRESWeights",),
)

PARTITION_WORDS: dict[str, Parser] = {
    "AllowAccounts": words,
    "AllowQos": words,
    "Default": yes_or_no,
    "DefaultTime": time_ms,
    "DenyAccounts": words,
    "DenyQos": words,
    "ExclusiveUser": yes_or_no,
    "GraceTime": seconds_ms,
    "LLN": yes_or_no,
    "MaxNodes": limit,
    "MaxTime": time_ms,
    "MinNodes": count,
    "Nodes": str,
    "OverSubscribe": over_subscribe,
    "PreemptMode": modes,
    "PriorityJobFactor": count,
    "PriorityTier": count,
    "QOS": word,
    "Shared": over_subscribe,
    "State": one_of("UP", "DOWN", "DRAIN", "INACTIVE"),
    "TRESBillingWeights": tres_weights,
}
PARTITION_IGNORED = (
    *("AllocNodes", "AllowGroups", "Alternate", "CpuBind", "DefCpuPerGPU", "DefMemPerCPU", "DefMemPerGPU"),
    *("DefMemPerNode", "DisableRootJobs", "ExclusiveTopo", "Hidden", "JobDefaults", "MaxCPUsPerNode"),
    *("MaxCPUsPerSocket", "MaxMemPerCPU", "MaxMemPerNode", "OverTimeLimit", "PowerDownOnIdle", "Priority", "ReqResv"),
    *("ResumeTimeout", "RootOnly", "SelectTypeParameters", "SuspendTime", "SuspendTimeout", "Topology"),
)

# Slurm knows these; they decide nothing about the order, the place or the end of a job here.
IGNORED = (
    *("AccountingStorageBackupHost", "AccountingStorageExternalHost", "AccountingStorageHost"),
    *("AccountingStorageParameters", "AccountingStoragePass", "AccountingStoragePort", "AccountingStorageTRES"),
    *("AccountingStorageType", "AccountingStorageUser", "AccountingStoreFlags", "AcctGatherEnergyType"),
    *("AcctGatherFilesystemType", "AcctGatherInterconnectType", "AcctGatherInfinibandType", "AcctGatherNodeFreq"),
    *("AcctGatherProfileType", "AllowSpecResourcesUsage", "AuthAltParameters", "AuthAltTypes", "AuthType"),
    *("BackupAddr", "BackupController", "BatchStartTimeout", "BcastExclude", "BcastParameters"),
    *("BurstBufferType", "CertgenParameters", "CertgenType", "CertmgrParameters", "CertmgrType", "CheckpointType"),
    *("CliFilterPlugins", "ClusterControllers", "CommunicationParameters", "ControlAddr", "ControlMachine"),
    *("CoreSpecPlugin", "CpuFreqDef", "CpuFreqGovernors", "CredType", "CryptoType", "DataParserParameters"),
    *("DebugFlags", "DependencyParameters", "DisableRootJobs", "EioTimeout", "Epilog", "EpilogMsgTime"),
    *("EpilogSlurmctld", "EpilogTimeout", "ExtSensorsFreq", "ExtSensorsType", "FastSchedule", "FederationParameters"),
    *("FirstJobId", "GetEnvTimeout", "GpuFreqDef", "GroupUpdateForce", "GroupUpdateTime", "HashPlugin"),
    *("HealthCheckInterval", "HealthCheckNodeState", "HealthCheckProgram", "HttpParserType", "InactiveLimit"),
    *("InteractiveStepOptions", "JobAcctGatherFrequency", "JobAcctGatherParams", "JobAcctGatherType"),
    *("JobCheckpointDir", "JobCompHost", "JobCompLoc", "JobCompParams", "JobCompPass", "JobCompPassScript"),
    *("JobCompPort", "JobCompType", "JobCompUser", "JobContainerType", "JobCredentialPrivateKey"),
    *("JobCredentialPublicCertificate", "JobFileAppend", "JobSubmitPlugins", "KeepAliveTime", "KillOnBadExit"),
    *("LaunchParameters", "LaunchType", "Licenses", "LogTimeFormat", "MailDomain", "MailProg", "MaxBatchRequeue"),
    *("MaxDBDMsgs", "MaxJobId", "MaxNodeCount", "MaxStepCount", "MaxTasksPerNode", "MCSParameters", "MCSPlugin"),
    *("MessageTimeout", "MetricsType", "MinJobAge", "MpiDefault", "MpiParams", "NamespaceType"),
    *("NodeFeaturesPlugins", "PlugStackConfig", "PluginDir", "PowerParameters", "PowerPlugin", "PreemptEligible"),
    *("PrEpParameters", "PrEpPlugins", "PrivateData", "ProctrackType", "Prolog", "PrologEpilogTimeout"),
    *("PrologFlags", "PrologSlurmctld", "PrologTimeout", "PropagatePrioProcess", "PropagateResourceLimits"),
    *("PropagateResourceLimitsExcept", "RebootProgram", "ReconfigFlags", "RequeueExit", "RequeueExitHold"),
    *("ResumeFailProgram", "ResumeProgram", "ResumeRate", "ResumeTimeout", "ResvEpilog", "ResvOverRun"),
    *("ResvProlog", "ReturnToService", "RoutePlugin", "SallocDefaultCommand", "SbcastParameters"),
    *("SchedulerLogFile", "SchedulerPort", "SchedulerRootFilter", "ScronParameters", "SlurmctldAddr"),
    *("SlurmctldDebug", "SlurmctldHost", "SlurmctldLogFile", "SlurmctldParameters", "SlurmctldPidFile"),
    *("SlurmctldPlugstack", "SlurmctldPort", "SlurmctldPrimaryOffProg", "SlurmctldPrimaryOnProg"),
    *("SlurmctldSyslogDebug", "SlurmctldTimeout", "SlurmdDebug", "SlurmdLogFile", "SlurmdParameters"),
    *("SlurmdPidFile", "SlurmdPort", "SlurmdSpoolDir", "SlurmdSyslogDebug", "SlurmdTimeout", "SlurmdUser"),
    *("SlurmSchedLogFile", "SlurmSchedLogLevel", "SlurmUser", "SrunEpilog", "SrunPortRange", "SrunProlog"),
    *("StateSaveLocation", "SuspendExcNodes", "SuspendExcParts", "SuspendExcStates", "SuspendProgram"),
    *("SuspendRate", "SuspendTime", "SuspendTimeout", "SwitchParameters", "SwitchType", "TaskEpilog"),
    *("TaskPlugin", "TaskPluginParam", "TaskProlog", "TCPTimeout", "TLSParameters", "TLSType", "TmpFS"),
    *("TopologyParam", "TopologyPlugin", "TrackWCKey", "TreeWidth", "UnkillableStepProgram"),
    *("UnkillableStepTimeout", "UrlParserType", "UsePAM", "VSizeFactor", "WaitTime", "X11Parameters"),
)
LINES = ("NodeName", "PartitionName", "NodeSet", "DownNodes", "FrontendName", "Include")

GRES_WORDS = (
    *("AutoDetect", "Cores", "CPUs", "Count", "File", "Flags", "Links", "MultipleFiles", "Name", "NodeName", "Type"),
)

_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*[-*+/]?=\s*(?:"([^"]*)"|(\S+))(?=\s|\Z)')


@dataclass(frozen=True, kw_only=True)
class SlurmNode:
    """One node of a `NodeName` line."""

    name: str
    cpus: int = 1
    sockets: int = 1
    cores_per_socket: int = 1
    threads_per_core: int = 1
    memory_mib: int = 1
    gpus: Mapping[str, int] = field(default_factory=dict)  # by type; NO_TYPE where none is said
    other_gres: Mapping[str, int] = field(default_factory=dict)
    weight: int = 1
    features: tuple[str, ...] = ()
    state: str = "UNKNOWN"  # as the file says; DOWN, DRAIN, FAIL, FUTURE keep jobs away

    @property
    def num_gpus(self) -> int:
        """GPUs of all types."""
        return sum(self.gpus.values())

    @property
    def gpu_type(self) -> str:
        """The type of its GPUs: `gpu` where it is not said, types joined by + where there are several."""
        return "+".join(kind or "gpu" for kind in self.gpus) if self.num_gpus else "cpu"

    @property
    def is_up(self) -> bool:
        """It may run jobs."""
        return not self.state.upper().startswith(("DOWN", "DRAIN", "FAIL", "FUTURE"))


@dataclass(frozen=True, kw_only=True)
class SlurmPartition:
    """One partition. Slurm's names; times in ms, None = unlimited."""

    name: str
    nodes: tuple[str, ...] = ()
    is_default: bool = False
    state: str = "UP"
    max_time_ms: int | None = None
    default_time_ms: int | None = None  # None = max_time_ms
    priority_tier: int = 1
    priority_job_factor: int = 1
    preempt_mode: tuple[str, ...] | None = None  # None = the cluster's
    grace_time_ms: int = 0
    over_subscribe: str = "NO"
    lln: bool = False
    exclusive_user: bool = False
    min_nodes: int = 0
    max_nodes: int | None = None
    qos: str | None = None
    allow_accounts: tuple[str, ...] | None = None  # None = all
    deny_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] | None = None
    deny_qos: tuple[str, ...] = ()
    billing_weights: Mapping[str, float] | None = None  # None = CPUs are billed
    given: Mapping[str, str] = field(default_factory=dict)  # Slurm's spelling -> text, DEFAULT lines included


@dataclass(frozen=True, kw_only=True)
class SlurmConf:
    """What a `slurm.conf` says.

    Attributes:
        path: the file.
        given: settings that the file gives and that matter here, Slurm's spelling -> text. The last one wins.
        nodes: in order of the file, which is the order of Slurm's node indices.
        partitions: in order of the file.
        ignored: settings of Slurm that decide nothing here.
        unknown: words that are none of Slurm's, with their place.
    """

    path: str
    given: Mapping[str, str]
    nodes: tuple[SlurmNode, ...]
    partitions: tuple[SlurmPartition, ...]
    ignored: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def value(self, setting: str) -> Any:
        """A setting of `SETTINGS`, parsed; Slurm's default where the file is silent."""
        if setting not in SETTINGS:
            raise unknown_name("setting of slurm.conf", setting, SETTINGS)
        parse, default = SETTINGS[setting]
        return parse(self.given[setting]) if setting in self.given else default

    @property
    def parameters(self) -> dict[str, str]:
        """SchedulerParameters and PreemptParameters by name; "" for a word without a value."""
        return dict(
            (name, value)
            for setting in ("SchedulerParameters", "PreemptParameters")
            for name, _, value in (item.partition("=") for item in self.value(setting))
        )

    @property
    def default_partition(self) -> str | None:
        """The partition of jobs that name none."""
        return next((p.name for p in reversed(self.partitions) if p.is_default), None)

    def node_specs(self) -> list[NodeSpec]:
        """The nodes for a `WorldSpec` with the resources gpu, cpu and memory; the flavor is the GPU type."""
        return [
            NodeSpec(
                name=node.name,
                amounts={"gpu": node.num_gpus * ONE_GPU, "cpu": node.cpus * 1000, "memory": node.memory_mib * MIB},
                flavor=node.gpu_type,
                gpu_type=node.gpu_type,
                state="up" if node.is_up else "down",
            )
            for node in self.nodes
        ]

    def runs_of_nodes(self, *, gpus_only: bool = True) -> list[dict[str, Any]]:
        """Equal neighbours among the nodes that are up, for `cluster.nodes` of a world; without GPUs on demand."""
        runs: list[dict[str, Any]] = []
        for node in self.nodes:
            if not node.is_up or (gpus_only and not node.num_gpus):
                continue
            kind = {"gpus": node.num_gpus, "gpu_type": node.gpu_type, "flavor": node.gpu_type}
            if runs and kind.items() <= runs[-1].items():
                runs[-1]["count"] += 1
            else:
                runs.append({"count": 1, **kind})
        return runs


@dataclass(frozen=True)
class _Line:
    """A logical line: pairs in order, Slurm's spelling of the first keyword not yet looked up."""

    where: str
    pairs: list[tuple[str, str]]


def read(path: str | Path, gres_path: str | Path | None = None) -> SlurmConf:
    """Read `slurm.conf`, with what it includes, and `gres.conf`.

    Args:
        path: of `slurm.conf`.
        gres_path: of `gres.conf`; None = the one beside `slurm.conf`, if there is one.

    Raises:
        GanglineError: one line with file and line: a value that makes no sense, a node that is there twice, a partition
            whose nodes do not exist, GPUs that the two files count differently.
    """
    path = Path(path)
    unknown = Unknown()
    given: dict[str, str] = {}
    places: dict[str, str] = {}
    ignored: dict[str, None] = {}
    node_lines: list[_Line] = []
    partition_lines: list[_Line] = []
    sets: dict[str, dict[str, str]] = {}
    down: list[_Line] = []
    spelling = {name.lower(): name for name in (*SETTINGS, *IGNORED, *LINES)}
    for line in _logical_lines(path, "slurm.conf", 0):
        first = spelling.get(line.pairs[0][0].lower())
        if first == "NodeName":
            node_lines.append(line)
        elif first == "PartitionName":
            partition_lines.append(line)
        elif first == "NodeSet":
            sets[line.pairs[0][1]] = {name.lower(): value for name, value in line.pairs[1:]}
        elif first == "DownNodes":
            down.append(line)
        elif first != "FrontendName":
            for key, value in line.pairs:
                name = spelling.get(key.lower())
                if name in SETTINGS:
                    parsed(line.where, name, value, SETTINGS[name][0])
                    given[name] = value
                    places[name] = line.where
                    if name in ("SchedulerParameters", "PreemptParameters"):
                        _check_parameters(line.where, value, unknown)
                elif name is None:
                    unknown.add(line.where, key, spelling.values())
                else:
                    ignored[name] = None
    _check_half_life(given, places)
    nodes = _down(_nodes(node_lines, unknown), down)
    if gres_path is None and (path.parent / "gres.conf").is_file():
        gres_path = path.parent / "gres.conf"
    if gres_path is not None:
        nodes = with_gres(nodes, Path(gres_path), unknown)
    partitions = _partitions(partition_lines, nodes, sets, unknown)
    return SlurmConf(
        path=str(path),
        given=given,
        nodes=tuple(nodes.values()),
        partitions=tuple(partitions.values()),
        ignored=tuple(ignored),
        unknown=unknown.warn(str(path)),
    )


def _check_half_life(given: Mapping[str, str], places: Mapping[str, str]) -> None:
    """Usage that never decays: Slurm refuses to start unless the file says when it is cleared, be it never."""
    half_life = given.get("PriorityDecayHalfLife")
    if half_life is not None and finite_time_ms(half_life) == 0 and "PriorityUsageResetPeriod" not in given:
        raise GanglineError(
            f"{places['PriorityDecayHalfLife']}: PriorityDecayHalfLife is {shown(half_life)}, so that usage never "
            "decays, expected a line PriorityUsageResetPeriod beside it (NONE, MONTHLY, ...), as Slurm does"
        )


# ---------------------------------------------------------------------------------------------------------------
# Lines
# ---------------------------------------------------------------------------------------------------------------


def _logical_lines(path: Path, what: str, depth: int) -> Iterator[_Line]:
    """Lines with their pairs: comments off, continuations joined, includes read in their place."""
    if depth > MAX_INCLUDES:
        raise GanglineError(f"{what} {path}: includes itself, expected at most {MAX_INCLUDES} files within each other")
    joined, start = "", 0
    for number, line in enumerate([*lines_of(read_text(path, what)), ""], 1):
        start = start or number
        joined += _without_comment(line)
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        where, text = f"{path} line {start}", joined.strip()
        joined, start = "", 0
        included = re.match(r"include\s+(\S+)\s*\Z", text, re.IGNORECASE)
        if included:
            yield from _logical_lines(path.parent / included[1].strip('"'), what, depth + 1)
        elif text:
            yield _Line(where, _pairs(text, where))


def _without_comment(line: str) -> str:
    """The line up to its first `#` that is not escaped."""
    cut = re.search(r"(?<!\\)#", line)
    return (line[: cut.start()] if cut else line).rstrip().replace("\\#", "#")


def _pairs(text: str, where: str) -> list[tuple[str, str]]:
    pairs, place = [], 0
    while place < len(text):
        found = _PAIR.match(text, place)
        if found is None:
            raise GanglineError(f"{where}: {shown(text[place:].strip())}, expected Keyword=value pairs")
        pairs.append((found[1], found[3] if found[2] is None else found[2]))
        place = found.end()
        while place < len(text) and text[place].isspace():
            place += 1
    return pairs


def _known(
    line: _Line, words_of: Mapping[str, Parser], ignored: tuple[str, ...], unknown: Unknown
) -> dict[str, tuple[str, str]]:
    """Pairs after the first of a line, in Slurm's spelling, each checked: keyword -> (text, where)."""
    spelling = {name.lower(): name for name in (*words_of, *ignored)}
    found = {}
    for key, value in line.pairs[1:]:
        name = spelling.get(key.lower())
        if name is None:
            unknown.add(line.where, key, spelling.values())
        elif name in words_of:
            parsed(line.where, name, value, words_of[name])
            found[name] = (value, line.where)
    return found


def _check_parameters(where: str, text: str, unknown: Unknown) -> None:
    for item in words(text):
        name, _, value = item.partition("=")
        if name in NUMBERED_PARAMETERS:
            parsed(where, name, value, whole)
        elif name not in PLAIN_PARAMETERS:
            unknown.add(where, name, (*NUMBERED_PARAMETERS, *PLAIN_PARAMETERS))


# ---------------------------------------------------------------------------------------------------------------
# Nodes
# ---------------------------------------------------------------------------------------------------------------


def _nodes(lines: list[_Line], unknown: Unknown) -> dict[str, SlurmNode]:
    default: dict[str, tuple[str, str]] = {}
    nodes: dict[str, SlurmNode] = {}
    for line in lines:
        own = _known(line, NODE_WORDS, NODE_IGNORED, unknown)
        if line.pairs[0][1].upper() == "DEFAULT":
            default.update(own)
            continue
        for name in parsed(line.where, "NodeName", line.pairs[0][1], hosts):
            if name in nodes:
                raise GanglineError(f"{line.where}: node {shown(name)} is there already, expected each node once")
            nodes[name] = _node(name, {k: text for k, (text, _) in {**default, **own}.items()})
    return nodes


def _node(name: str, given: Mapping[str, str]) -> SlurmNode:
    def number(keyword: str, default: int) -> int:
        return int(given.get(keyword, default))

    sockets = number("Sockets", number("Boards", 1) * number("SocketsPerBoard", 1))
    cores, threads = number("CoresPerSocket", 1), number("ThreadsPerCore", 1)
    gpus: dict[str, int] = {}
    others: dict[str, int] = {}
    for entry in slurm_values.gres(given.get("Gres", "")):
        if entry.name == "gpu":
            gpus[entry.type or NO_TYPE] = gpus.get(entry.type or NO_TYPE, 0) + entry.number
        else:
            others[entry.name] = others.get(entry.name, 0) + entry.number
    return SlurmNode(
        name=name,
        cpus=number("CPUs", number("Procs", sockets * cores * threads)),
        sockets=sockets,
        cores_per_socket=cores,
        threads_per_core=threads,
        memory_mib=number("RealMemory", 1),
        gpus=gpus,
        other_gres=others,
        weight=number("Weight", 1),
        features=words(given.get("Feature", given.get("Features", ""))),
        state=given.get("State", "UNKNOWN"),
    )


def _down(nodes: dict[str, SlurmNode], lines: list[_Line]) -> dict[str, SlurmNode]:
    """`DownNodes=n[1-2] State=DRAIN`."""
    for line in lines:
        given = {key.lower(): value for key, value in line.pairs}
        for name in parsed(line.where, "DownNodes", line.pairs[0][1], hosts):
            if name not in nodes:
                raise GanglineError(f"{line.where}: no node {shown(name)}, expected a name from a NodeName line")
            nodes[name] = replace(nodes[name], state=given.get("state", "DOWN"))
    return nodes


def with_gres(nodes: Mapping[str, SlurmNode], path: Path, unknown: Unknown) -> dict[str, SlurmNode]:
    """GPU types from `gres.conf`, where `slurm.conf` leaves them open; both must count the same GPUs.

    A line with `AutoDetect` and no count or device file says nothing about numbers.
    """
    found: dict[str, dict[str, int]] = {}
    place: dict[str, str] = {}
    spelling = {name.lower(): name for name in GRES_WORDS}
    default: dict[str, str] = {}
    for line in _logical_lines(path, "gres.conf", 0):
        given = {}
        for key, value in line.pairs:
            if key.lower() not in spelling:
                unknown.add(line.where, key, GRES_WORDS)
            else:
                given[spelling[key.lower()]] = value
        if given.get("Name", "").upper() == "DEFAULT":
            default = {key: value for key, value in given.items() if key != "Name"}
            continue
        given = {**default, **given}
        if given.get("Name", "").lower() != "gpu" or not ("Count" in given or "File" in given):
            continue
        if "Count" in given:
            number: int = parsed(line.where, "Count", given["Count"], slurm_values.large_count)
        else:
            number = len(parsed(line.where, "File", given["File"], hosts))
        names = parsed(line.where, "NodeName", given["NodeName"], hosts) if "NodeName" in given else tuple(nodes)
        for name in names:
            if name in nodes:  # one file may serve several clusters
                kind, own = given.get("Type", NO_TYPE), found.setdefault(name, {})
                own[kind] = own.get(kind, 0) + number
                place.setdefault(name, line.where)
    merged = dict(nodes)
    for name, gpus in found.items():
        node = nodes[name]
        if not node.num_gpus and any(gpus.values()):
            continue  # without Gres= in slurm.conf Slurm does not hand them out
        if sum(gpus.values()) != node.num_gpus:
            raise GanglineError(
                f"{place[name]}: node {shown(name)} has {sum(gpus.values())} GPUs here, expected the {node.num_gpus} "
                "of its NodeName line in slurm.conf"
            )
        if NO_TYPE in node.gpus:
            merged[name] = replace(node, gpus=gpus)
    return merged


# ---------------------------------------------------------------------------------------------------------------
# Partitions
# ---------------------------------------------------------------------------------------------------------------


def _partitions(
    lines: list[_Line], nodes: Mapping[str, SlurmNode], sets: Mapping[str, Mapping[str, str]], unknown: Unknown
) -> dict[str, SlurmPartition]:
    default: dict[str, tuple[str, str]] = {}
    partitions: dict[str, SlurmPartition] = {}
    for line in lines:
        own = _known(line, PARTITION_WORDS, PARTITION_IGNORED, unknown)
        if line.pairs[0][1].upper() == "DEFAULT":
            default.update(own)
            continue
        given = {**default, **own}
        names = _partition_nodes(given["Nodes"], nodes, sets) if "Nodes" in given else ()
        texts = {key: text for key, (text, _) in given.items()}
        for name in parsed(line.where, "PartitionName", line.pairs[0][1], hosts):
            partitions[name] = _partition(name, names, texts)
    return partitions


def _partition_nodes(
    given: tuple[str, str], nodes: Mapping[str, SlurmNode], sets: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    """Node names of `Nodes=ALL`, of host ranges and of node sets, in order of the nodes."""
    text, where = given
    if text.strip().upper() in ("ALL", ""):
        return tuple(nodes) if text.strip() else ()
    chosen = set()
    for name in parsed(where, "Nodes", text, hosts):
        if name in sets:
            feature = sets[name].get("feature")
            if feature is not None:
                chosen |= {node.name for node in nodes.values() if feature in node.features}
            if "nodes" in sets[name]:
                chosen |= set(parsed(where, "Nodes", sets[name]["nodes"], hosts))
        else:
            chosen.add(name)
    for name in sorted(chosen):
        if name not in nodes:
            raise GanglineError(f"{where}: no node {shown(name)}, expected a name from a NodeName or NodeSet line")
    return tuple(name for name in nodes if name in chosen)


def _partition(name: str, nodes: tuple[str, ...], given: Mapping[str, str]) -> SlurmPartition:
    def value(keyword: str, default: Any) -> Any:
        return PARTITION_WORDS[keyword](given[keyword]) if keyword in given else default

    def all_or(keyword: str) -> tuple[str, ...] | None:
        chosen = value(keyword, None)
        return None if chosen is None or [c.upper() for c in chosen] == ["ALL"] else chosen

    max_time = value("MaxTime", None)
    return SlurmPartition(
        name=name,
        nodes=nodes,
        is_default=value("Default", False),
        state=value("State", "UP"),
        max_time_ms=max_time,
        default_time_ms=value("DefaultTime", max_time),
        priority_tier=value("PriorityTier", 1),
        priority_job_factor=value("PriorityJobFactor", 1),
        preempt_mode=value("PreemptMode", None),
        grace_time_ms=value("GraceTime", 0),
        over_subscribe=value("OverSubscribe", value("Shared", "NO")),
        lln=value("LLN", False),
        exclusive_user=value("ExclusiveUser", False),
        min_nodes=value("MinNodes", 0),
        max_nodes=value("MaxNodes", None),
        qos=value("QOS", None),
        allow_accounts=all_or("AllowAccounts"),
        deny_accounts=value("DenyAccounts", ()),
        allow_qos=all_or("AllowQos"),
        deny_qos=value("DenyQos", ()),
        billing_weights=value("TRESBillingWeights", None),
        given=dict(given),
    )
