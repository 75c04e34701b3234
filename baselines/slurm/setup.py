"""From a `SlurmConfig` and a world to the block of numbers that the compiled scheduler works on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from gangline.baselines.slurm.config import (
    PRIORITY_FLAGS,
    Account,
    Limits,
    Partition,
    Request,
    RowRequests,
    SlurmConfig,
    User,
)
from gangline.baselines.slurm.tables import (
    BILLING_TRES,
    MAX_NODELISTS,
    MAX_PARTITIONS,
    MAX_QOS,
    MAX_TESTS,
    NODE_TRES,
    NUM_TRES,
    TYPE_TRES,
    WORD_BITS,
    Mode,
    PreemptBy,
    block_dtype,
    opened,
    with_rows,
)
from gangline.envs.core.types import NEVER, NONE, ONE_GPU
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError, unknown_name

SECOND_MS = 1000
MINUTE_MS = 60_000
MEBIBYTE = 1 << 20
MILLI_CPU = 1000
RESET_PERIOD_S = {"NONE": 0, "NOW": 0, "DAILY": 1, "WEEKLY": 7, "MONTHLY": 30, "QUARTERLY": 91, "YEARLY": 365}
DAY_S = 86_400
NO_LIMIT = -1
ROOT = "root"


class Tres:
    """TRES names of a world: index and core units of each."""

    def __init__(self, world: World) -> None:
        names = world.names
        gpu = int(world.record["params"]["gpu_resource"])
        self.index: dict[str, int] = {"node": NODE_TRES}
        self.scale = np.ones(NUM_TRES, np.int64)
        for r, name in enumerate(names.resources):
            if r == gpu:
                self.index["gres/gpu"] = r
                self.scale[r] = ONE_GPU
            elif name in ("cpu", "mem", "memory"):
                self.index["cpu" if name == "cpu" else "mem"] = r
                self.scale[r] = MILLI_CPU if name == "cpu" else MEBIBYTE
            else:
                self.index[f"gres/{name}"] = r
        self.index["billing"] = BILLING_TRES
        for t, name in enumerate(names.gpu_types[: BILLING_TRES - TYPE_TRES]):
            self.index[f"gres/gpu:{name}"] = TYPE_TRES + t
            self.scale[TYPE_TRES + t] = ONE_GPU

    def place(self, name: str) -> int | None:
        """Index of a TRES; None where the world has none of it."""
        known = self.index.get(name.lower())
        if known is None and not name.lower().startswith(("cpu", "mem", "gres/", "billing", "node", "energy", "fs/")):
            raise unknown_name("TRES", name, self.index)
        return known

    def limits(self, amounts: Mapping[str, int]) -> np.ndarray:
        """(NUM_TRES,) core units; NO_LIMIT where none is set."""
        found = np.full(NUM_TRES, NO_LIMIT, np.int64)
        for name, amount in amounts.items():
            at = self.place(name)
            if at is not None:
                found[at] = amount * self.scale[at]
        return found

    def weights(self, weights: Mapping[str, float]) -> np.ndarray:
        """(NUM_TRES,) per Slurm unit."""
        found = np.zeros(NUM_TRES)
        for name, weight in weights.items():
            at = self.place(name)
            if at is not None:
                found[at] = weight
        return found


def block_for(config: SlurmConfig, world: World) -> np.ndarray:
    """(num_bytes,) uint8: a fresh block for a world, and what each row of its trace asked for.

    Raises:
        GanglineError: names that do not exist, settings that contradict each other.
    """
    check(config)
    tres = Tres(world)
    private = np.zeros(block_dtype(world.size).itemsize, np.uint8)
    block = opened(private, world.size)
    words = max(1, -(-int(world.record["num_nodes"]) // WORD_BITS))
    _fill_header(block.own, config, world, tres, words)
    assocs = _associations(config, world, tres, block)
    _fill_qos(config, tres, block)
    _fill_partitions(config, world, tres, block, words)
    for name, weight in config.node_weights.items():
        block.node_weight[world.names.find("nodes", name)] = weight - 1  # 1 where nothing was said
    rows = _fill_requests(config, world, assocs, block, words)
    block.slots["row"] = NONE
    return with_rows(private, *rows)


def check(config: SlurmConfig) -> None:
    """Refuse settings that contradict each other."""
    for what, named, most in (("partitions", config.partitions, MAX_PARTITIONS), ("QOS", config.qos, MAX_QOS)):
        if not 1 <= len(named) <= most:
            raise GanglineError(f"{len(named)} {what}, expected 1 to {most}")
        names = [entry.name for entry in named]
        if len(set(names)) < len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise GanglineError(f"{what} {twice!r} is defined twice, expected names to differ")
    for flag in config.priority.flags:
        if flag not in PRIORITY_FLAGS:
            raise unknown_name("PriorityFlags", flag, PRIORITY_FLAGS)
    for name, value in (
        ("PriorityCalcPeriod", config.priority.calc_period_s),
        ("PriorityMaxAge", config.priority.max_age_s),
        ("FairShareDampeningFactor", config.priority.dampening_factor),
        ("bf_interval", config.scheduler.bf_interval_s),
        ("bf_resolution", config.scheduler.bf_resolution_s),
        ("bf_window", config.scheduler.bf_window_min),
        ("bf_max_job_test", config.scheduler.bf_max_job_test),
        ("sched_interval", config.scheduler.sched_interval_s),
        ("SchedulerTimeSlice", config.preemption.time_slice_s),
    ):
        if value < 1:
            raise GanglineError(f"{name} is {value}, expected 1 or more")
    if config.scheduler.bf_max_job_test > MAX_TESTS:
        raise GanglineError(f"bf_max_job_test is {config.scheduler.bf_max_job_test}, expected at most {MAX_TESTS}")
    if config.priority.decay_half_life_s < 0:
        raise GanglineError(f"PriorityDecayHalfLife is {config.priority.decay_half_life_s}, expected 0 or more")
    if "SUSPEND" in config.preemption.modes and "GANG" not in config.preemption.modes:
        raise GanglineError("PreemptMode=SUSPEND without GANG, expected SUSPEND,GANG: the gang scheduler stops jobs")


def _fill_header(own: np.ndarray, config: SlurmConfig, world: World, tres: Tres, words: int) -> None:
    head, w = own[0], world.record
    priority, sched, preempt = config.priority, config.scheduler, config.preemption
    head["num_resources"] = int(w["params"]["num_resources"])
    head["cpu"] = tres.index.get("cpu", NONE)
    head["words"] = words
    head["num_free"] = int(w["num_nodes"]) * (int(head["num_resources"]) + 1)
    if head["cpu"] != NONE:
        nodes = w["nodes"][: int(w["num_nodes"])]
        head["cluster_cpus"] = int(nodes["capacity"][:, head["cpu"]].sum()) // MILLI_CPU
    head["scale"] = tres.scale
    for name in ("age", "assoc", "fairshare", "job_size", "partition", "qos"):
        head[f"weight_{name}"] = getattr(priority, f"weight_{name}")
    head["weight_tres"] = tres.weights(priority.weight_tres)
    head["max_age_s"] = priority.max_age_s
    head["calc_period_s"] = priority.calc_period_s
    head["half_life_s"] = priority.decay_half_life_s
    head["reset_period_s"] = RESET_PERIOD_S[priority.usage_reset_period] * DAY_S
    head["dampening"] = priority.dampening_factor
    head["favor_small"] = priority.favor_small
    head["small_relative_to_time"] = "SMALL_RELATIVE_TO_TIME" in priority.flags
    head["is_classic"] = "NO_FAIR_TREE" in priority.flags
    head["accrue_always"] = "ACCRUE_ALWAYS" in priority.flags
    head["ranks_running"] = "CALCULATE_RUNNING" in priority.flags
    head["incr_only"] = "INCR_ONLY" in priority.flags
    for column, flag in (("assoc", "ASSOC"), ("partition", "PART"), ("qos", "QOS"), ("tres", "TRES")):
        head[f"raw_{column}"] = bool({"NO_NORMAL_ALL", f"NO_NORMAL_{flag}"} & priority.flags)
    head["max_tres"] = 2 if "MAX_TRES_GRES" in priority.flags else int("MAX_TRES" in priority.flags)
    head["queue_depth"] = sched.default_queue_depth
    head["partition_depth"] = sched.partition_job_depth
    head["max_job_start"] = sched.sched_max_job_start
    head["limit_stop"] = sched.assoc_limit_stop
    head["sched_interval_ms"] = sched.sched_interval_s * SECOND_MS
    head["delay_ms"] = sched.batch_sched_delay_s * SECOND_MS
    head["loop_ms"] = sched.sched_loop_s * SECOND_MS
    head["backfills"] = sched.scheduler_type == "sched/backfill"
    head["bf_interval_ms"] = sched.bf_interval_s * SECOND_MS
    head["bf_window_ms"] = sched.bf_window_min * MINUTE_MS
    head["bf_resolution_ms"] = sched.bf_resolution_s * SECOND_MS
    head["bf_max_test"] = sched.bf_max_job_test
    head["bf_max_start"] = sched.bf_max_job_start
    head["bf_max_user"] = sched.bf_max_job_user
    head["bf_max_user_part"] = sched.bf_max_job_user_part
    head["bf_max_array"] = sched.bf_max_job_array_resv
    head["bf_max_part"] = sched.bf_max_job_part
    head["bf_max_assoc"] = sched.bf_max_job_assoc
    head["bf_linear_ms"] = sched.bf_window_linear_s * SECOND_MS
    head["bf_min_age_ms"] = sched.bf_min_age_reserve_s * SECOND_MS
    head["bf_min_prio"] = sched.bf_min_prio_reserve
    head["kill_wait_ms"] = config.kill_wait_s * SECOND_MS
    head["has_limits"] = config.enforces_limits
    head["has_submit_limits"] = config.enforces_limits and any(map(_limits_submissions, _all_limits(config)))
    head["preempt_by"] = {
        "preempt/none": PreemptBy.NOBODY,
        "preempt/qos": PreemptBy.QOS,
        "preempt/partition_prio": PreemptBy.PARTITION,
    }[preempt.type]
    head["preempt_mode"] = max(_mode(mode) for mode in preempt.modes or {"OFF"})
    head["is_gang"] = "GANG" in preempt.modes
    head["exempt_ms"] = preempt.exempt_time_s * SECOND_MS
    head["youngest_first"] = preempt.youngest_first
    head["reorder_count"] = preempt.reorder_count
    head["strict_order"] = preempt.strict_order
    head["min_exempt_priority"] = NEVER if preempt.min_exempt_priority is None else preempt.min_exempt_priority
    head["priority_must_be_higher"] = preempt.priority_must_be_higher
    head["within_qos"] = "WITHIN" in preempt.modes
    head["slice_ms"] = preempt.time_slice_s * SECOND_MS
    now_ms = world.now_ms
    head["tick_s"] = now_ms // SECOND_MS
    head["next_tick_ms"] = (now_ms // SECOND_MS + priority.calc_period_s) * SECOND_MS
    head["next_reset_s"] = NEVER
    if head["reset_period_s"] > 0:
        head["next_reset_s"] = (now_ms // SECOND_MS // head["reset_period_s"] + 1) * head["reset_period_s"]
    # With nothing running and nobody new, age and usage are all that moves: until they have come to rest
    head["busy_ms"] = now_ms
    fades_s = 60 * priority.decay_half_life_s if any(map(_limits_usage, _all_limits(config))) else 0
    head["idle_limit_ms"] = max(priority.max_age_s, fades_s, 2 * int(head["reset_period_s"])) * SECOND_MS
    head["num_arrived"] = NONE
    head["room_version"] = NONE
    head["newcomer"] = NONE
    head["main_ms"] = NEVER
    head["next_full_ms"] = NEVER
    head["next_backfill_ms"] = NEVER
    head["next_slice_ms"] = NEVER
    head["wake_ms"] = NEVER


def _all_limits(config: SlurmConfig) -> Iterator[Limits]:
    """Limits of every QOS and association."""
    yield from (entry.limits for entry in config.qos)
    below = list(config.accounts)
    while below:
        entry = below.pop()
        yield entry.limits
        below += getattr(entry, "children", ())


def _limits_usage(limits: Limits) -> bool:
    return bool(limits.grp_tres_mins) or limits.grp_wall_min is not None


def _limits_submissions(limits: Limits) -> bool:
    given = (limits.grp_submit, limits.max_submit, limits.max_submit_per_user, limits.max_submit_per_account)
    return any(limit is not None for limit in given)


def _mode(mode: str | None) -> int:
    """A PreemptMode as a number; -1 = the cluster's. GANG and WITHIN are no ways to stop a job."""
    if mode is None:
        return -1
    return int({"CANCEL": Mode.CANCEL, "REQUEUE": Mode.REQUEUE, "SUSPEND": Mode.SUSPEND}.get(mode, Mode.OFF))


