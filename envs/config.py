"""Configuration: frozen dataclasses, filled from YAML and keyword arguments, every key checked by name.

A *world preset* (`configs/env/<name>.yaml`) says everything about an environment: cluster, workload, what the agent
sees and may do, how it is paid, how time and episodes go. `load_world("philly64", **overrides)` reads one;
overrides are nested mappings or dotted keys (`{"reward.weights.neg_idle": 2}`).
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from gangline.envs.core.placement import Rule
from gangline.envs.core.preemption import VictimRule
from gangline.envs.errors import GanglineError, unknown_name

T = TypeVar("T")


@dataclass(frozen=True)
class NodesConfig:
    """A run of equal nodes."""

    count: int = 8
    gpus: int = 8
    gpu_type: str = "gpu"
    flavor: str = "default"
    speed: int = 1000  # thousandths
    cpus: int | None = None  # cores; None = the world does not count CPU
    memory_gib: int | None = None


@dataclass(frozen=True)
class ClusterConfig:
    """The machines, and how far apart they are."""

    nodes: tuple[NodesConfig, ...] = (NodesConfig(),)
    nodes_per_rack: int | None = None  # None = no topology
    racks_per_block: int | None = None
    locality: tuple[int, ...] = ()  # speed (thousandths) of jobs that span [one node, a rack, a block, more]
    capacity_scale: float = 1.0  # share of the nodes that are kept, to congest a trace
    mean_up_h: float | None = None  # node failures; None = none
    mean_down_h: float = 4.0


@dataclass(frozen=True)
class TenantsConfig:
    """Who shares the cluster. Names come from the workload; weights here, or equal."""

    weights: dict[str, float] | None = None  # by tenant; missing ones get `default_weight`
    default_weight: float = 1.0
    nominal_quota: str = "entitlement"  # entitlement | none
    queues: str | None = None  # Kueue manifests whose ClusterQueues are the tenants; from here come quotas and weights
    borrowing_limit: float | None = None  # share of the nominal quota; None = no limit
    lending_limit: float | None = None


@dataclass(frozen=True)
class RulesConfig:
    """Rules of the world: docs/model.md."""

    quota: str = "off"  # off | tracked | enforced
    gang: bool = True
    checkpoint_interval_min: float | None = 30.0  # None = jobs have no checkpoints
    checkpoint_cost_s: float = 0.0
    restart_cost_s: float = 60.0
    half_life_h: float | None = 168.0  # of tenants' usage; None = usage does not decay
    hang_timeout_min: float | None = 30.0
    start_latency_s: float = 0.0
    requeue_hold_s: float = 0.0
    reject_oversized: bool = True


@dataclass(frozen=True)
class WorkloadConfig:
    """The jobs. `name` is a trace format, `synthetic`, `listed`, or an instance of `workloads/toy.py`."""

    name: str = "synthetic"
    path: str | None = None  # of a trace; None = the generator that resembles it
    load: float | tuple[float, float] | None = 0.9  # offered load of an episode, measured; two numbers = drawn between
    thin: str = "jobs"  # jobs | burst
    window: str | tuple[str, str] | None = None  # train | validate | test, or two dates; None = the whole trace
    claims: str = "coarse"  # none | coarse | informative | exact | own
    oversized: str = "reject"  # jobs larger than the cluster: reject | cap | keep
    options: dict[str, Any] = field(default_factory=dict)  # of the loader or the generator


@dataclass(frozen=True)
class EpisodeConfig:
    """Where an episode begins and ends."""

    horizon_h: float | None = 168.0  # None = until every job has ended
    warm_h: float = 168.0  # jobs of the time before are run under FIFO first
    random_start: bool = True  # somewhere in the window, else at its beginning
    num_jobs: int | None = None  # generated workloads: this many jobs instead of a horizon's worth


@dataclass(frozen=True)
class ObservationConfig:
    """What the agent is shown: envs/observation.py."""

    form: str = "flat"  # flat | dict
    blocks: tuple[str, ...] = ("cluster", "tenants", "nodes", "queue", "running")
    own_blocks: tuple[str, ...] = ()  # dotted paths of blocks of your own package
    num_oldest: int = 16
    num_shortest: int = 4
    running_rows: int = 16
    most_node_rows: int = 32


@dataclass(frozen=True)
class ActionConfig:
    """What the agent may do: envs/action.py."""

    head: str = "slots"  # slots | multi_discrete
    placement_rules: tuple[str, ...] = ("pack",)
    victim_rules: tuple[str, ...] = ("least_lost",)
    may_admit: bool = False
    may_reserve: bool = False
    may_preempt: bool = False
    min_run_h: float = 2.0  # a job that has run for less is protected
    reclaim_within_share: bool = False  # room is made only for tenants that stay within their fair share by it
    reserve_h: float = 4.0
    max_commands_per_instant: int = 64


@dataclass(frozen=True)
class RewardConfig:
    """How the agent is paid: envs/reward.py."""

    weights: dict[str, float] = field(
        default_factory=lambda: {"neg_idle": 1.0, "neg_over_share": 1.0, "neg_waste": 1.0}
    )
    scale: float | None = None  # None = the discount rate (or 1 / horizon), so that returns are of order 1


@dataclass(frozen=True)
class MultiAgentConfig:
    """How tenants' agents meet: envs/multi_agent_env.py."""

    arbiter: str = "entitlement_deficit"  # entitlement_deficit | priority | round_robin
    mu: float = 0.5  # part of the team's mean in a tenant's reward; 1 = fully cooperative
    own_weights: dict[str, float] = field(  # one that is left out keeps its default; 0 switches it off
        default_factory=lambda: {"productive": 1.0, "neg_over_share": 2.0, "neg_deficit": 1.0, "neg_waste": 1.0}
    )


