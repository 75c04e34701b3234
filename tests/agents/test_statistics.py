"""Intervals and chances against closed forms."""

import numpy as np
import pytest
from scipy import stats

from gangline.agents.statistics import (
    bootstrap,
    interquartile_mean,
    paired_difference,
    probability_of_improvement,
    wilcoxon,
)


def mean(values: np.ndarray) -> np.ndarray:
    return np.mean(values, axis=-1)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 60, 101])
def test_the_interquartile_mean_is_the_trimmed_mean(count: int) -> None:
    values = np.random.default_rng(count).lognormal(size=count)
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_one_value_a_trace_draws_traces_as_the_normal_interval_says() -> None:
    values = np.random.default_rng(1).normal(5, 2, 400)
    interval = bootstrap([np.array([v]) for v in values], mean)
    error = values.std() / np.sqrt(len(values))
    assert interval is not None and interval.count == 400
    assert interval.value == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - 1.96 * error, abs=0.25 * error)
    assert interval.high == pytest.approx(values.mean() + 1.96 * error, abs=0.25 * error)


def test_seeds_are_drawn_within_their_trace() -> None:
    """Traces differ by much, seeds of a trace by nothing: the interval is a point. Drawn across, it would be wide."""
    strata = [np.full(5, float(trace)) for trace in range(10)]
    interval = bootstrap(strata, mean)
    assert interval is not None and interval.low == interval.value == interval.high == 4.5
    pooled = bootstrap([np.array([v]) for s in strata for v in s], mean)
    assert pooled is not None and pooled.high - pooled.low > 1  # the known-wrong variant


def test_the_same_values_give_the_same_interval_and_none_gives_none() -> None:
    values = [np.array([v]) for v in (1.0, 5.0, 2.0, 8.0)]
    assert bootstrap(values) == bootstrap(values)
    assert bootstrap([]) is None
    assert bootstrap([np.array([])]) is None


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(200):
        interval = bootstrap([np.array([v]) for v in rng.normal(0, 1, 40)], mean, draws=400)
        assert interval is not None
        hits += interval.low <= 0 <= interval.high
    assert 0.88 <= hits / 200 <= 0.99


def test_the_probability_of_improvement_counts_pairs_of_a_trace_and_halves_ties() -> None:
    ours = {0: np.array([1.0, 3.0]), 1: np.array([5.0]), 7: np.array([0.0])}
    theirs = {0: np.array([2.0]), 1: np.array([5.0]), 8: np.array([9.0])}
    assert probability_of_improvement(ours, theirs) == (0.5 + 0.5) / 2
    assert probability_of_improvement({0: np.array([3.0, 3.0])}, {0: np.array([2.0, 3.0])}) == 0.75
    assert probability_of_improvement({0: np.array([3.0])}, {0: np.array([2.0])}, lower_is_better=True) == 0
    assert probability_of_improvement({0: np.array([3.0])}, {1: np.array([2.0])}) is None


def test_paired_differences_and_their_test() -> None:
    rng = np.random.default_rng(3)
    base = {t: np.array([v]) for t, v in enumerate(rng.lognormal(3, 1, 12))}
    twice = {t: 2 * v + 1 for t, v in base.items()}  # twice the time, with 1 added on both sides
    interval = paired_difference(twice, base, in_logarithms=True)
    assert (
        interval is not None and interval.value == pytest.approx(np.log(2)) and interval.low == pytest.approx(np.log(2))
    )
    plain = paired_difference(twice, base)
    assert plain is not None and plain.value > 0
    gaps = [float(twice[t][0] - base[t][0]) for t in base]
    assert wilcoxon(twice, base) == pytest.approx(stats.wilcoxon(gaps).pvalue)
    assert wilcoxon(base, base) is None
