"""How sure a comparison is: interquartile means, stratified bootstrap, probability of improvement.

Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021; metrics 7.
Scores come as one array per trace (the stratum), one value per seed in it: a deterministic scheduler has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

DRAWS = 2000
LEVEL = 0.95

Strata = Sequence[np.ndarray]  # (num_seeds,) float64 of each trace


@dataclass(frozen=True)
class Interval:
    """A statistic with its bootstrap interval.

    Attributes:
        value: of the sample.
        low, high: ends of the 95 % interval (percentiles of the draws).
        count: values it is taken over.
    """

    value: float
    low: float
    high: float
    count: int


def interquartile_mean(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean without the lowest and the highest quarter (`floor(n / 4)` values each)."""
    ordered = np.sort(np.moveaxis(np.asarray(values, float), axis, -1), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)  # type: ignore[no-any-return]


def bootstrap(
    strata: Strata, statistic: Callable[..., np.ndarray] = interquartile_mean, *, draws: int = DRAWS, seed: int = 0
) -> Interval | None:
    """A statistic (over the last axis) of all values, with its 95 % interval; None of no value.

    Seeds are drawn anew, with replacement, within each trace. Where every trace has one value there is nothing to draw
    in it: then the traces are drawn anew.
    """
    strata = [np.asarray(values, float) for values in strata if len(values)]
    if not strata:
        return None
    pooled = np.concatenate(strata)
    drawn = pooled[_draws(tuple(len(values) for values in strata), draws, seed)]
    ends = np.percentile(statistic(drawn), [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return Interval(float(statistic(pooled)), float(ends[0]), float(ends[1]), len(pooled))


@lru_cache(maxsize=32)
def _draws(sizes: tuple[int, ...], draws: int, seed: int) -> np.ndarray:
    """(draws, num_values) which of the pooled values each draw takes: the same for every metric of a benchmark."""
    rng = np.random.default_rng(seed)
    if max(sizes) == 1:
        return rng.integers(0, len(sizes), (draws, len(sizes)))
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    parts = [begin + rng.integers(0, size, (draws, size)) for begin, size in zip(first, sizes, strict=True)]
    return np.concatenate(parts, axis=1)


def probability_of_improvement(
    ours: Mapping[int, np.ndarray], theirs: Mapping[int, np.ndarray], *, lower_is_better: bool = False
) -> float | None:
    """P(X better than Y), ties half, averaged over the traces that both have played; None where there is none."""
    chances = []
    for trace in sorted(ours.keys() & theirs.keys()):
        gap = np.subtract.outer(np.asarray(ours[trace], float), np.asarray(theirs[trace], float))
        if gap.size:
            chances.append(float(((-gap if lower_is_better else gap) > 0).mean() + (gap == 0).mean() / 2))
    return sum(chances) / len(chances) if chances else None


def wilcoxon(ours: Mapping[int, np.ndarray], theirs: Mapping[int, np.ndarray]) -> float | None:
    """p of Wilcoxon's signed-rank test over the paired differences of trace means; None of fewer than 5 that differ."""
    gaps = [float(np.mean(ours[t]) - np.mean(theirs[t])) for t in sorted(ours.keys() & theirs.keys())]
    gaps = [gap for gap in gaps if gap != 0]
    if len(gaps) < 5:
        return None
    from scipy.stats import wilcoxon as test

    return float(test(gaps).pvalue)


def paired_difference(
    ours: Mapping[int, np.ndarray], theirs: Mapping[int, np.ndarray], *, in_logarithms: bool = False, one: float = 1.0
) -> Interval | None:
    """Interquartile mean of ours against theirs, trace by trace, with its interval.

    Args:
        ours, theirs: values by trace.
        in_logarithms: of `log((ours + one) / (theirs + one))`, for times, whose ratios count; else of the difference.
        one: keeps the logarithm of 0 away, in the unit of the values.
    """
    strata = []
    for trace in sorted(ours.keys() & theirs.keys()):
        base = float(np.mean(theirs[trace]))
        own = np.asarray(ours[trace], float)
        strata.append(np.log((own + one) / (base + one)) if in_logarithms else own - base)
    return bootstrap(strata)