# ---------------------------------------------------------------------------------------------------------------
# Associations
# ---------------------------------------------------------------------------------------------------------------


def _associations(
    config: SlurmConfig, world: World, tres: Tres, block: SimpleNamespace
) -> dict[tuple[str, str | None], int]:
    """Fill the tree of associations; returns their index by (account, user or None)."""
    top = accounts_in(config, world)
    if config.root_user_shares is not None:
        top = [User(name=ROOT, shares=config.root_user_shares), *top]
    entries: list[tuple[int, str, Account | User]] = []  # (parent, account it belongs to, entry), parents first
    below: dict[int, list[int]] = {0: []}

    def add(parent: int, account: str, members: Iterable[Account | User]) -> None:
        for member in members:
            index = len(entries) + 1
            entries.append((parent, account, member))
            below[parent].append(index)
            if isinstance(member, Account):
                below[index] = []
                add(index, member.name, member.children)

    add(0, ROOT, top)
    if len(entries) >= len(block.assocs):
        raise GanglineError(
            f"{len(entries)} associations, expected at most {len(block.assocs) - 1} in a world this size"
        )
    assocs = block.assocs[: len(entries) + 1]
    block.own[0]["num_assocs"] = len(assocs)
    index: dict[tuple[str, str | None], int] = {(ROOT, None): 0}
    _fill_association(assocs[0], NONE, Account(name=ROOT), tres)
    for at, (parent, account, entry) in enumerate(entries, 1):
        _fill_association(assocs[at], parent, entry, tres)
        key = (entry.name, None) if isinstance(entry, Account) else (account, entry.name)
        if key in index:
            what = f"account {key[0]!r}" if key[1] is None else f"user {key[1]!r} of account {key[0]!r}"
            raise GanglineError(f"{what} is defined twice, expected each association once")
        index[key] = at
        assocs[at]["has_limits"] |= assocs[parent]["has_limits"]
        for limit in ("max_jobs", "max_submit", "max_wall_ms"):  # of an account: what those below it inherit
            if assocs[at][limit] < 0:
                assocs[at][limit] = assocs[parent][limit]
        for limit in ("max_tres_per_job", "max_tres_per_node", "max_tres_mins_per_job"):
            assocs[at][limit] = np.where(assocs[at][limit] < 0, assocs[parent][limit], assocs[at][limit])
    first: dict[str, int] = {}
    for at, (_, _, entry) in enumerate(entries, 1):
        assocs[at]["person"] = first.setdefault(entry.name, at) if isinstance(entry, User) else at
    names = [ROOT, *(entry.name for _, _, entry in entries)]
    _fill_levels(config, assocs, names, below, block)
    block.own[0]["num_users"] = int(assocs["is_user"].sum())
    block.own[0]["max_assoc_priority"] = assocs["priority"].max()
    for holder, raw in config.usage.items():
        account, _, user = holder.partition(":")
        if (account, user or None) not in index:
            raise unknown_name("association with usage", holder, (":".join(filter(None, k)) for k in index))
        at = index[account, user or None]
        while at >= 0:
            assocs[at]["raw"] += raw
            at = int(assocs[at]["parent"])
    _match_world(world, index, block)
    return index


