"""The agent's side of a world: what it is shown, what it may do, how it is paid, and where its episode stands.

`AGENT` is fixed for an environment, `env_dtype` is one record per environment of a batch. Both are read by the
kernels of observation, action, reward and stepping; the world itself (`core/types.py`) knows nothing of them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from gangline.envs.core.types import PAGE, SizeClass, in_cache_lines
from gangline.envs.reward import NUM_TERMS
from gangline.envs.transition import NUM_OWN, NUM_QUANTITIES, TRANSITION

MAX_QUEUE_ROWS = 256
MAX_RUNNING_ROWS = 256
MAX_RULES = 8


class Kind(IntEnum):
    """Kinds of action, in the order of their segments of the flat action space."""

    WAIT = 0  # until the next decision
    PLACE = 1  # (slot, rule): start the job of a queue row
    MAKE_ROOM = 2  # (slot, victim rule): preempt a smallest sufficient set and start the job
    ADMIT = 3  # slot: reserve quota only (quota: enforced)
    RESERVE = 4  # slot: keep idle GPUs for a gang, for a limited time
    PREEMPT = 5  # running row: stop a job


class TimeMode(IntEnum):
    """When the agent is asked."""

    EVENT = 0  # at every instant at which it has a choice
    TICK = 1  # at every tick


class Face(IntEnum):
    """Who decides."""

    SINGLE = 0  # one agent for the whole cluster
    TENANTS = 1  # one agent per tenant, in rounds
    ROLES = 2  # admitter, placer, preemptor, in turn


class Role(IntEnum):
    """Agents of the roles environment, in the order of their turns."""

    ADMITTER = 0  # may it enter?
    PLACER = 1  # where does it go?
    PREEMPTOR = 2  # who has to leave for it?


class Arbiter(IntEnum):
    """Whose command goes first in a round. Ties rotate from round to round."""

    ENTITLEMENT_DEFICIT = 0  # the tenant that holds least of its entitlement
    PRIORITY = 1  # the tenant whose command concerns the job of highest priority
    ROUND_ROBIN = 2  # each first in turn


class Refused(IntEnum):
    """Why a tenant's command was not applied."""

    NO = 0
    CONFLICT = 1  # it was legal when the round began; an earlier command of the round was in its way
    ILLEGAL = 2  # it was never legal


AGENT = np.dtype(
    [
        # observation
        ("shows_cluster", np.bool_),
        ("shows_queue", np.bool_),
        ("shows_running", np.bool_),
        ("tenant_rows", np.int64),
        ("node_rows", np.int64),
        ("queue_rows", np.int64),
        ("running_rows", np.int64),
        ("num_oldest", np.int64),
        ("num_shortest", np.int64),
        ("epoch_ms", np.int64),  # wall-clock time of the trace's zero
        # action
        ("num_rules", np.int64),
        ("rules", np.int64, (MAX_RULES,)),
        ("num_victim_rules", np.int64),
        ("victim_rules", np.int64, (MAX_RULES,)),
        ("may_admit", np.bool_),
        ("may_reserve", np.bool_),
        ("may_preempt", np.bool_),
        ("num_actions", np.int64),
        ("min_run_ms", np.int64),  # a job that has run for less is protected
        ("reclaims_within_share", np.bool_),
        ("reserve_ms", np.int64),  # length of a reservation
        ("max_commands_per_instant", np.int64),
        # time and reward
        ("time_mode", np.int64),
        ("tick_ms", np.int64),
        ("commands_per_tick", np.int64),
        ("skips_forced", np.bool_),
        ("beta_per_h", np.float64),
        ("reward_scale", np.float64),
        ("weights", np.float64, (NUM_TERMS,)),
        ("uses_utility", np.bool_),
        # several agents
        ("face", np.int64),
        ("arbiter", np.int64),
        ("mu", np.float64),  # part of the team in a tenant's reward
        ("own_weights", np.float64, (NUM_OWN,)),
    ],
    align=True,
)