@dataclass(frozen=True)
class TimeConfig:
    """When the agent is asked, and how it discounts."""

    mode: str = "event"  # event | tick
    tick_s: float = 300.0
    commands_per_tick: int = 1
    beta_per_h: float = 0.125  # discount rate; 1 / beta = 8 hours
    skip_forced: bool = True  # pass over instants at which only `wait` is legal


@dataclass(frozen=True)
class WorldConfig:
    """Everything about an environment."""

    cluster: ClusterConfig = ClusterConfig()
    tenants: TenantsConfig = TenantsConfig()
    rules: RulesConfig = RulesConfig()
    workload: WorkloadConfig = WorkloadConfig()
    episode: EpisodeConfig = EpisodeConfig()
    observation: ObservationConfig = ObservationConfig()
    action: ActionConfig = ActionConfig()
    reward: RewardConfig = RewardConfig()
    time: TimeConfig = TimeConfig()
    multi_agent: MultiAgentConfig = MultiAgentConfig()


def preset_names() -> list[str]:
    """Names of the world presets that ship."""
    return sorted(p.stem for p in folder("env").glob("*.yaml"))


def scenario_names() -> list[str]:
    """Names of the scenarios that ship: the world of each is found by that name too."""
    return sorted(p.stem for p in folder("scenario").glob("*.yaml"))


def load_world(world: str | Mapping[str, Any] = "small", **overrides: Any) -> WorldConfig:
    """A world preset or a scenario's world by name (or a path to a YAML file, or a mapping) with overrides on top.

    `tenants.queues` of a file is looked for beside that file.

    Raises:
        GanglineError: unknown preset or key, or a value of the wrong kind, each by name.
    """
    if isinstance(world, Mapping):
        values = dict(world)
    else:
        path, key = _place_of(world)
        values = read_yaml(path)
        if key is not None:
            values = values.get(key) or {}
        values = beside(values, path)
    base = values.pop("world_preset", None)
    if base is not None:
        one_of("world_preset", base, preset_names())
        values = merged(read_yaml(folder("env") / f"{base}.yaml"), values)
    workload = values.pop("workload_preset", None)
    if workload is not None:
        values["workload"] = merged(read_yaml(folder("workload") / f"{workload}.yaml"), values.get("workload", {}))
    config = from_mapping(WorldConfig, merged(values, undotted(overrides)))
    check(config)
    return config