def accounts_in(config: SlurmConfig, world: World) -> list[Account | User]:
    """What hangs under root: the configured accounts, else one for each tenant, its entitlement as its shares, with the
    tenant's users below; a user of its own name where it has none.
    """
    if config.accounts:
        return list(config.accounts)
    w = world.record
    users: dict[int, list[str]] = {}
    for u in range(int(w["num_users"])):
        users.setdefault(int(w["users"][u]["tenant"]), []).append(_name(world.names.users, u, "user"))
    return [
        Account(
            name=_name(world.names.tenants, k, "tenant"),
            shares=int(w["tenants"][k]["weight"]),
            children=[User(name=user) for user in users.get(k) or [_name(world.names.tenants, k, "tenant")]],
        )
        for k in range(int(w["num_tenants"]))
    ]


def _name(names: Sequence[str], at: int, kind: str) -> str:
    """A name by its index; worlds over a trace may have none."""
    return names[at] if at < len(names) else f"{kind}-{at}"


def _fill_association(assoc: np.void, parent: int, entry: Account | User, tres: Tres) -> None:
    limits = entry.limits
    assoc["parent"] = parent
    assoc["is_user"] = isinstance(entry, User)
    assoc["is_parent_share"] = entry.shares == "parent"
    assoc["shares"] = 0 if entry.shares == "parent" else entry.shares
    assoc["priority"] = entry.priority
    assoc["has_limits"] = limits != Limits()
    assoc["grp_jobs"] = _limit(limits.grp_jobs)
    assoc["max_jobs"] = _limit(limits.max_jobs)
    assoc["grp_submit"] = _limit(limits.grp_submit)
    assoc["max_submit"] = _limit(limits.max_submit)
    assoc["grp_wall_ms"] = _limit(limits.grp_wall_min, MINUTE_MS)
    assoc["max_wall_ms"] = _limit(limits.max_wall_min, MINUTE_MS)
    assoc["grp_tres"] = tres.limits(limits.grp_tres)
    assoc["grp_tres_mins"] = tres.limits(limits.grp_tres_mins)
    assoc["max_tres_per_job"] = tres.limits(limits.max_tres_per_job)
    assoc["max_tres_per_node"] = tres.limits(limits.max_tres_per_node)
    assoc["max_tres_mins_per_job"] = tres.limits(limits.max_tres_mins_per_job)


