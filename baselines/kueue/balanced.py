"""Balanced placement: a preferred request on the domains that let the fullest and the emptiest differ least.

Behind the gate TASBalancedPlacement, for `preferred` only. Among the children of each domain one level up, the greedy
choice says how many domains the request takes and so the *threshold*: the most that each of them can be given at
least. What holds less is left out. Of the rest the fewest domains with the least room are taken, each is given the
threshold, and what is left over goes to the largest. If that fails, the default (best fit) decides.
Source: Kueue pkg/cache/scheduler/tas_balanced_placement.go.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.baselines.kueue.domains import add_children, count_domains, name_precedes, sort_domains, sum_children
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NONE

ALLOCATES = True  # a table (core/compiled.py)
TOP = -2  # the domains of the coarsest level, as children of nothing


@helper
def place_balanced(
    w: Any, k: Any, ps: int, leader: int, t: int, level: int, slice_level: int, slice_size: int, slices: int
) -> int:
    """Choose domains for a preferred request and how much each holds, as their own pods and slices.

    Returns: how many are in `k.order`, on `level`, or one below where the slice level is lower; 0 if it cannot be
    balanced, and then the domains are counted as before.
    """
    leaders = 0 if leader == NONE else 1
    best = NONE
    best_threshold = 0
    best_count = 0
    for d in range(w.num_domains if level > 0 else 1):
        if level > 0 and (w.domains[d].topology != t or k.domains[d].level != level - 1):
            continue
        parent = d if level > 0 else TOP
        threshold, count = _threshold(
            w, k, ps, leader, t, parent, level, slice_level, slice_size, slices, best_threshold
        )
        is_better = threshold > best_threshold or (threshold == best_threshold and count < best_count)
        if threshold == best_threshold and count == best_count and threshold > 0:
            is_better = name_precedes(w, parent, best)
        if threshold > 0 and is_better:
            best = parent
            best_threshold = threshold
            best_count = count
    found = 0
    if best_threshold > 0:
        count_domains(w, k, ps, leader, t, slice_level, slice_size)
        n = _list_children(w, k, t, best)
        _prune(w, k, t, n, best_threshold, level, slice_level, slice_size, leaders)
        n = _list_children(w, k, t, best)
        if level < slice_level:
            n = _take_fewest(w, k, n, slices, leaders, slice_size, True)
            n = _list_grandchildren(k, n)
        found = _share_out(w, k, n, slices, leaders, slice_size, best_threshold)
    if found == 0:
        count_domains(w, k, ps, leader, t, slice_level, slice_size)
    return found


@helper
def _list_children(w: Any, k: Any, t: int, parent: int) -> int:
    """Write the children of a domain, or the domains of the top level, to `k.order`; returns how many."""
    if parent != TOP:
        return add_children(k, parent, 0)
    n = 0
    for d in range(w.num_domains):
        if w.domains[d].topology == t and k.domains[d].level == 0:
            k.order[n] = d
            n += 1
    return n


@helper
def _list_grandchildren(k: Any, n: int) -> int:
    """Replace the domains of `k.order[:n]` by their children; returns how many."""
    for i in range(n):
        k.kept[i] = k.order[i]
    found = 0
    for i in range(n):
        found = add_children(k, k.kept[i], found)
    return found


@helper
def _threshold(
    w: Any,
    k: Any,
    ps: int,
    leader: int,
    t: int,
    parent: int,
    level: int,
    slice_level: int,
    slice_size: int,
    slices: int,
    at_least: int,
) -> tuple[int, int]:
    """Least number of slices of a domain in a balanced placement below `parent`, and the number of domains it takes.

    0 if there is no such placement, or none with `at_least`.
    """
    leaders = 0 if leader == NONE else 1
    count_domains(w, k, ps, leader, t, slice_level, slice_size)
    n = _list_children(w, k, t, parent)
    if level < slice_level:
        n = _list_grandchildren(k, n)
    num_used, last_led, last = _fill_greedily(w, k, n, slices, leaders)
    if num_used == 0:
        return 0, 0
    threshold = slices // num_used
    if last_led != NONE:
        threshold = min(threshold, k.domains[last_led].slices_led)
    if last != NONE:
        threshold = min(threshold, k.domains[last].slices)
    # second try: as many as the last domain would hold beside the leader
    reserved = min(threshold, k.domains[last].slices_led) if leaders > 0 and last != NONE else threshold
    for attempt in range(2):
        wanted = threshold if attempt == 0 else reserved
        if wanted <= 0 or wanted < at_least or (attempt == 1 and reserved >= threshold):
            return 0, 0
        if attempt == 1:
            count_domains(w, k, ps, leader, t, slice_level, slice_size)
        n = _list_children(w, k, t, parent)
        _prune(w, k, t, n, wanted, level, slice_level, slice_size, leaders)
        n = _list_children(w, k, t, parent)
        num_used, last_led, last = _fill_greedily(w, k, n, slices, leaders)
        if num_used > 0:
            return wanted, num_used
    return 0, 0


@helper
def _fill_greedily(w: Any, k: Any, n: int, slices: int, leaders: int) -> tuple[int, int, int]:
    """Fill the domains of `k.order[:n]`, the leader's first, then the largest first.

    Returns: how many are used (0 = it does not fit), the last with a leader and the last without (NONE).
    """
    left = slices
    first = 0
    last_led = NONE
    last = NONE
    if leaders > 0:
        sort_domains(w, k, 0, n, True, False)
        if n == 0 or k.domains[k.order[0]].leaders == 0:
            return 0, NONE, NONE
        last_led = k.order[0]
        left -= k.domains[last_led].slices_led
        first = 1
    sort_domains(w, k, first, n, False, False)
    used = first
    while left > 0 and used < n and k.domains[k.order[used]].slices > 0:
        last = k.order[used]
        left -= k.domains[last].slices
        used += 1
    if left > 0:
        return 0, NONE, NONE
    return used, last_led, last


@helper
def _prune(
    w: Any, k: Any, t: int, n: int, threshold: int, level: int, slice_level: int, slice_size: int, leaders: int
) -> None:
    """Leave out what holds less than the threshold: first of the children of `k.order[:n]`, then of these."""
    for i in range(n):
        at = k.domains[k.order[i]].first_child
        while at != NONE:
            _prune_one(w, k, t, at, threshold, leaders)
            at = k.domains[at].next
    for below in range(k.num_levels[t] - 2, level - 1, -1):
        for d in range(w.num_domains):
            domain = k.domains[d]
            if w.domains[d].topology == t and domain.level == below:
                domain.slices = 0
                domain.slices_led = 0
                sum_children(k, d, 0)
                if below == slice_level:
                    domain.slices = domain.pods // slice_size
                    domain.slices_led = domain.pods_led // slice_size
    for i in range(n):
        _prune_one(w, k, t, k.order[i], threshold, leaders)


@helper
def _prune_one(w: Any, k: Any, t: int, d: int, threshold: int, leaders: int) -> None:
    """Empty a domain that holds less than the threshold; one that does beside a leader cannot lead."""
    domain = k.domains[d]
    is_out = domain.slices < threshold
    if not is_out and (leaders == 0 or domain.leaders == 0 or domain.slices_led >= threshold):
        return
    for e in range(w.num_domains):
        if w.domains[e].topology != t:
            continue
        above = e
        while above != NONE and above != d:
            above = w.domains[above].parent
        if above == d:
            below = k.domains[e]
            below.leaders = 0
            below.pods_led = 0
            below.slices_led = 0
            if is_out:
                below.pods = 0
                below.slices = 0


# ---------------------------------------------------------------------------------------------------------------
# The fewest domains with the least room
# ---------------------------------------------------------------------------------------------------------------


@helper
def _take_fewest(w: Any, k: Any, n: int, slices: int, leaders: int, slice_size: int, by_entropy: bool) -> int:
    """Keep, of `k.order[:n]`, as few domains as the greedy choice, with the least room in all, that hold the request.

    A table over (domains taken, leaders left, pods left): who first gets to an entry keeps it.

    Returns: how many are left in `k.order`; 0 if the request does not fit.
    """
    num_used, _, _ = _fill_greedily(w, k, n, slices, leaders)
    if num_used == 0:
        return 0
    _sort_for_choice(w, k, n, leaders, by_entropy)
    pods = slices * slice_size
    most = 0
    for i in range(n):
        most = max(most, k.domains[k.order[i]].pods)
    span = pods + num_used * most + 1  # pods left, from `pods` down to -num_used x most
    zero = num_used * most  # index of no pods left
    table = np.zeros((num_used + 1, 2, span), np.int32)  # 2 x (last domain taken + 1), + 1 if the leader went there
    table[0, leaders, zero + pods] = 1  # the beginning
    for i in range(n):
        domain = k.domains[k.order[i]]
        for used in range(num_used, 0, -1):
            for left in range(2):
                for p in range(span):
                    if table[used - 1, left, p] == 0 or (left == 0 and p <= zero):
                        continue
                    after = p - domain.pods_led
                    if left > 0 and domain.leaders > 0 and after >= 0 and table[used, 0, after] == 0:
                        table[used, 0, after] = 2 * i + 3
                    after = p - domain.pods
                    if domain.slices > 0 and after >= 0 and table[used, left, after] == 0:
                        table[used, left, after] = 2 * i + 2
    end = zero
    while end >= 0 and table[num_used, 0, end] == 0:
        end -= 1
    if end < 0:
        return 0
    left = 0
    for used in range(num_used, 0, -1):
        entry = table[used, left, end]
        d = k.order[entry // 2 - 1]
        k.kept[used - 1] = d
        if entry % 2 == 1:
            left = 1
        end += k.domains[d].pods_led if entry % 2 == 1 else k.domains[d].pods
    for i in range(num_used):
        k.order[i] = k.kept[i]
    return num_used


@helper
def _sort_for_choice(w: Any, k: Any, n: int, leaders: int, by_entropy: bool) -> None:
    """Put `k.order[:n]` in the order in which equally good choices are preferred (insertion sort)."""
    for i in range(1, n):
        moving = k.order[i]
        j = i
        while j > 0 and _is_chosen_before(w, k, moving, k.order[j - 1], leaders, by_entropy):
            k.order[j] = k.order[j - 1]
            j -= 1
        k.order[j] = moving


@helper
def _is_chosen_before(w: Any, k: Any, a: int, b: int, leaders: int, by_entropy: bool) -> bool:
    """By name; or: can lead, more slices (beside the leader, if there is one), more even children, name."""
    if by_entropy:
        one = k.domains[a]
        two = k.domains[b]
        if one.leaders != two.leaders:
            return one.leaders > two.leaders
        slices = one.slices_led if leaders == 0 or one.leaders > 0 else 0
        other_slices = two.slices_led if leaders == 0 or two.leaders > 0 else 0
        if slices != other_slices:
            return slices > other_slices
        entropy = _entropy(k, a)
        other_entropy = _entropy(k, b)
        if entropy != other_entropy:
            return entropy > other_entropy
    return name_precedes(w, a, b)


@helper
def _entropy(k: Any, d: int) -> float:
    """Entropy, in bits, of the pods that fit into the children of a domain: the more even, the larger."""
    total = 0
    at = k.domains[d].first_child
    while at != NONE:
        total += k.domains[at].pods
        at = k.domains[at].next
    entropy = 0.0
    at = k.domains[d].first_child
    while at != NONE:
        if k.domains[at].pods > 0:
            part = k.domains[at].pods / total
            entropy -= part * np.log2(part)
        at = k.domains[at].next
    return entropy


# ---------------------------------------------------------------------------------------------------------------
# How much each gets
# ---------------------------------------------------------------------------------------------------------------


@helper
def _share_out(w: Any, k: Any, n: int, slices: int, leaders: int, slice_size: int, threshold: int) -> int:
    """Give the threshold to each of the fewest domains of `k.order[:n]`, the rest to the leader's and the largest.

    Returns: how many are left in `k.order`; 0 if it cannot be done.
    """
    n = _take_fewest(w, k, n, slices, leaders, slice_size, False) if n > 0 else 0
    if n == 0 or slices < n * threshold:
        return 0
    sort_domains(w, k, 0, n, leaders > 0, False)
    extra = slices - n * threshold
    for i in range(n):
        domain = k.domains[k.order[i]]
        taken = 0
        if leaders > 0:
            taken = min(domain.slices_led - threshold, extra)
        elif extra > 0:
            taken = min(domain.slices - threshold, extra)
        extra -= taken
        domain.leaders = min(leaders, 1)
        leaders = 0
        domain.slices = threshold + taken
        domain.slices_led = domain.slices
        domain.pods = domain.slices * slice_size
        domain.pods_led = domain.pods - domain.leaders
    return n if extra <= 0 else 0
