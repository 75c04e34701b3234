"""The world that a Slurm site is: the nodes of its slurm.conf, tenants and users of its accounting; what jobs asked.

conf, trace = slurm_conf.read("slurm.conf"), load("sacct", "march.txt")
world = World(world_of(conf, trace, sacctmgr.read_accounts("assoc.txt")), trace)
world.run(scheduler)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gangline.envs.core.spec import OptionsSpec, TenantSpec, UserSpec, WorldSpec
from gangline.envs.core.trace import JobTrace
from gangline.envs.errors import GanglineError
from gangline.envs.files import sacctmgr, slurm_conf

SECOND_MS = 1000
REQUEUE_HOLD_MS = 121 * SECOND_MS  # with Slurm's default, 120 s
LIMIT_CHECK_MS = 30 * SECOND_MS


@dataclass(frozen=True)
class Submission:
    """What a job asked for beyond its amounts, as far as sacct tells.

    Attributes:
        partitions, qos, constraint: as printed; empty or "" where the column is not there.
        array: id of the array that it is an element of; None = none.
        array_limit: elements that run at once; sacct says so only while elements wait. None = not said.
        whole_nodes: each pod is its part of one node.
    """

    partitions: tuple[str, ...] = ()
    qos: str = ""
    constraint: str = ""
    array: str | None = None
    array_limit: int | None = None
    whole_nodes: bool = False


def world_of(conf: slurm_conf.SlurmConf, trace: JobTrace, accounts: sacctmgr.Accounts | None = None) -> WorldSpec:
    """The site's nodes, and the tenants and users of a trace, for `World(world_of(...), trace)`.

    A tenant's weight is its account's shares; 1 where there are none. Checkpoints are the trace's business.
    """
    shares = {} if accounts is None else {row.account: row.shares for row in accounts.accounts}
    nodes = [
        replace(node, amounts={name: node.amounts[name] for name in trace.resources if name in node.amounts})
        for node in conf.node_specs()
    ]
    typed = () if trace.flavors == ("default",) else trace.flavors  # jobs name flavors by index: theirs come first
    if not any(node.amounts.get("gpu") for node in nodes):
        raise GanglineError(f"{conf.path}: no node with GPUs, expected NodeName lines with Gres=gpu:8 or the like")
    return WorldSpec(
        resources=trace.resources,
        flavors=tuple(dict.fromkeys([*typed, *(node.flavor for node in nodes)])),
        nodes=nodes,
        tenants=[TenantSpec(name=name, weight=_weight(shares.get(name, 1))) for name in trace.tenants],
        users=[
            UserSpec(name=name, tenant=trace.tenants[int(tenant)])
            for name, tenant in zip(trace.users, trace.user_tenant, strict=True)
        ],
        options=OptionsSpec(
            half_life_ms=conf.value("PriorityDecayHalfLife") or None,
            limit_check_ms=LIMIT_CHECK_MS,
            requeue_hold_ms=requeue_hold_ms(conf),
            locality_topology="",
        ),
    )


def requeue_hold_ms(conf: slurm_conf.SlurmConf) -> int:
    """How long a requeued job sits out: the life of its credential (AuthInfo=cred_expire=SECONDS) and a second."""
    for word in conf.value("AuthInfo"):
        name, _, value = word.partition("=")
        if name == "cred_expire" and value.isdecimal():
            return (int(value) + 1) * SECOND_MS
    return REQUEUE_HOLD_MS


def _weight(shares: int | str) -> int:
    """Shares as a weight; an account that shares its parent's standing counts once."""
    return shares if isinstance(shares, int) else 1