def _place_of(world: str) -> tuple[Path, str | None]:
    """File of a world, and the key in it that the world is under (None: the whole file)."""
    if str(world).endswith((".yaml", ".yml")):
        return Path(world), None
    if world in preset_names():
        return folder("env") / f"{world}.yaml", None
    if world in scenario_names():
        return folder("scenario") / f"{world}.yaml", "world"
    raise unknown_name("world", world, [*preset_names(), *scenario_names()])


def beside(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The values of a file with the file names in them made to stand beside it."""
    tenants = values.get("tenants")
    if not isinstance(tenants, Mapping) or not isinstance(tenants.get("queues"), str):
        return dict(values)
    return merged(values, {"tenants": {"queues": str(path.parent / tenants["queues"])}})


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file that holds a mapping.

    Raises:
        GanglineError: the file is missing, is not YAML, or holds something else.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GanglineError(f"configuration {path}: {error.strerror}, expected a YAML file") from None
    except yaml.YAMLError as error:
        raise GanglineError(f"configuration {path}: not YAML ({' '.join(str(error).split())})") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise GanglineError(f"configuration {path}: holds a {type(values).__name__}, expected a mapping")
    return values


def undotted(values: Mapping[str, Any]) -> dict[str, Any]:
    """`{"reward.scale": 1}` as `{"reward": {"scale": 1}}`."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        first, _, rest = str(key).partition(".")
        nested = undotted({rest: value}) if rest else value
        if isinstance(nested, Mapping) and isinstance(result.get(first), dict):
            result[first] = merged(result[first], nested)
        else:
            result[first] = nested
    return result


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, mapping by mapping."""
    result = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def from_mapping(kind: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """A dataclass from a mapping; unknown keys and values of the wrong kind are errors that name them."""
    if not isinstance(values, Mapping):
        raise GanglineError(f"{where or 'configuration'} is {values!r}, expected a mapping")
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    arguments = {}
    for key, value in values.items():
        if key not in fields:
            raise unknown_name(f"key in {where or 'the configuration'}", key, fields)
        arguments[str(key)] = _convert(hints[key], value, f"{where}.{key}" if where else str(key))
    return kind(**arguments)


def to_mapping(config: Any) -> dict[str, Any]:
    """A configuration as plain data, for files."""
    plain: dict[str, Any] = dataclasses.asdict(config)
    return plain


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        for option in arguments:
            if option is type(None):
                continue
            try:
                return _convert(option, value, where)
            except GanglineError:
                continue
        raise GanglineError(f"{where} is {value!r}, expected {_spelled(hint)}")
    if dataclasses.is_dataclass(hint):
        return from_mapping(typing.cast(type[Any], hint), value, where)
    if origin is tuple:
        if isinstance(value, str | bytes) or not isinstance(value, list | tuple):
            raise GanglineError(f"{where} is {value!r}, expected a list")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_convert(arguments[0], v, f"{where}[{i}]") for i, v in enumerate(value))
        if len(value) != len(arguments):
            raise GanglineError(f"{where} is {value!r}, expected {len(arguments)} entries")
        return tuple(_convert(a, v, f"{where}[{i}]") for i, (a, v) in enumerate(zip(arguments, value, strict=True)))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise GanglineError(f"{where} is {value!r}, expected a mapping")
        return {
            str(k): v if arguments[1] is Any else _convert(arguments[1], v, f"{where}.{k}") for k, v in value.items()
        }
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isnan(value):
            raise GanglineError(f"{where} is NaN, expected a number")
        return float(value)
    if hint is Any or (hint is not float and isinstance(value, hint) and not (hint is int and isinstance(value, bool))):
        return value
    raise GanglineError(f"{where} is {value!r}, expected {_spelled(hint)}")


def _spelled(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a name", bool: "true or false", type(None): "null"}
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_spelled(a) for a in arguments)
    return names.get(hint, "a list" if typing.get_origin(hint) is tuple else str(hint))


def folder(group: str) -> Path:
    """Folder of a configuration group, beside the package or installed with it."""
    import gangline.configs

    return Path(next(iter(gangline.configs.__path__))) / group


def check(config: WorldConfig) -> None:
    """Refuse values that no world could have.

    Raises:
        GanglineError: naming the first.
    """
    if not config.cluster.nodes:
        raise GanglineError("cluster.nodes is empty, expected at least one entry")
    for i, nodes in enumerate(config.cluster.nodes):
        _at_least(f"cluster.nodes[{i}].count", nodes.count, 1)
        _at_least(f"cluster.nodes[{i}].gpus", nodes.gpus, 0)
    if not 0 < config.cluster.capacity_scale <= 1:
        raise GanglineError(f"cluster.capacity_scale is {config.cluster.capacity_scale}, expected a share in (0, 1]")
    for name, weight in (config.tenants.weights or {}).items():
        if not (weight >= 0 and math.isfinite(weight)):
            raise GanglineError(f"tenants.weights.{name} is {weight}, expected a number of at least 0")
    one_of("tenants.nominal_quota", config.tenants.nominal_quota, ("entitlement", "none"))
    one_of("rules.quota", config.rules.quota, ("off", "tracked", "enforced"))
    for name in ("checkpoint_interval_min", "half_life_h", "hang_timeout_min"):
        value = getattr(config.rules, name)
        if value is not None and not value > 0:
            raise GanglineError(f"rules.{name} is {value}, expected a positive time, or null for none")
    for name in ("checkpoint_cost_s", "restart_cost_s", "start_latency_s", "requeue_hold_s"):
        _at_least(f"rules.{name}", getattr(config.rules, name), 0)
    one_of("observation.form", config.observation.form, ("flat", "dict"))
    _at_least("observation.num_oldest", config.observation.num_oldest, 1)
    one_of("action.head", config.action.head, ("slots", "multi_discrete"))
    for rule in config.action.placement_rules:
        one_of("placement rule", rule, [r.name.lower() for r in Rule])
    for rule in config.action.victim_rules:
        one_of("victim rule", rule, [r.name.lower() for r in VictimRule])
    if not config.action.placement_rules:
        raise GanglineError("action.placement_rules is empty, expected at least one rule")
    _at_least("action.max_commands_per_instant", config.action.max_commands_per_instant, 1)
    _at_least("action.min_run_h", config.action.min_run_h, 0)
    if not 0 <= config.multi_agent.mu <= 1:
        raise GanglineError(f"multi_agent.mu is {config.multi_agent.mu}, expected a share in [0, 1]")
    one_of("time.mode", config.time.mode, ("event", "tick"))
    if not config.time.tick_s > 0:
        raise GanglineError(f"time.tick_s is {config.time.tick_s}, expected a positive time")
    _at_least("time.commands_per_tick", config.time.commands_per_tick, 1)
    _at_least("time.beta_per_h", config.time.beta_per_h, 0)
    if config.episode.horizon_h is not None and not config.episode.horizon_h > 0:
        raise GanglineError(
            f"episode.horizon_h is {config.episode.horizon_h}, expected a positive time, or null for none"
        )
    _at_least("episode.warm_h", config.episode.warm_h, 0)


def one_of(what: str, value: object, known: typing.Iterable[str]) -> None:
    """Refuse a value that is not one of the known."""
    names = list(known)
    if value not in names:
        raise unknown_name(what, value, names)


def _at_least(what: str, value: float, least: float) -> None:
    if not (value >= least and math.isfinite(value)):
        raise GanglineError(f"{what} is {value}, expected a number of at least {least}")
