"""From a configuration to a world: the cluster as a `WorldSpec`, the workload as a source of episodes.

`build_world(config)` gives both. An `EpisodeSource` draws episodes; the same seed draws the same jobs, whatever the
scheduler does, and a test can fix them by (trace seed, start, load).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gangline.envs.config import WorldConfig
from gangline.envs.core.spec import (
    DomainSpec,
    NodeSpec,
    OptionsSpec,
    QueueSpec,
    QuotaSpec,
    TenantSpec,
    WorldSpec,
)
from gangline.envs.core.trace import JobTrace
from gangline.envs.core.types import NEVER, ONE_GPU
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.files import kueue
from gangline.envs.workloads import claims as claim_models
from gangline.envs.workloads import toy, traces, windows
from gangline.envs.workloads.base import fit, with_checkpoints
from gangline.envs.workloads.draws import ALL, sub_seed
from gangline.envs.workloads.listed import Listing
from gangline.envs.workloads.synthetic import Synthetic

HOUR_MS = 3_600_000
GIB = 1 << 30
MAX_SEED = 1 << 63


@dataclass(frozen=True)
class Episode:
    """The jobs of one episode, as rows of a trace, and its times on the world's clock.

    Attributes:
        trace: the table that holds them.
        first_row, end_row: rows that may arrive.
        thin_seed, thin_below: a row arrives if its hash is at most `thin_below` (`workloads/draws.py`).
        offset_ms: time of the trace at which the world's clock is 0.
        begin_ms: first decision; what arrives before is the warm-up.
        end_ms: horizon; NEVER = until every job has ended.
        load: measured offered load, or None where it was not asked for.
        seed: that draws it again.
    """

    trace: JobTrace
    first_row: int
    end_row: int
    thin_seed: int
    thin_below: int
    offset_ms: int
    begin_ms: int
    end_ms: int
    load: float | None
    seed: int

    def jobs(self) -> JobTrace:
        """The jobs that arrive, warm-up included, with times on the world's clock."""
        from gangline.envs.workloads.draws import job_hash

        rows = np.arange(self.first_row, self.end_row)
        kept = rows[job_hash(self.thin_seed, rows) <= np.uint64(self.thin_below)]
        part = self.trace.select(kept)
        moved = part.rows.copy()
        for column in ("submit_ms", "eligible_ms", "cancel_ms"):
            moved[column][moved[column] < NEVER] -= self.offset_ms
        return JobTrace.build(
            moved, part.pod_sets, part.tenants, part.users, part.resources, part.flavors, part.user_tenant, part.report
        )


class EpisodeSource(Protocol):
    """Draws episodes."""

    tenants: tuple[str, ...]
    epoch_ms: int
    most_jobs: int  # that one episode may hold

    def layout(self) -> JobTrace:
        """A trace with the groups and shapes that every episode's trace may have."""
        ...

    def draw(self, seed: int, options: Mapping[str, Any]) -> Episode:
        """The episode of a seed. Options: `trace` (seed of the jobs), `start_s`, `load`."""
        ...


def build_world(config: WorldConfig) -> tuple[WorldSpec, EpisodeSource]:
    """The cluster and the jobs of a configuration.

    Raises:
        GanglineError: a trace that cannot be read, tenants that the workload does not have, ...
    """
    spec = cluster_of(config)
    capacity = sum(node.amounts.get("gpu", 0) for node in spec.nodes)
    source = source_of(config, capacity)
    return with_tenants(spec, config, source.tenants, capacity), source


# ---------------------------------------------------------------------------------------------------------------
# The cluster
# ---------------------------------------------------------------------------------------------------------------