def _limit(value: int | None, unit: int = 1) -> int:
    return NO_LIMIT if value is None else value * unit


def _fill_levels(
    config: SlurmConfig,
    assocs: np.ndarray,
    names: Sequence[str],
    below: Mapping[int, list[int]],
    block: SimpleNamespace,
) -> None:
    """Levels of siblings. An account with shares=parent is transparent: its children stand in the level above."""

    def in_list_order(account: int) -> list[int]:
        members = below[account]
        if config.sibling_order == "newest_first":
            return members[::-1]
        return sorted(members, key=lambda at: (not assocs[at]["is_user"], names[at]))

    def level(account: int) -> list[int]:
        found = []
        for at in in_list_order(account):
            is_transparent = assocs[at]["is_parent_share"] and not assocs[at]["is_user"]
            found += level(at) if is_transparent else [at]
        return found

    is_classic = bool(block.own[0]["is_classic"])
    assocs[0]["share_parent"] = NONE
    assocs[0]["norm_shares"] = 1.0 if is_classic else 0.0
    children: list[int] = []
    for account in sorted(below):
        assocs[account]["first_child"] = len(children)
        is_transparent = account > 0 and assocs[account]["is_parent_share"]
        members = [] if is_transparent else level(account)
        assocs[account]["num_children"] = len(members)
        shares = assocs["shares"][members].sum() if members else 0.0
        for place, at in enumerate(members):
            assocs[at]["share_parent"] = account
            assocs[at]["level_shares"] = shares
            assocs[at]["place"] = place
        children += members
    for at in range(1, len(assocs)):
        assoc = assocs[at]
        if assoc["is_parent_share"] and not assoc["is_user"]:  # in no level itself
            above = int(assoc["parent"])
            while above > 0 and assocs[above]["is_parent_share"]:
                above = int(assocs[above]["parent"])
            assoc["share_parent"] = above
        parent = assocs[assoc["share_parent"]]
        if assoc["is_parent_share"]:
            assoc["norm_shares"] = parent["norm_shares"]
        else:
            share = assoc["shares"] / assoc["level_shares"] if assoc["level_shares"] > 0 else 0.0
            assoc["norm_shares"] = share * (parent["norm_shares"] if is_classic else 1.0)
    block.levels[: len(children)] = children


