"""Reward terms: each a function of the `Transition` alone, an exact integral over the time passed.

A reward is a weighted sum of named terms; weights and arguments come from the configuration, every term is in `info`
and summed per episode. Terms are hours: a rate in [0, 1] held for an hour gives 1. The environment multiplies the sum
by the discount rate (`reward.scale: auto`), so that returns are of order 1 whatever the horizon.

To add a term: write its function and its line in `evaluate_terms` and `TERMS`, all in this file. A term of your own
package is named by its dotted path and called from Python (slower): `my_package.my_term(transition) -> float`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.transition import Quantity

OWN_TERMS = ("productive", "neg_over_share", "neg_deficit", "neg_waste")  # of a tenant agent, in the order of `Own`


@helper
def own_reward(gains: Any, weights: Any) -> float:
    """What a tenant earns for itself: its GPUs that make progress, less what it holds above its share while others lack
    theirs, less what it lacks, less what stopping its jobs has cost. 1 = an n-th of the cluster for an hour.
    """
    return weights[0] * gains[0] - weights[1] * gains[1] - weights[2] * gains[2] - weights[3] * gains[3]


@helper
def productive(areas: Any) -> float:
    """GPUs that make progress, over the cluster. In [0, 1] per hour."""
    return areas[Quantity.RUNNING]


@helper
def neg_idle(areas: Any) -> float:
    """Minus idle-with-demand: (min(C, D) - P) / C. spec: with `neg_over_share` the exact split of the deficit."""
    return -areas[Quantity.IDLE]


@helper
def neg_over_share(areas: Any) -> float:
    """Minus what tenants hold above their water-filled shares while others lack theirs: sum_k [A_k - F_k]+ / C."""
    return -areas[Quantity.OVER_SHARE]


@helper
def neg_deficit(areas: Any) -> float:
    """Minus sum_k [F_k - A_k]+ / C: zero if and only if no tenant is below its fair share."""
    return -areas[Quantity.DEFICIT]


@helper
def neg_waste(areas: Any) -> float:
    """Minus lost work and restarts, charged at the event, and hang time, over C."""
    return -(areas[Quantity.LOST] + areas[Quantity.RESTART] + areas[Quantity.HANG])


@helper
def neg_backlog(areas: Any) -> float:
    """Minus GPUs that wait, over C. Not bounded in overload."""
    return -areas[Quantity.GPUS_WAITING]


@helper
def neg_jobs(areas: Any) -> float:
    """Minus jobs in the system, x 0.01: mean JCT by Little's law (DeepRM, Decima)."""
    return -0.01 * areas[Quantity.JOBS_IN_SYSTEM]


@helper
def neg_slowdown(areas: Any) -> float:
    """Minus sum over jobs in the system of 1 / max(work, 10 s) (DeepRM's slowdown reward, bounded)."""
    return -areas[Quantity.SLOWNESS]


@helper
def neg_unfairness(areas: Any) -> float:
    """Jain index of min(A_k / F_k, 1) minus 1. Can be raised by lowering the rich: use it with a use term only."""
    return -areas[Quantity.UNFAIRNESS]


@helper
def neg_replicas_missing(areas: Any) -> float:
    """Minus replicas that services lack, x 0.1."""
    return -0.1 * areas[Quantity.REPLICAS_MISSING]


@helper
def alpha_fair(areas: Any) -> float:
    """Increment of sum_k e_k log(x_k + 0.05), x_k = decayed service over share of all service (alpha = 1)."""
    return areas[Quantity.UTILITY]


@helper
def evaluate_terms(areas: Any, out: Any) -> None:
    """Write every built-in term, in the order of `TERMS`, for plain or discounted areas."""
    out[0] = neg_idle(areas)
    out[1] = neg_over_share(areas)
    out[2] = neg_waste(areas)
    out[3] = neg_deficit(areas)
    out[4] = productive(areas)
    out[5] = neg_backlog(areas)
    out[6] = neg_jobs(areas)
    out[7] = neg_slowdown(areas)
    out[8] = neg_unfairness(areas)
    out[9] = neg_replicas_missing(areas)
    out[10] = alpha_fair(areas)


TERMS: dict[str, Callable[..., float]] = {
    "neg_idle": neg_idle,
    "neg_over_share": neg_over_share,
    "neg_waste": neg_waste,
    "neg_deficit": neg_deficit,
    "productive": productive,
    "neg_backlog": neg_backlog,
    "neg_jobs": neg_jobs,
    "neg_slowdown": neg_slowdown,
    "neg_unfairness": neg_unfairness,
    "neg_replicas_missing": neg_replicas_missing,
    "alpha_fair": alpha_fair,
}
NUM_TERMS = len(TERMS)
TERM_NAMES = tuple(TERMS)


def check_weights(weights: dict[str, float]) -> None:
    """Refuse unknown terms and weights that are not finite numbers.

    Raises:
        GanglineError: naming the term, with the known ones.
    """
    for name, weight in weights.items():
        if "." not in name and name not in TERMS:
            raise unknown_name("reward term", name, TERMS)
        if not isinstance(weight, int | float) or weight != weight or abs(weight) == float("inf"):
            raise GanglineError(f"weight of reward term {name!r} is {weight}, expected a finite number")


def own_term(path: str) -> Callable[..., float]:
    """A reward term by its dotted path, `package.module.function`.

    Raises:
        GanglineError: if it cannot be imported or is not a function of one argument.
    """
    module_name, _, function_name = path.rpartition(".")
    try:
        term = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise GanglineError(f"reward term {path!r} cannot be imported ({error}), expected package.function") from None
    if not callable(term) or len(inspect.signature(term).parameters) != 1:
        raise GanglineError(f"reward term {path!r} is {term!r}, expected a function of one argument, the transition")
    found: Callable[..., float] = term
    return found