def env_dtype(size: SizeClass) -> np.dtype[Any]:
    """The record of one environment, or of one of several agents in it: its episode, the rows it shows, and what
    happened since the last decision.
    """
    return in_cache_lines(
        [
            ("begin_ms", np.int64),  # clock at the first decision of the episode
            ("end_ms", np.int64),  # horizon
            ("commands_here", np.int64),
            ("num_steps", np.int64),
            ("num_illegal", np.int64),
            ("num_overflows", np.int64),  # of those, at which some waiting job was not shown
            ("num_decisions", np.int64),  # observations so far
            ("terminated", np.bool_),
            ("truncated", np.bool_),
            ("last_was_legal", np.bool_),
            ("num_queue_rows", np.int64),
            ("num_running_rows", np.int64),
            ("reward", np.float64),
            ("terms", np.float64, (NUM_TERMS,)),  # plain, of the last step
            ("discounted_terms", np.float64, (NUM_TERMS,)),
            ("term_sums", np.float64, (NUM_TERMS,)),  # plain, of the episode
            ("return_sum", np.float64),
            ("transition", TRANSITION),
            ("areas", np.float64, (NUM_QUANTITIES,)),  # at the last reading
            ("areas_now", np.float64, (NUM_QUANTITIES,)),  # scratch
            ("areas_ms", np.int64),
            # several agents: of one of them
            ("tenant", np.int64),  # whose jobs it is shown; NONE = everybody's
            ("role", np.int64),  # what it may do; NONE = everything
            ("has_choice", np.bool_),  # something but `wait` is legal now
            ("had_choice", np.bool_),  # ... was legal at the last decision
            ("has_spoken", np.bool_),  # within a round: its command has been dealt with
            ("refused", np.int64),  # Refused, of the last command
            ("own_areas", np.float64, (NUM_OWN,)),  # its tenant's, at the last reading
            ("own_gains", np.float64, (NUM_OWN,)),  # of the last step, discounted
            ("since_discount", np.float64),  # since its last turn
            ("since_h", np.float64),
            # several agents: of the environment
            ("num_rounds", np.int64),
            ("turn", np.int64),  # Role whose turn it is
            ("somebody_acts", np.bool_),  # in this round
            # the rows that are shown: what is read of all of them in few pages of memory
            ("oldest", np.int64, (size.max_tenants,)),
            ("tenant_head", np.int32, (size.max_tenants,)),  # group whose head is the tenant's first job
            ("rows_of", np.int64),  # queue_version that the queue rows are of
            ("queue_why", np.int8, (MAX_QUEUE_ROWS,)),
            ("queue_jobs", np.int32, (MAX_QUEUE_ROWS,)),
            ("queue_at", np.int32, (MAX_QUEUE_ROWS,)),  # their places in the table of waiting jobs
            ("queue_groups", np.int32, (MAX_QUEUE_ROWS,)),
            ("fits", np.float32, (MAX_QUEUE_ROWS,)),
            ("can_make_room", np.float32, (MAX_QUEUE_ROWS,)),
            ("num_places", np.int64),
            # places in the table of running jobs: of the rows that are shown, then of the others if there is room
            ("running_at", np.int32, (MAX_RUNNING_ROWS,)),
            ("running_jobs", np.int32, (MAX_RUNNING_ROWS,)),
            ("running_loss", np.int64, (MAX_RUNNING_ROWS,)),
        ],
        PAGE,
    )


TENANT_SEEN = np.dtype(  # what rows about a tenant and its jobs have in common, as it is shown
    [
        # in the order of a queue row
        ("index", np.float32),  # / tenants; 0 for the agent of one
        ("entitled", np.float32),  # over the cluster, as the next three
        ("held", np.float32),
        ("fair", np.float32),
        ("gap", np.float32),  # fair - held
        ("waiting", np.float32),  # / 4
        ("usage", np.float32),  # share of all decayed usage
        # of a running row
        ("over", np.float32),  # held - fair
        ("is_over", np.float32),
    ]
)


def scratch_dtype(size: SizeClass) -> np.dtype[Any]:
    """What is needed while rows are chosen and written, and by nobody afterwards: one for each thread."""
    return np.dtype(
        [
            ("usage", np.float64, (size.max_tenants,)),
            ("tenants", TENANT_SEEN, (size.max_tenants,)),
            ("logs", np.float64, (max(2 * MAX_QUEUE_ROWS, 3 * MAX_RUNNING_ROWS),)),
            # the next job of each group that waits, and the group's smallest claim
            ("cursor", np.int32, (size.max_groups,)),
            ("cursor_row", np.int32, (size.max_groups,)),
            ("cursor_key", np.int64, (size.max_groups,)),
            ("cursor_group", np.int32, (size.max_groups,)),
            ("cursor_claim", np.int64, (size.max_groups,)),
            ("cursor_order", np.int32, (size.max_groups,)),  # the last comes first
        ],
        align=True,
    )
