"""Generated jobs: tenants that submit batches, fitted to Microsoft Philly.

A batch is what one person submits at once: one size, one duration mode (a quick run, or the long one), many jobs a few
seconds apart. Batches arrive as a Poisson process with a weekly profile. That is far nearer to real arrivals than
independent jobs: in Philly 72 % of the gaps within a tenant are at most a minute.

Where the numbers come from:

    PROFILES   Philly (siasosp23/artifacts philly.csv), rows before 2017-11-13 only, so that the weeks policies are
               judged on are unseen: sizes, two-lognormal run times by tenant and size (EM on ln duration, then the long
               one widened or narrowed by up to a third towards the mean; one lognormal under 20 jobs, sizes under 10
               jobs left out), batch sizes (split at gaps over 60 s; discrete Pareto).
    entitlements  nodes of HeliosArtifact philly_vc.csv.
    HOURS, WEEKDAYS  Helios Venus, 125,214 jobs: a clean office-hours profile (Philly's own is weak).
    FRACTIONS  Alibaba openb (FGD, ATC 2023): the commonest GPU shares and their numbers of pods.

Hidden outcomes are off by default: every job completes. Their rates are options because no two clusters agree
(Philly: .60 complete, .31 fail, .09 cancelled; nobody publishes hangs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import erf, exp, log, sqrt

import numpy as np

from gangline.envs.core.spec import DEFAULT_CHECKPOINT_INTERVAL_MS, HOUR_MS
from gangline.envs.core.types import NEVER, ONE_GPU, Outcome
from gangline.envs.errors import GanglineError
from gangline.envs.workloads.base import JobTrace, chosen, gang_rows
from gangline.envs.workloads.claims import INFORMATIVE_FACTOR, MODELS, round_up

MIN_RUN_MS = 10_000
MONDAY_MS = 4 * 24 * HOUR_MS  # the first Monday of Unix time: generated weeks begin there
HOURS_PER_WEEK = 168
GAP_IN_BATCH_MS = 5_000  # mean of an exponential
MULTI_GPU_BATCHES = (0.24, 1.6)  # of batches of more than one GPU per job: share with several jobs, Pareto alpha
MAX_MULTI_GPU_BATCH = 32
MAX_BATCH = 500

# fmt: off
HOURS = (
    .90, .66, .60, .38, .27, .21, .19, .22, .37, .80, 1.29, 1.47,
    1.16, 1.30, 1.56, 1.66, 1.73, 1.73, 1.28, 1.31, 1.34, 1.36, 1.15, 1.04,
)
# fmt: on
WEEKDAYS = (1.02, 1.10, 1.27, 1.20, 0.95, 0.68, 0.77)  # Monday first
FRACTIONS = {220: 110, 230: 140, 320: 328, 460: 128, 470: 750, 650: 253, 810: 1078}  # milli-GPU: openb pods


@dataclass(frozen=True)
class SizeProfile:
    """Jobs of one size of one tenant: how common, and two lognormals of the run time."""

    gpus: int
    share: float  # of the tenant's jobs
    quick_share: float  # of these jobs, the first lognormal
    quick_s: float  # median, seconds
    quick_sd: float  # of ln
    long_s: float
    long_sd: float


@dataclass(frozen=True)
class TenantProfile:
    """One tenant.

    Attributes:
        name: of the tenant.
        entitlement: weight (Philly: 8-GPU nodes).
        demand: share of GPU time, relative to the other tenants.
        multi: share of its batches of single-GPU jobs that have more than one job.
        alpha: Pareto exponent of those batches' sizes; smaller is burstier.
        sizes: what it runs.
    """

    name: str
    entitlement: int
    demand: float
    multi: float
    alpha: float
    sizes: tuple[SizeProfile, ...]


def _tenant(
    name: str, entitlement: int, demand: float, multi: float, alpha: float, *sizes: tuple[float, ...]
) -> TenantProfile:
    return TenantProfile(name, entitlement, demand, multi, alpha, tuple(SizeProfile(int(s[0]), *s[1:]) for s in sizes))


# fmt: off
PROFILES = (
    # name, entitlement, demand, multi, alpha, then by size:
    # gpus, share of jobs, quick share, quick median s, sd of ln, long median s, sd of ln
    _tenant("ee9e8c", 64, 0.248, 0.155, 1.75,
        (1, 0.3562, 0.11, 106, 0.59, 43645, 1.07),
        (2, 0.0501, 0.83, 44737, 0.56, 121525, 0.15),
        (4, 0.2340, 0.00, 50, 0.20, 30532, 1.11),
        (8, 0.3038, 0.13, 1447, 3.26, 221230, 0.97),
        (16, 0.0559, 0.21, 51, 0.46, 88698, 0.79),
    ),
    _tenant("7f04ca", 32, 0.200, 0.234, 1.26,
        (1, 0.2353, 0.62, 3436, 1.85, 267303, 0.88),
        (4, 0.5692, 0.49, 605, 1.36, 82791, 0.78),
        (8, 0.1834, 0.21, 1144, 1.23, 372825, 1.44),
    ),
    _tenant("b436b2", 64, 0.132, 0.468, 0.36,
        (1, 0.9839, 0.98, 1298, 0.44, 12050, 1.24),
        (4, 0.0076, 0.32, 25732, 0.37, 460236, 0.89),
        (8, 0.0051, 0.30, 1287, 1.15, 328073, 1.21),
        (16, 0.0032, 0.35, 155, 0.69, 614691, 0.59),
    ),
    _tenant("6214e9", 64, 0.092, 0.427, 0.62,
        (1, 0.9919, 0.95, 1650, 0.90, 30000, 1.10),  # by hand: quantiles .5 .9 .99 and mean, not the 54 s spike
        (4, 0.0035, 0.24, 1198, 0.24, 23040, 2.06),
        (8, 0.0045, 0.41, 116, 0.69, 11018, 1.18),
    ),
    _tenant("6c71a0", 32, 0.083, 0.363, 0.80,
        (1, 0.9237, 0.38, 1032, 0.40, 2418, 2.24),
        (2, 0.0042, 0.65, 152, 0.28, 497, 1.56),
        (4, 0.0379, 0.76, 156, 0.89, 4376, 1.95),
        (8, 0.0339, 0.52, 316, 0.70, 40098, 1.39),
    ),
    _tenant("2869ce", 16, 0.080, 0.043, 1.30,
        (1, 0.1199, 0.36, 4200, 2.17, 10131, 0.15),
        (8, 0.7491, 0.56, 3397, 2.06, 200937, 0.27),
        (32, 0.0936, 0.11, 25893, 1.86, 56313, 0.15),
    ),
    _tenant("0e4a51", 32, 0.092, 0.944, 0.36,
        (1, 0.7739, 0.72, 191, 0.20, 68646, 3.11),
        (2, 0.1337, 0.94, 172022, 0.75, 1183793, 0.54),
        (4, 0.0923, 0.83, 98498, 0.72, 748069, 0.98),
    ),
    _tenant("103959", 8, 0.037, 0.454, 3.26,
        (1, 0.8132, 0.73, 264, 0.62, 21824, 0.57),
        (2, 0.0172, 1.00, 156523, 1.03, 156523, 1.03),
        (4, 0.1695, 0.36, 10998, 1.43, 144327, 0.43),
    ),
    _tenant("11cb48", 16, 0.019, 0.044, 1.58,
        (1, 0.8988, 0.77, 70, 0.20, 937, 2.29),
        (2, 0.0962, 0.85, 16, 0.32, 41, 2.56),
        (4, 0.0032, 0.30, 5366, 0.79, 223818, 1.20),
        (16, 0.0014, 1.00, 2667, 1.72, 2667, 1.72),
    ),
    _tenant("e13805", 16, 0.008, 0.047, 2.81,
        (1, 0.5897, 0.56, 3440, 1.75, 123297, 0.93),
        (4, 0.2735, 0.20, 488, 1.00, 16986, 0.61),
        (8, 0.0513, 1.00, 2156, 2.85, 2156, 2.85),
        (16, 0.0769, 1.00, 514, 0.72, 514, 0.72),
    ),
    _tenant("ed69ec", 8, 0.011, 0.425, 0.85,
        (1, 1.0000, 0.70, 1724, 1.31, 75221, 0.36),
    ),
)
# fmt: on


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """A generator of jobs for a cluster of a given size and load.

    Attributes:
        capacity_gpus: GPUs of the world the jobs are meant for.
        load: offered load aimed at: expected GPU time submitted over `capacity x horizon`. Run times are heavy-tailed
            (the top 1 % of jobs hold two thirds of the GPU time), so a single trace may be far off: the report says
            what it came to. With `exact_load` the horizon is stretched so that each trace has this load.
        num_jobs: jobs of a trace; the horizon follows from the load.
        horizon_ms: or the length of a trace; the number of jobs follows, and varies.
        num_tenants: with mix `drawn`.
        mix: `drawn` makes tenants out of `PROFILES` in an order drawn by `mix_seed`, with entitlements 64, 64, 64, 32,
            ... (Philly's nodes) and demands of .3 to 2 times the entitlement; `philly` is the eleven tenants as fitted.
        mix_seed: another number, other tenants: hold some out for testing.
        profiles: tenants of your own, instead of a mix.
        max_gpus: larger jobs are left out of the mix; None = half the capacity, at least 1.
        gpus_per_pod: GPUs of a node.
        max_run_ms: run times are drawn again until they are between 10 s and this; medians beyond it are moved to it.
        max_batch: most jobs of a batch; None = 500, and at most a tenth of `num_jobs`, so that no burst is the episode.
        fractional: share of the single-GPU jobs that ask for a part of a GPU (`FRACTIONS`).
        fail: probability that a job fails, at a Beta(.5, 1) part of its work: most fail early (Acme, NSDI 2024).
        cancel: probability that its user cancels it, a uniform part of its work time after submission, waiting or not.
        hang: probability that a job of more than an hour hangs, at a uniform part of its work.
        claims: walltime claims, a key of `claims.MODELS`. `coarse` takes percentiles of the model, not of the sample.
        phase_ms: time of the week (from Monday 00:00) at which a trace begins; None = a random hour.
        exact_load: see `load`; needs `num_jobs`.
        checkpoint_interval_ms: of progress time; None = never.
        checkpoint_cost_ms, restart_cost_ms: of each job.
    """

    capacity_gpus: int = 64
    load: float = 0.9
    num_jobs: int | None = None
    horizon_ms: int | None = None
    num_tenants: int = 4
    mix: str = "drawn"
    mix_seed: int = 0
    profiles: tuple[TenantProfile, ...] | None = None
    max_gpus: int | None = None
    gpus_per_pod: int = 8
    max_run_ms: int = 14 * 24 * HOUR_MS
    max_batch: int | None = None
    fractional: float = 0.0
    fail: float = 0.0
    cancel: float = 0.0
    hang: float = 0.0
    claims: str = "none"
    phase_ms: int | None = None
    exact_load: bool = False
    checkpoint_interval_ms: int | None = DEFAULT_CHECKPOINT_INTERVAL_MS
    checkpoint_cost_ms: int = 0
    restart_cost_ms: int = 0

    def __post_init__(self) -> None:
        chosen("mix", self.mix, ("drawn", "philly"))
        chosen("claims", self.claims, tuple(MODELS))
        if (self.num_jobs is None) == (self.horizon_ms is None):
            raise GanglineError(
                f"generated workload: num_jobs {self.num_jobs}, horizon_ms {self.horizon_ms}; expected one of the two"
            )
        if self.exact_load and self.num_jobs is None:
            raise GanglineError("generated workload: exact_load stretches the horizon, expected num_jobs with it")
        for name, value, least in (
            ("capacity_gpus", self.capacity_gpus, 1),
            ("num_jobs", 1 if self.num_jobs is None else self.num_jobs, 1),
            ("horizon_ms", 1 if self.horizon_ms is None else self.horizon_ms, 1),
            ("num_tenants", self.num_tenants, 1),
            ("max_run_ms", self.max_run_ms, 2 * MIN_RUN_MS),
            ("max_batch", 1 if self.max_batch is None else self.max_batch, 1),
            ("phase_ms", self.phase_ms or 0, 0),
        ):
            if value < least:
                raise GanglineError(f"generated workload: {name} is {value}, expected >= {least}")
        if not self.load > 0:
            raise GanglineError(f"generated workload: load is {self.load}, expected > 0")
        for name in ("fractional", "fail", "cancel", "hang"):
            if not 0 <= getattr(self, name) <= 1:
                raise GanglineError(f"generated workload: {name} is {getattr(self, name)}, expected 0 to 1")
        if self.fail + self.cancel + self.hang > 1:
            raise GanglineError("generated workload: fail + cancel + hang is more than 1, expected at most 1")

    @cached_property
    def tenant_profiles(self) -> tuple[TenantProfile, ...]:
        """The tenants, in order of their index."""
        if self.profiles is not None:
            return self.profiles
        if self.mix == "philly":
            return PROFILES
        rng = np.random.default_rng(self.mix_seed)
        order = np.concatenate([rng.permutation(len(PROFILES)) for _ in range(-(-self.num_tenants // len(PROFILES)))])
        ratio = rng.uniform(0.3, 2.0, self.num_tenants)
        entitlements = sorted((p.entitlement for p in PROFILES), reverse=True)
        tenants = []
        for k in range(self.num_tenants):
            like = PROFILES[order[k]]
            entitlement = entitlements[k % len(entitlements)]
            tenants.append(
                TenantProfile(f"team{k}", entitlement, entitlement * ratio[k], like.multi, like.alpha, like.sizes)
            )
        return tuple(tenants)

    @property
    def entitlements(self) -> tuple[int, ...]:
        """(num_tenants,) weights."""
        return tuple(p.entitlement for p in self.tenant_profiles)

    @cached_property
    def cells(self) -> Cells:
        """The mix as arrays, one entry per (tenant, size). Generators that differ in their load share them."""
        return _cells(replace(self, load=1.0))

    @property
    def expected_gpu_time(self) -> float:
        """Expected milli-GPU x ms of a job, outcomes counted (a failure costs two thirds of its job, a cancel half)."""
        lost = self.fail * 2 / 3 + self.cancel / 2
        return self.cells.gpu_time_of_batch / self.cells.jobs_of_batch * (1 - lost)

    def sample(self, rng: np.random.Generator) -> JobTrace:
        """Draw a trace. Report: `num_batches`, `horizon_ms`, `offered_load_milli` (measured), `t0_epoch_ms`."""
        cells = self.cells
        phase_ms = int(rng.integers(HOURS_PER_WEEK)) * HOUR_MS if self.phase_ms is None else self.phase_ms
        cell, is_long, size, start = self._draw_batches(rng)
        num_batches, num_jobs = len(size), int(size.sum())

        batch = np.repeat(np.arange(num_batches), size)
        job_cell = cell[batch]
        work_ms = _draw_work(rng, cells, job_cell, is_long[batch].astype(np.int64), self.max_run_ms)
        rows = _take(cells.template, job_cell)
        rows["work_ms"] = work_ms
        total = _draw_outcomes(rng, rows, self, cells.gpus[job_cell])

        if self.horizon_ms is not None:
            horizon_ms = self.horizon_ms
        else:
            gpu_time = total if self.exact_load else num_jobs * self.expected_gpu_time
            horizon_ms = max(1, round(gpu_time / (self.capacity_gpus * ONE_GPU * self.load)))
        gap = np.cumsum(rng.exponential(GAP_IN_BATCH_MS, num_jobs))
        since_first = gap - gap[np.cumsum(size) - size][batch] if num_jobs else gap
        submit_ms = (_batch_times(start, phase_ms, horizon_ms)[batch] + since_first).astype(np.int64)
        np.minimum(submit_ms, horizon_ms - 1, out=submit_ms)

        order = np.argsort(submit_ms, kind="stable")
        rows = _take(rows, order)
        submit_ms = submit_ms[order]
        rows["submit_ms"] = rows["eligible_ms"] = submit_ms
        if self.cancel:
            rows["cancel_ms"] += np.where(rows["cancel_ms"] < NEVER, submit_ms, 0)
        rows["source_row"] = rows["name_rank"] = rows["uid_rank"] = np.arange(num_jobs)
        if self.claims != "none":
            rows["claim_ms"] = self._claims(rng, rows["work_ms"], job_cell[order])
        _number(rows, len(cells.template))
        rows.setflags(write=False)
        report = {
            "rows_kept": num_jobs,
            "num_batches": num_batches,
            "horizon_ms": horizon_ms,
            "offered_load_milli": round(total / (self.capacity_gpus * horizon_ms)),
            "t0_epoch_ms": MONDAY_MS + phase_ms,
            "dates_are_made_up": 1,
        }
        return JobTrace(rows, cells.pod_sets, cells.tenant_names, report=report)

    def _draw_batches(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Per batch: cell, whether it is a long one, number of jobs, and a uniform draw for its time."""
        cells = self.cells
        if self.num_jobs is not None:
            num = self.num_jobs  # enough, as each has at least one job
        else:
            assert self.horizon_ms is not None
            gpu_time = self.capacity_gpus * ONE_GPU * self.load * self.horizon_ms
            num = int(rng.poisson(gpu_time / self.expected_gpu_time / cells.jobs_of_batch))
        u = rng.random((4, num))
        cell = np.minimum(np.searchsorted(cells.cumulative, u[0], side="right"), len(cells.multi) - 1)
        multi = cells.multi[cell]
        is_multi = u[1] < multi
        size = np.ones(num, np.int64)
        v = (1 - u[1] / np.maximum(multi, 1e-9))[is_multi]  # uniform in (0, 1]
        several = np.floor(1.5 * v ** cells.minus_one_over_alpha[cell[is_multi]] + 0.5)
        size[is_multi] = np.minimum(several, cells.max_batch[cell[is_multi]])
        if self.num_jobs is not None:
            sum_to = np.cumsum(size)
            last = int(np.searchsorted(sum_to, self.num_jobs))
            size = size[: last + 1]
            size[last] -= sum_to[last] - self.num_jobs
            cell, u = cell[: last + 1], u[:, : last + 1]
        return cell, u[2] >= cells.quick_share[cell], size, u[3]

    def _claims(self, rng: np.random.Generator, work_ms: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """(num_jobs,) int64: claims of the model asked for."""
        if self.claims == "exact":
            return work_ms
        if self.claims == "coarse":
            return np.maximum(self.cells.coarse_claim_ms[cell], work_ms)
        low, high = INFORMATIVE_FACTOR
        return np.maximum(round_up(work_ms * rng.uniform(low, high, len(work_ms))), work_ms)


@dataclass(frozen=True)
class Cells:
    """What a generator needs to know of each (tenant, size), as arrays of (num_cells,)."""

    tenant_names: tuple[str, ...]
    gpus: np.ndarray  # int64, milli-GPU
    quick_share: np.ndarray
    mu: np.ndarray  # (2, num_cells) ln of the median, ms: quick, long
    sd: np.ndarray  # (2, num_cells)
    multi: np.ndarray  # share of batches with several jobs
    minus_one_over_alpha: np.ndarray
    max_batch: np.ndarray
    cumulative: np.ndarray  # of the batches' probabilities
    coarse_claim_ms: np.ndarray
    template: np.ndarray  # (num_cells,) JOB_ROW: all that a job takes from its cell
    pod_sets: np.ndarray
    jobs_of_batch: float
    gpu_time_of_batch: float  # expected, milli-GPU x ms


@lru_cache(maxsize=64)
def _cells(config: Synthetic) -> Cells:
    max_gpus = max(1, config.capacity_gpus // 2) if config.max_gpus is None else config.max_gpus
    tenants = config.tenant_profiles
    entries: list[tuple[int, int, float, SizeProfile]] = []  # tenant, milli-GPU, share of the tenant's jobs, run times
    for k, tenant in enumerate(tenants):
        sizes = [s for s in tenant.sizes if s.gpus <= max_gpus]
        if not sizes:
            raise GanglineError(
                f"generated workload: tenant {tenant.name} has no jobs of at most {max_gpus} GPUs; raise max_gpus"
            )
        whole = sum(s.share for s in sizes)
        for s in sizes:
            parts = {s.gpus * ONE_GPU: 1.0}
            if s.gpus == 1 and config.fractional:
                of_all = config.fractional / sum(FRACTIONS.values())
                parts = {ONE_GPU: 1 - config.fractional, **{f: n * of_all for f, n in FRACTIONS.items()}}
            entries += [(k, gpus, s.share / whole * part, s) for gpus, part in parts.items() if part > 0]

    tenant_of = np.array([e[0] for e in entries], np.int32)
    gpus = np.array([e[1] for e in entries], np.int64)
    share = np.array([e[2] for e in entries])
    quick_share = np.array([e[3].quick_share for e in entries])
    mu = np.log(1000.0 * np.array([[e[3].quick_s for e in entries], [e[3].long_s for e in entries]]))
    low, high = log(MIN_RUN_MS), log(config.max_run_ms)
    mu = np.clip(mu, low, high)  # a mode that lies beyond is moved to the end, so that drawing again comes to one
    sd = np.array([[e[3].quick_sd for e in entries], [e[3].long_sd for e in entries]])
    is_small = gpus <= ONE_GPU
    multi = np.where(is_small, [tenants[k].multi for k in tenant_of], MULTI_GPU_BATCHES[0])
    alpha = np.where(is_small, [tenants[k].alpha for k in tenant_of], MULTI_GPU_BATCHES[1])
    most = config.max_batch
    if most is None:
        most = MAX_BATCH if config.num_jobs is None else max(1, min(MAX_BATCH, config.num_jobs // 10))
    max_batch = np.minimum(most, np.where(is_small, most, MAX_MULTI_GPU_BATCH))

    means = np.array([[_truncated_mean(m, s, low, high) for m, s in zip(mu[i], sd[i], strict=True)] for i in (0, 1)])
    mean_run = quick_share * means[0] + (1 - quick_share) * means[1]
    mean_batch = np.array([_mean_batch(*x) for x in zip(multi, alpha, max_batch, strict=True)])

    # jobs per unit of time: each tenant gets its share of the GPU time, split over its sizes by number of jobs
    gpu_time_of_job = np.bincount(tenant_of, share * gpus * mean_run)
    demand = np.array([t.demand for t in tenants])
    job_rate = (demand / gpu_time_of_job)[tenant_of] * share
    batch_rate = job_rate / mean_batch
    batch_share = batch_rate / batch_rate.sum()

    num = len(entries)
    template, pod_sets = gang_rows(
        np.zeros(num, np.int64),
        np.ones(num, np.int64),
        gpus,
        tenant_of,
        gpus_per_pod=config.gpus_per_pod,
        checkpoint_interval_ms=config.checkpoint_interval_ms,
    )
    template["checkpoint_cost_ms"] = config.checkpoint_cost_ms
    template["restart_cost_ms"] = config.restart_cost_ms
    built = JobTrace.build(template, pod_sets, [t.name for t in tenants])  # checks, and numbers the shapes
    p95 = [_mixture_quantile(0.95, q, m, s, low, high) for q, m, s in zip(quick_share, mu.T, sd.T, strict=True)]
    return Cells(
        tenant_names=built.tenants,
        gpus=gpus,
        quick_share=quick_share,
        mu=mu,
        sd=sd,
        multi=multi,
        minus_one_over_alpha=-1 / alpha,
        max_batch=max_batch,
        cumulative=np.cumsum(batch_share),
        coarse_claim_ms=round_up(np.array(p95)),
        template=built.rows,
        pod_sets=built.pod_sets,
        jobs_of_batch=float(batch_share @ mean_batch),
        gpu_time_of_batch=float(batch_share @ (mean_batch * gpus * mean_run)),
    )


def _take(rows: np.ndarray, index: np.ndarray) -> np.ndarray:
    """(len(index),) those records, copied whole: numpy takes ten times as long field by field."""
    whole: np.ndarray = rows.view(np.dtype((np.void, rows.dtype.itemsize)))[index].view(rows.dtype)
    return whole


def _draw_work(
    rng: np.random.Generator, cells: Cells, cell: np.ndarray, mode: np.ndarray, max_run_ms: int
) -> np.ndarray:
    """(num_jobs,) int64 ms: lognormal run times, drawn again until they lie in the allowed range."""
    mu, sd = cells.mu[mode, cell], cells.sd[mode, cell]
    work = np.exp(mu + sd * rng.standard_normal(len(cell)))
    while len(again := np.flatnonzero((work < MIN_RUN_MS) | (work > max_run_ms))):
        work[again] = np.exp(mu[again] + sd[again] * rng.standard_normal(len(again)))
    return work.astype(np.int64)


def _draw_outcomes(rng: np.random.Generator, rows: np.ndarray, config: Synthetic, gpus: np.ndarray) -> int:
    """Hidden outcomes into the rows (`cancel_ms` counted from submission); returns the milli-GPU x ms to be run."""
    work = rows["work_ms"]
    run = work
    if config.fail + config.cancel + config.hang:
        what, part = rng.random((2, len(rows)))
        fails = what < config.fail
        cancelled = ~fails & (what < config.fail + config.cancel)
        hangs = ~fails & ~cancelled & (what < config.fail + config.cancel + config.hang) & (work > HOUR_MS)
        rows["outcome"][fails] = Outcome.FAILED
        rows["outcome_ms"][fails] = np.maximum(1, part**2 * work)[fails]  # the square of a uniform is Beta(.5, 1)
        rows["outcome"][hangs] = Outcome.HANGS
        rows["outcome_ms"][hangs] = np.maximum(1, part * work)[hangs]
        rows["cancel_ms"][cancelled] = np.maximum(1, part * work)[cancelled]
        run = np.minimum(work, np.where(hangs, work, rows["outcome_ms"]))
        run = np.minimum(run, rows["cancel_ms"])
    return int((gpus * run).sum())


def _batch_times(u: np.ndarray, phase_ms: int, horizon_ms: int) -> np.ndarray:
    """(num_batches,) float64 ms: uniform draws as times in [0, horizon) with the weekly profile."""
    hours = np.arange(HOURS_PER_WEEK + 1)

    def rate_up_to(hour: float) -> float:
        weeks, rest = divmod(hour, HOURS_PER_WEEK)
        return weeks * HOURS_PER_WEEK + float(np.interp(rest, hours, _WEEK))

    first, last = rate_up_to(phase_ms / HOUR_MS), rate_up_to((phase_ms + horizon_ms) / HOUR_MS)
    weeks, rest = np.divmod(first + u * (last - first), HOURS_PER_WEEK)
    return np.maximum((weeks * HOURS_PER_WEEK + np.interp(rest, _WEEK, hours)) * HOUR_MS - phase_ms, 0)


def _number(rows: np.ndarray, num_cells: int) -> None:
    """Shapes and groups as `JobTrace.build` numbers them, from the cells' own, which may not all occur."""
    of_cell = rows["shape"]
    seen, first = np.unique(of_cell, return_index=True)
    by_appearance = np.zeros(num_cells, np.int32)
    by_appearance[seen[np.argsort(first)]] = np.arange(len(seen))
    rows["shape"] = by_appearance[of_cell]
    pair = rows["tenant"] * max(len(seen), 1) + rows["shape"]
    occurs = np.bincount(pair) > 0
    rows["group"] = (np.cumsum(occurs) - 1)[pair]


def _mean_batch(multi: float, alpha: float, most: float) -> float:
    """Mean of 1 with probability 1 - multi, else min(most, floor(1.5 U^(-1/alpha) + .5))."""
    k = np.arange(3, int(most) + 1)
    return 1 - multi + multi * min(most, 2 + float(((1.5 / (k - 0.5)) ** alpha).sum()))


def _truncated_mean(mu: float, sd: float, low: float, high: float) -> float:
    """Mean of a lognormal within exp(low)..exp(high)."""
    a, b = (low - mu) / sd, (high - mu) / sd
    return exp(mu + sd * sd / 2) * (_normal(b - sd) - _normal(a - sd)) / (_normal(b) - _normal(a))


def _mixture_quantile(
    q: float, quick_share: float, mu: Sequence[float], sd: Sequence[float], low: float, high: float
) -> float:
    """Quantile of the truncated two-lognormal mixture, by bisection."""

    def below(x: float) -> float:
        total = 0.0
        for weight, m, s in ((quick_share, mu[0], sd[0]), (1 - quick_share, mu[1], sd[1])):
            a = _normal((low - m) / s)
            total += weight * (_normal((x - m) / s) - a) / (_normal((high - m) / s) - a)
        return total

    lo, hi = low, high
    for _ in range(60):
        middle = (lo + hi) / 2
        lo, hi = (middle, hi) if below(middle) < q else (lo, middle)
    return exp(hi)


def _normal(z: float) -> float:
    return 0.5 * (1 + erf(z / sqrt(2)))


def _week() -> np.ndarray:
    """(169,) the weekly profile summed up to each hour, 168 at the end."""
    rate = np.outer(WEEKDAYS, HOURS).ravel()
    return np.concatenate([[0], np.cumsum(rate)]) * HOURS_PER_WEEK / rate.sum()


_WEEK = _week()