def cluster_of(config: WorldConfig) -> WorldSpec:
    """Nodes, topology and rules; no tenants yet."""
    cluster = config.cluster
    nodes: list[NodeSpec] = []
    for run in cluster.nodes:
        amounts = {"gpu": run.gpus * ONE_GPU}
        if run.cpus is not None:
            amounts["cpu"] = run.cpus * 1000
        if run.memory_gib is not None:
            amounts["memory"] = run.memory_gib * GIB
        for _ in range(max(1, round(run.count * cluster.capacity_scale))):
            name = f"node-{len(nodes):04d}"
            nodes.append(
                NodeSpec(name=name, amounts=amounts, flavor=run.flavor, gpu_type=run.gpu_type, speed=run.speed)
            )
    domains, nodes = _topology(config, nodes)
    rules = config.rules
    options = OptionsSpec(
        quota=rules.quota,  # type: ignore[arg-type]
        gang=rules.gang,
        reject_oversized=rules.reject_oversized,
        half_life_ms=_ms(rules.half_life_h, HOUR_MS),
        start_latency_ms=round(rules.start_latency_s * 1000),
        requeue_hold_ms=round(rules.requeue_hold_s * 1000),
        hang_timeout_ms=_ms(rules.hang_timeout_min, 60_000),
        mean_up_ms=None if cluster.mean_up_h is None else cluster.mean_up_h * HOUR_MS,
        mean_down_ms=cluster.mean_down_h * HOUR_MS,
        locality=cluster.locality,
        locality_topology="network",
    )
    return WorldSpec(
        resources=resources_of(config),
        flavors=flavors_of(config),
        nodes=nodes,
        domains=domains,
        options=options,
        gpu_resource="gpu",
    )


def resources_of(config: WorldConfig) -> tuple[str, ...]:
    """What the nodes offer and the world counts."""
    nodes = config.cluster.nodes
    counted = {"cpu": any(n.cpus is not None for n in nodes), "memory": any(n.memory_gib is not None for n in nodes)}
    return ("gpu", *(resource for resource, is_counted in counted.items() if is_counted))


def flavors_of(config: WorldConfig) -> tuple[str, ...]:
    """Flavors of the nodes, in the order in which they are named."""
    return tuple(dict.fromkeys(n.flavor for n in config.cluster.nodes))


def _ms(value: float | None, unit_ms: int) -> int | None:
    return None if value is None else max(1, round(value * unit_ms))