def _match_world(world: World, index: Mapping[tuple[str, str | None], int], block: SimpleNamespace) -> None:
    """The association of each of the world's tenants and users: NONE where nothing of that name exists."""
    w = world.record
    of_tenant = np.full(int(w["num_tenants"]), NONE, np.int64)
    of_user = np.full(int(w["num_users"]), NONE, np.int64)
    for k in range(len(of_tenant)):
        name = _name(world.names.tenants, k, "tenant")
        users = [at for (account, user), at in index.items() if account == name and user is not None]
        of_tenant[k] = index.get((name, name), users[0] if users else index.get((name, None), NONE))
    for u in range(len(of_user)):
        tenant = int(w["users"][u]["tenant"])
        account = _name(world.names.tenants, tenant, "tenant")
        user = _name(world.names.users, u, "user").removesuffix(
            f"@{account}"
        )  # who works for two is two users of a trace
        of_user[u] = index.get((account, user), of_tenant[tenant])
    for k, at in enumerate(of_tenant):
        if at == NONE:
            name = _name(world.names.tenants, k, "tenant")
            raise GanglineError(f"tenant {name!r} is no account, expected one of that name among `accounts`")
    block.assoc_of_tenant[: len(of_tenant)] = of_tenant
    block.assoc_of_user[: len(of_user)] = of_user


