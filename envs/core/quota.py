"""Quota over the cohort tree: how much a queue may still take, and what charging and giving back does to its cohorts.

The one place that does sums over quotas. Per cell (flavor, resource); `usage` of a cohort is not the sum of its
queues' usage: only what exceeds a child's guaranteed share arrives there.
Source: Kueue `resource_node.go`; docs/model.md section 6.
"""

from __future__ import annotations

from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.core.types import NEVER, NO_LIMIT, NONE


@helper
def guaranteed(queue: Any, cell: int) -> int:
    """Quota that a queue or cohort keeps for itself, never lent."""
    limit = queue.lending_limit[cell]
    if limit == NO_LIMIT:
        return 0
    return max(0, queue.subtree[cell] - limit)


@helper
def local_available(queue: Any, cell: int) -> int:
    """What is left of the guaranteed share."""
    return max(0, guaranteed(queue, cell) - queue.usage[cell])


@helper
def available(w: Any, q: int, cell: int) -> int:
    """Amount that queue `q` may still take from its own quota and its cohorts'.

    Negative when a quota was lowered under running jobs.
    Source: Kueue resource_node.go `available`.
    """
    path_length = 0
    top = q
    while w.queues[top].parent != NONE:
        top = w.queues[top].parent
        path_length += 1
    left = w.queues[top].subtree[cell] - w.queues[top].usage[cell]
    for depth in range(path_length - 1, -1, -1):  # down from the root's child to q
        at = q
        for _ in range(depth):
            at = w.queues[at].parent
        queue = w.queues[at]
        if queue.borrowing_limit[cell] != NO_LIMIT:
            keeps = guaranteed(queue, cell)
            lends = queue.subtree[cell] - keeps
            used_of_lent = max(0, queue.usage[cell] - keeps)
            left = min(left, lends - used_of_lent + queue.borrowing_limit[cell])
        left = local_available(queue, cell) + left
    return left


@helper
def potential(w: Any, q: int, cell: int) -> int:
    """The most a queue could ever have, whatever is in use. Source: Kueue `potentialAvailable`."""
    path_length = 0
    top = q
    while w.queues[top].parent != NONE:
        top = w.queues[top].parent
        path_length += 1
    most = w.queues[top].subtree[cell]
    for depth in range(path_length - 1, -1, -1):
        at = q
        for _ in range(depth):
            at = w.queues[at].parent
        queue = w.queues[at]
        most = guaranteed(queue, cell) + most
        if queue.borrowing_limit[cell] != NO_LIMIT:
            most = min(most, queue.subtree[cell] + queue.borrowing_limit[cell])
    return most


@helper
def charge(w: Any, q: int, cell: int, amount: int) -> None:
    """Add usage: the guaranteed share first, what is over goes up to the cohort."""
    while amount > 0 and q != NONE:
        queue = w.queues[q]
        over = max(0, amount - local_available(queue, cell))
        queue.usage[cell] += amount
        amount = over
        q = queue.parent


@helper
def give_back(w: Any, q: int, cell: int, amount: int) -> None:
    """Take usage away; the exact inverse of `charge`."""
    while amount > 0 and q != NONE:
        queue = w.queues[q]
        stored = queue.usage[cell] - guaranteed(queue, cell)
        queue.usage[cell] -= amount
        amount = min(amount, max(0, stored))
        q = queue.parent


@helper
def cell_of(w: Any, flavor: int, resource: int) -> int:
    """Quota cell of a (flavor, resource), or NONE."""
    if flavor == NONE:
        return NONE
    return w.cell_of[flavor, resource]


@helper
def refresh_quota(w: Any) -> None:
    """Recompute subtree quotas and cohorts' usage from the queues, after a quota or limit has changed.

    Cohorts come after their children in depth; the pass runs from the deepest to the roots.
    """
    deepest = 0
    for q in range(w.num_queues):
        queue = w.queues[q]
        if queue.is_cohort:
            for cell in range(w.num_cells):
                queue.usage[cell] = 0
        for cell in range(w.num_cells):
            queue.subtree[cell] = queue.nominal[cell]
        deepest = max(deepest, depth_of(w, q))
    for depth in range(deepest, 0, -1):
        for q in range(w.num_queues):
            if depth_of(w, q) != depth:
                continue
            queue = w.queues[q]
            parent = w.queues[queue.parent]
            for cell in range(w.num_cells):
                keeps = guaranteed(queue, cell)
                parent.subtree[cell] = min(parent.subtree[cell] + queue.subtree[cell] - keeps, NEVER)
                parent.usage[cell] += max(0, queue.usage[cell] - keeps)


@helper
def depth_of(w: Any, q: int) -> int:
    """Steps from a queue to its root."""
    depth = 0
    while w.queues[q].parent != NONE:
        q = w.queues[q].parent
        depth += 1
    return depth