def _topology(config: WorldConfig, nodes: list[NodeSpec]) -> tuple[list[DomainSpec], list[NodeSpec]]:
    """Racks (tier 1), blocks (tier 2) and the whole (tier 3) of the `network` topology."""
    per_rack = config.cluster.nodes_per_rack
    if per_rack is None:
        return [], nodes
    num_racks = -(-len(nodes) // per_rack)
    per_block = config.cluster.racks_per_block or num_racks
    domains = [DomainSpec(name="all", topology="network", tier=3)]
    for b in range(-(-num_racks // per_block)):
        domains.append(DomainSpec(name=f"block-{b:03d}", topology="network", parent="all", tier=2))
    for r in range(num_racks):
        domains.append(
            DomainSpec(name=f"rack-{r:04d}", topology="network", parent=f"block-{r // per_block:03d}", tier=1)
        )
    placed = [replace(n, domains={"network": f"rack-{i // per_rack:04d}"}) for i, n in enumerate(nodes)]
    return domains, placed


def with_tenants(spec: WorldSpec, config: WorldConfig, tenants: tuple[str, ...], capacity: int) -> WorldSpec:
    """Tenants with their weights, and a queue each under one cohort; nominal quotas in exact milli-GPU."""
    settings = config.tenants
    queues = [] if settings.queues is None else queues_of_manifests(settings.queues, spec.flavors)
    nominal_gpus = {q.name: sum(c.nominal for c in q.quotas.values()) / ONE_GPU for q in queues if not q.is_cohort}
    if queues:
        for tenant in tenants:
            if tenant not in nominal_gpus:
                raise unknown_name("ClusterQueue of a tenant", tenant, nominal_gpus)
        tenants = tuple(dict.fromkeys([*tenants, *nominal_gpus]))  # the workload counts its own from 0
    by_name = settings.weights or nominal_gpus
    for tenant in by_name:
        if tenant not in tenants:
            raise unknown_name("tenant in tenants.weights (null = all alike)", tenant, tenants)
    weights = [_whole(by_name.get(t, settings.default_weight)) for t in tenants]
    total = sum(weights)
    if total <= 0:
        raise GanglineError("tenants.weights are all 0, expected at least one positive weight")
    if not queues and settings.nominal_quota == "entitlement":
        queues.append(QueueSpec(name="cohort", is_cohort=True))
        for tenant, weight in zip(tenants, weights, strict=True):
            nominal = capacity * weight // total
            quota = QuotaSpec(
                nominal=nominal,
                borrowing_limit=_share(settings.borrowing_limit, nominal, "borrowing_limit"),
                lending_limit=_share(settings.lending_limit, nominal, "lending_limit"),
            )
            queues.append(QueueSpec(name=tenant, parent="cohort", quotas={(f, "gpu"): quota for f in spec.flavors[:1]}))
    specs = [TenantSpec(name=t, weight=w) for t, w in zip(tenants, weights, strict=True)]
    return replace(spec, queues=queues, tenants=specs)


def queues_of_manifests(path: str, flavors: Sequence[str]) -> list[QueueSpec]:
    """ClusterQueues and cohorts of a file or folder of Kueue manifests; their GPUs are the world's `gpu`.

    Raises:
        GanglineError: no ClusterQueue, a flavor that no node has, or whatever is wrong with the manifests.
    """
    site = kueue.read(path)
    if not site.cluster_queues:
        raise GanglineError(f"tenants.queues {path}: no ClusterQueue, expected at least one")
    for owner in (*site.cluster_queues.values(), *site.cohorts.values()):
        for flavor, _ in owner.quotas():
            if flavor not in flavors:
                raise unknown_name(
                    f"flavor of {owner.name!r} in {path} (nodes of the world have theirs)", flavor, flavors
                )
    specs = site.queue_specs(lambda resource: ONE_GPU if resource.endswith("gpu") else 1)
    return [
        replace(q, quotas={(f, "gpu" if r.endswith("gpu") else r): quota for (f, r), quota in q.quotas.items()})
        for q in specs
    ]


def _whole(weight: float) -> int:
    """Weights are integers in the core: thousandths where they are not whole."""
    return int(weight) if float(weight).is_integer() else round(weight * 1000)


def _share(limit: float | None, nominal: int, what: str) -> int | None:
    if limit is None:
        return None
    if limit < 0:
        raise GanglineError(f"tenants.{what} is {limit}, expected a share of at least 0")
    return round(limit * nominal)


# ---------------------------------------------------------------------------------------------------------------
# The jobs
# ---------------------------------------------------------------------------------------------------------------


def source_of(config: WorldConfig, capacity: int) -> EpisodeSource:
    """The source of episodes that the workload settings name."""
    workload = config.workload
    if workload.name in toy_instances():
        return FixedSource(config, toy_instances()[workload.name]().trace)
    if workload.name == "listed":
        return ListedSource(config)
    if workload.name == "synthetic" or (workload.path is None and workload.name == "philly"):
        return GeneratedSource(config, capacity)
    if workload.name not in traces.formats():
        raise unknown_name("workload", workload.name, ["listed", "synthetic", *toy_instances(), *traces.formats()])
    if workload.path is None:
        raise GanglineError(f"workload {workload.name!r} needs a file, expected workload.path=FILE")
    return TraceSource(config, capacity)


def toy_instances() -> dict[str, Any]:
    """Hand-made instances by name."""
    return {
        name: function
        for name, function in vars(toy).items()
        if inspect.isfunction(function)
        and function.__module__ == toy.__name__
        and not name.startswith("_")
        and not inspect.signature(function).parameters
    }


def prepared(trace: JobTrace, config: WorldConfig) -> JobTrace:
    """The trace with the world's checkpoint rule and the modelled walltime claims."""
    rules = config.rules
    trace = with_checkpoints(
        trace,
        _ms(rules.checkpoint_interval_min, 60_000),
        cost_ms=round(rules.checkpoint_cost_s * 1000),
        restart_cost_ms=round(rules.restart_cost_s * 1000),
    )
    return claim_models.with_claims(trace, config.workload.claims)


class FixedSource:
    """Always the same jobs, from the first to the last."""

    def __init__(self, config: WorldConfig, trace: JobTrace) -> None:
        self.trace = prepared(trace, config)
        self.tenants = self.trace.tenants
        self.epoch_ms = self.trace.report.get("t0_epoch_ms", 0)
        self.most_jobs = self.trace.num_jobs
        horizon = config.episode.horizon_h
        self._end_ms = int(NEVER) if horizon is None else round(horizon * HOUR_MS)

    def layout(self) -> JobTrace:
        """The trace."""
        return self.trace

    def draw(self, seed: int, options: Mapping[str, Any]) -> Episode:
        """The whole trace, whatever the seed."""
        return Episode(self.trace, 0, self.trace.num_jobs, 0, ALL, 0, 0, self._end_ms, None, seed)


class ListedSource:
    """The jobs of a list, and new draws of its streams for each episode (`workloads/listed.py`)."""

    def __init__(self, config: WorldConfig) -> None:
        self._config = config
        self.listing = Listing(config.workload.options, resources_of(config), flavors_of(config))
        self.tenants = self.listing.tenants
        self.epoch_ms = 0
        self._horizon_ms = None if config.episode.horizon_h is None else round(config.episode.horizon_h * HOUR_MS)
        self._layout = self._sample(0)
        self.most_jobs = self._layout.num_jobs if not self.listing.has_streams else 2 * self._layout.num_jobs

    def _sample(self, seed: int) -> JobTrace:
        rng = np.random.default_rng(sub_seed(seed, "episode"))
        return prepared(self.listing.sample(rng, self._horizon_ms), self._config)

    def layout(self) -> JobTrace:
        """The jobs of seed 0: other seeds have the same groups and shapes."""
        return self._layout

    def draw(self, seed: int, options: Mapping[str, Any]) -> Episode:
        """The list, and the streams as the seed draws them."""
        check_options(options)
        jobs_seed = int(options.get("trace", seed))
        trace = self._sample(jobs_seed) if self.listing.has_streams else self._layout
        end_ms = int(NEVER) if self._horizon_ms is None else self._horizon_ms
        return Episode(trace, 0, trace.num_jobs, 0, ALL, 0, 0, end_ms, None, jobs_seed)


class TraceSource:
    """Windows of a real trace, thinned to a measured load."""

    def __init__(self, config: WorldConfig, capacity: int) -> None:
        workload = config.workload
        assert workload.path is not None
        trace = traces.load(workload.name, workload.path, **workload.options)
        self.trace = prepared(fit(trace, capacity, workload.oversized), config)
        self.tenants = self.trace.tenants
        self.epoch_ms = self.trace.report.get("t0_epoch_ms", 0)
        self._config = config
        self._capacity = capacity
        if workload.window is None:
            last = int(self.trace.rows["submit_ms"][-1]) + 1 if self.trace.num_jobs else 1
            self._start_ms, self._end_ms = 0, last
        else:
            self._start_ms, self._end_ms = windows.window(self.trace, workload.window)
        self.most_jobs = self._busiest_stretch()

    def _busiest_stretch(self) -> int:
        """Most jobs that an episode's stretch of the trace may hold, thinned or not as the settings say."""
        episode, load = self._config.episode, self._config.workload.load
        if episode.horizon_h is None or not self.trace.num_jobs:
            return self.trace.num_jobs
        length = round((episode.warm_h + episode.horizon_h) * HOUR_MS)
        submit = self.trace.rows["submit_ms"]
        most = int((np.searchsorted(submit, submit + length) - np.arange(len(submit))).max())
        if load is None:
            return most
        offered = windows.offered_load(self.trace, self._capacity, self._start_ms, self._end_ms, clip=True)
        return round(most * min(1.0, 1.5 * np.max(load) / max(offered, 1e-9)))

    def layout(self) -> JobTrace:
        """The trace."""
        return self.trace

    def draw(self, seed: int, options: Mapping[str, Any]) -> Episode:
        """A stretch of the window, thinned by the seed's draw of each job."""
        check_options(options)
        config = self._config
        jobs_seed = int(options.get("trace", seed))
        rng = np.random.default_rng(sub_seed(jobs_seed, "episode"))
        horizon = config.episode.horizon_h
        length = self._end_ms - self._start_ms if horizon is None else round(horizon * HOUR_MS)
        latest = max(self._start_ms, self._end_ms - length)
        start = int(rng.integers(self._start_ms, latest + 1)) if config.episode.random_start else self._start_ms
        if options.get("start_s") is not None:
            start = round(float(options["start_s"]) * 1000)
        target = options.get("load", drawn_load(config, rng))
        trace, below, used_seed, load = self.trace, ALL, jobs_seed, None
        if target is not None:
            thinning = windows.thin(
                self.trace,
                jobs_seed,
                float(target),
                self._capacity,
                start_ms=start,
                end_ms=start + length,
                mode=config.workload.thin,
                clip=True,
            )
            load = thinning.load
            if config.workload.thin == "burst":  # whole bursts: not a draw of the row, so the rest is left out here
                trace = self.trace.select(thinning.kept)
            else:
                below, used_seed = thinning.below, thinning.seed
        warm = round(config.episode.warm_h * HOUR_MS)
        first, end = np.searchsorted(trace.rows["submit_ms"], [start - warm, start + length])
        end_ms = int(NEVER) if horizon is None else warm + length
        return Episode(trace, int(first), int(end), used_seed, below, start - warm, warm, end_ms, load, jobs_seed)


class GeneratedSource:
    """Jobs from the generator, new ones for each episode."""

    def __init__(self, config: WorldConfig, capacity: int) -> None:
        workload = config.workload
        options = dict(workload.options)
        if workload.name == "philly":
            options = {"mix": "philly"}
        rules = config.rules
        known = {f for f in Synthetic.__dataclass_fields__}
        for option in options:
            if option not in known:
                raise unknown_name("option of the generator", option, known)
        self._config = config
        self._options = {
            "capacity_gpus": capacity // ONE_GPU,
            "claims": workload.claims,
            "checkpoint_interval_ms": _ms(rules.checkpoint_interval_min, 60_000),
            "checkpoint_cost_ms": round(rules.checkpoint_cost_s * 1000),
            "restart_cost_ms": round(rules.restart_cost_s * 1000),
            **options,
        }
        self._options.setdefault("max_gpus", capacity // ONE_GPU)
        sample = self._generator(0.9).sample(np.random.default_rng(0))
        self._layout = sample
        self.tenants = sample.tenants
        self.epoch_ms = 0
        self.most_jobs = 2 * sample.num_jobs
        if config.episode.horizon_h is None and config.episode.num_jobs is None:
            raise GanglineError(
                "a generated workload needs episode.horizon_h or episode.num_jobs, expected one of them"
            )

    def layout(self) -> JobTrace:
        """A sample: every trace of the generator has its groups and shapes."""
        return self._layout

    def _generator(self, load: float) -> Synthetic:
        episode = self._config.episode
        size: dict[str, Any] = {"num_jobs": episode.num_jobs}
        if episode.num_jobs is None:
            size = {"horizon_ms": round((episode.warm_h + (episode.horizon_h or 24.0)) * HOUR_MS)}
        return Synthetic(load=load, **size, **self._options)

    def draw(self, seed: int, options: Mapping[str, Any]) -> Episode:
        """Fresh jobs at the load, the warm-up's included."""
        check_options(options)
        config = self._config
        jobs_seed = int(options.get("trace", seed))
        rng = np.random.default_rng(sub_seed(jobs_seed, "episode"))
        load = float(options.get("load", drawn_load(config, rng)) or 0.9)
        trace = self._generator(load).sample(rng)
        episode = config.episode
        warm = 0 if episode.num_jobs is not None else round(episode.warm_h * HOUR_MS)
        end_ms = int(NEVER) if episode.horizon_h is None else warm + round(episode.horizon_h * HOUR_MS)
        measured = trace.report["offered_load_milli"] / 1000
        return Episode(trace, 0, trace.num_jobs, 0, ALL, 0, warm, end_ms, measured, jobs_seed)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse reset options that no episode source knows."""
    known = ("trace", "start_s", "load")
    for option in options:
        if option not in known:
            raise unknown_name("reset option", option, known)


def drawn_load(config: WorldConfig, rng: np.random.Generator) -> float | None:
    """The target load of an episode: fixed, drawn from a range, or none."""
    load = config.workload.load
    if isinstance(load, tuple):
        return float(rng.uniform(*load))
    return load