# ---------------------------------------------------------------------------------------------------------------
# QOS, partitions, requests
# ---------------------------------------------------------------------------------------------------------------


def _find(named: Sequence[Any], name: str, what: str) -> int:
    for at, entry in enumerate(named):
        if entry.name == name:
            return at
    raise unknown_name(what, name, (entry.name for entry in named))


def _fill_qos(config: SlurmConfig, tres: Tres, block: SimpleNamespace) -> None:
    own = block.own
    found = block.qos[: len(config.qos)]
    own[0]["num_qos"] = len(found)
    for at, entry in enumerate(config.qos):
        record, limits = found[at], entry.limits
        record["priority"] = entry.priority
        record["preempts"] = sum(1 << _find(config.qos, name, "QOS") for name in set(entry.preempts))
        record["mode"] = _mode(entry.preempt_mode)
        record["grace_ms"] = entry.grace_time_s * SECOND_MS
        record["exempt_ms"] = (
            config.preemption.exempt_time_s if entry.exempt_time_s is None else entry.exempt_time_s
        ) * SECOND_MS
        record["usage_factor"] = entry.usage_factor
        record["no_decay"] = "NoDecay" in entry.flags
        record["no_reserve"] = "NoReserve" in entry.flags
        record["is_over_partition"] = "overpartqos" in {flag.lower() for flag in entry.flags}
        record["has_limits"] = limits != Limits()
        record["grp_submit"] = _limit(limits.grp_submit)
        record["max_submit_per_user"] = _limit(limits.max_submit_per_user)
        record["max_submit_per_account"] = _limit(limits.max_submit_per_account)
        record["grp_wall_ms"] = _limit(limits.grp_wall_min, MINUTE_MS)
        record["grp_tres_mins"] = tres.limits(limits.grp_tres_mins)
        record["max_tres_per_node"] = tres.limits(limits.max_tres_per_node)
        record["max_tres_mins_per_job"] = tres.limits(limits.max_tres_mins_per_job)
        record["grp_jobs"] = _limit(limits.grp_jobs)
        record["max_jobs_per_user"] = _limit(limits.max_jobs_per_user)
        record["max_jobs_per_account"] = _limit(limits.max_jobs_per_account)
        record["max_wall_ms"] = _limit(limits.max_wall_min, MINUTE_MS)
        record["grp_tres"] = tres.limits(limits.grp_tres)
        record["max_tres_per_user"] = tres.limits(limits.max_tres_per_user)
        record["max_tres_per_account"] = tres.limits(limits.max_tres_per_account)
        record["max_tres_per_job"] = tres.limits(limits.max_tres_per_job)
    own[0]["max_qos_priority"] = found["priority"].max()
    own[0]["default_qos"] = next((i for i, q in enumerate(config.qos) if q.name == "normal"), 0)


def _fill_partitions(config: SlurmConfig, world: World, tres: Tres, block: SimpleNamespace, words: int) -> None:
    own = block.own
    found = block.partitions[: len(config.partitions)]
    own[0]["num_partitions"] = len(found)
    sets = np.zeros((len(found), words), np.int64)
    w = world.record
    for at, entry in enumerate(config.partitions):
        record = found[at]
        members = _nodes_of(entry, world)
        sets[at] = _as_set(members, words)
        record["tier"] = entry.priority_tier
        record["factor"] = entry.priority_job_factor
        record["max_time_ms"] = NEVER if entry.max_time_min is None else entry.max_time_min * MINUTE_MS
        record["default_time_ms"] = (
            record["max_time_ms"] if entry.default_time_min is None else entry.default_time_min * MINUTE_MS
        )
        record["over_subscribe"] = entry.over_subscribe
        record["exclusive"] = entry.exclusive
        record["lln"] = entry.lln
        record["qos"] = NONE if entry.qos is None else _find(config.qos, entry.qos, "QOS")
        record["mode"] = _mode(entry.preempt_mode)
        record["grace_ms"] = entry.grace_time_s * SECOND_MS
        record["has_weights"] = bool(entry.tres_billing_weights)
        if any(entry.tres_billing_weights.values()) and not tres.weights(entry.tres_billing_weights).any():
            named = ", ".join(name for name, weight in entry.tres_billing_weights.items() if weight)
            raise GanglineError(
                f"partition {entry.name!r}: TRESBillingWeights are of {named}, which this world does not count "
                f"({', '.join(world.names.resources)}): nobody would be charged, all would tie; expected one of these"
            )
        record["weights"] = tres.weights(entry.tres_billing_weights)
        nodes = w["nodes"][members]
        for r in range(int(w["params"]["num_resources"])):
            record["totals"][r] = nodes["capacity"][:, r].sum() / tres.scale[r]
        record["totals"][NODE_TRES] = len(members)
        for n in nodes:
            if 0 <= n["gpu_type"] < BILLING_TRES - TYPE_TRES:
                record["totals"][TYPE_TRES + n["gpu_type"]] += n["num_gpus"]
    own[0]["max_partition_factor"] = found["factor"].max()
    own[0]["default_partition"] = next((i for i, p in enumerate(config.partitions) if p.is_default), 0)
    block.partition_nodes[: sets.size] = sets.reshape(-1)


def _nodes_of(partition: Partition, world: World) -> list[int]:
    if partition.nodes is None:
        return list(range(int(world.record["num_nodes"])))
    return sorted(world.names.find("nodes", name) for name in partition.nodes)


def _as_set(nodes: Iterable[int], words: int) -> np.ndarray:
    """(words,) int64: a bit for each node."""
    bits = np.zeros(words * WORD_BITS, np.uint8)
    bits[list(nodes)] = 1
    return np.packbits(bits, bitorder="little").view(np.int64)


def _fill_requests(
    config: SlurmConfig,
    world: World,
    assocs: Mapping[tuple[str, str | None], int],
    block: SimpleNamespace,
    words: int,
) -> tuple[np.ndarray, np.ndarray]:
    """What submissions said, the different ones; returns (num_jobs,) request and array of each row of the trace.

    The first request is that of jobs that said nothing; no rows are returned where none said anything.
    """
    said = config.requests if isinstance(config.requests, RowRequests) else _by_row(config.requests, world)
    sets: dict[bytes, int] = {}  # sets of nodes -> row of `nodelists`

    def row_of(nodes: Iterable[int]) -> int:
        return sets.setdefault(_as_set(nodes, words).tobytes(), len(sets))

    distinct = [Request(), *said.distinct]
    if len(distinct) > len(block.requests):
        raise GanglineError(f"{len(distinct)} different requests, expected at most {len(block.requests)}")
    block.own[0]["num_requests"] = len(distinct)
    default = next((p.name for p in config.partitions if p.is_default), config.partitions[0].name)
    normal = next((i for i, q in enumerate(config.qos) if q.name == "normal"), 0)
    for at, request in enumerate(distinct):
        record = block.requests[at]
        record["partitions"] = sum(
            1 << _find(config.partitions, p, "partition") for p in set(request.partitions or (default,))
        )
        record["assoc"] = NONE
        if request.account is not None:
            key = (request.account, request.user)
            if key not in assocs:
                raise unknown_name("association of a job", key, assocs)
            record["assoc"] = assocs[key]
        record["qos"] = normal if request.qos is None else _find(config.qos, request.qos, "QOS")
        record["nodelist"] = record["allowed"] = NONE
        if request.nodelist:
            record["nodelist"] = row_of(world.names.find("nodes", n) for n in request.nodelist)
            record["num_listed"] = len(set(request.nodelist))
        if request.exclude or request.constraint is not None:
            record["allowed"] = row_of(_allowed(request, config, world))
        record["nice"] = request.nice
        record["fixed_priority"] = -1 if request.priority is None else request.priority
        record["exclusive"] = request.exclusive
        record["whole_nodes"] = request.whole_nodes
        record["tasks_are_fixed"] = request.tasks_per_node_are_fixed
    if len(sets) > MAX_NODELISTS:
        raise GanglineError(f"{len(sets)} different lists of nodes, expected at most {MAX_NODELISTS}")
    if sets:
        block.nodelists[: len(sets) * words] = np.frombuffer(b"".join(sets), np.int64)
    if len(said.array_limits) > len(block.arrays):
        raise GanglineError(f"{len(said.array_limits)} job arrays, expected at most {len(block.arrays)}")
    arrays = block.arrays[: len(said.array_limits)]
    block.own[0]["num_arrays"] = len(arrays)
    for column in ("failed_pass", "counted_pass", "backfill_pass"):
        arrays[column] = NONE
    arrays["limit"] = said.array_limits
    of_row = np.asarray(said.of_row, np.int32) + 1
    if said.array_of_row is None:
        return of_row, np.full(len(of_row), NONE, np.int32)
    return of_row, np.asarray(said.array_of_row, np.int32)


def _by_row(requests: Mapping[str, Request], world: World) -> RowRequests:
    """Requests by name as requests by row."""
    if not requests:
        return RowRequests(distinct=(), of_row=())
    for name in requests:
        if name not in world.job_names:
            raise unknown_name("job with a request", name, world.job_names)
    distinct: list[Request] = []
    arrays: dict[str, tuple[int, int]] = {}  # name -> (number, limit)
    of_row = np.full(len(world.job_names), -1, np.int32)
    array_of_row = np.full(len(world.job_names), NONE, np.int32)
    for row, name in enumerate(world.job_names):
        request = requests.get(name)
        if request is None:
            continue
        if request.array is not None:
            limit = NO_LIMIT if request.array_limit is None else request.array_limit
            array_of_row[row] = arrays.setdefault(request.array, (len(arrays), limit))[0]
        of_row[row] = len(distinct)
        distinct.append(request)
    limits = [limit for _, limit in arrays.values()]
    return RowRequests(distinct=distinct, of_row=of_row, array_of_row=array_of_row, array_limits=limits)


def _allowed(request: Request, config: SlurmConfig, world: World) -> list[int]:
    """Nodes that a job may have by --exclude and --constraint."""
    excluded = {world.names.find("nodes", name) for name in request.exclude}
    fits = constraint(request.constraint) if request.constraint is not None else None
    return [
        n
        for n, name in enumerate(world.names.nodes[: int(world.record["num_nodes"])])
        if n not in excluded and (fits is None or fits(set(config.node_features.get(name, ()))))
    ]


_CONSTRAINT_WORD = re.compile(r"\s*([()&|,]|[A-Za-z0-9_.:/+=-]+)")


def constraint(text: str) -> Callable[[set[str]], bool]:
    """`a`, `a&b`, `a|b`, `(a|b)&c` as a question to a node's features.

    Raises:
        GanglineError: counts (`a*2`), one-of lists (`[a|b]`), and `&` beside `|` without brackets, which Slurm reads
            from left to right in some versions.
    """
    parts, place = [], 0
    while place < len(text.rstrip()):
        found = _CONSTRAINT_WORD.match(text, place)
        if found is None:
            raise GanglineError(
                f"constraint {text!r}, expected features with & or |, in round brackets where both occur"
            )
        parts.append("&" if found[1] == "," else found[1])
        place = found.end()

    def fail() -> GanglineError:
        return GanglineError(f"constraint {text!r}, expected features with & or |, in brackets ( ) where both occur")

    def group() -> Callable[[set[str]], bool]:
        members, operators = [member()], set()
        while parts and parts[0] in "&|":
            operators.add(parts.pop(0))
            members.append(member())
        if len(operators) > 1:
            raise fail()
        is_any = operators == {"|"}
        return lambda features: (any if is_any else all)(fits(features) for fits in members)

    def member() -> Callable[[set[str]], bool]:
        word = parts.pop(0) if parts else ""
        if word == "(":
            inner = group()
            if not parts or parts.pop(0) != ")":
                raise fail()
            return inner
        if not word or word in ")&|":
            raise fail()
        return lambda features: word in features

    whole = group()
    if parts:
        raise fail()
    return whole
