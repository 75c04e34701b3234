"""Formula cases: a tree of accounts with usage in, the columns of `sshare -l` out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from gangline.baselines.conformance.cases import Case, Facts, Outcome
from gangline.baselines.conformance.slurm.worlds import accounts_of
from gangline.baselines.slurm.config import Account, Priority, SiblingOrder, SlurmConfig, User
from gangline.baselines.slurm.fair_share import refresh_fair_share
from gangline.baselines.slurm.setup import block_for
from gangline.baselines.slurm.tables import block_dtype, opened
from gangline.envs.core.compiled import kernel
from gangline.envs.core.spec import WorldSpec
from gangline.envs.core.types import SIZE_CLASSES
from gangline.envs.core.world import World

TOLERANCE = 1e-6  # six printed decimals
COLUMNS = {
    "norm_shares": "norm_shares",
    "norm_usage": "norm_usage",
    "effectv_usage": "effective",
    "fairshare": "factor",
    "level_fs": "level_fs",
}


BLOCK = block_dtype(SIZE_CLASSES[0])
BLOCK_BYTES = BLOCK.itemsize


@kernel
def refresh(private: Any) -> None:
    """Bring the factors of a scheduler's record in line with its usage."""
    refresh_fair_share(private[:BLOCK_BYTES].view(BLOCK)[0])


def run_formula(case: Case) -> Outcome:
    """Every association's row as `sshare -l` printed it; another documented order of siblings, and what it implies."""
    facts = Facts()
    config = SlurmConfig(
        priority=Priority(
            flags=frozenset({"NO_FAIR_TREE"} if case["algorithm"] == "classic" else ()),
            dampening_factor=case["dampening_factor"],
            decay_half_life_s=0,
        ),
        accounts=accounts_of(case["tree"]),
        usage=case["usage"],
    )
    check_rows(facts, case["expected"], association_rows(config, case["usage"]))
    other = case.get("derived_if_siblings_alphabetical")
    if other is not None:
        rows = association_rows(config, case["usage"], "alphabetical")
        for key, factor in other["fairshare"].items():
            account, _, user = key.partition(":")
            facts.check_near(
                f"{key} fairshare, siblings alphabetical", factor, rows[account, user]["factor"], TOLERANCE
            )
    return facts.outcome()


def run_transcribed(case: Case) -> Outcome:
    """An upstream test restated: classic, no user under root, usage on users only."""
    facts = Facts()
    below: dict[int | None, list[Mapping[str, Any]]] = {}
    for line in case["associations"]:
        below.setdefault(line["parent"], []).append(line)
    top = below[None][0]["id"]

    def entries(parent: int) -> list[Account | User]:
        found: list[Account | User] = []
        for line in below.get(parent, ()):
            if line["user"] is None:
                found.append(Account(name=line["account"], shares=line["raw_shares"], children=entries(line["id"])))
            else:
                found.append(User(name=line["user"], shares=line["raw_shares"]))
        return found

    usage = {f"{a['account']}:{a['user']}": a["raw_usage_on_record"] for a in case["associations"] if a["user"]}
    config = SlurmConfig(
        priority=Priority(flags=frozenset({"NO_FAIR_TREE"}), decay_half_life_s=0),
        accounts=entries(top),
        root_user_shares=None,
        usage=usage,
    )
    check_rows(facts, case["expected"], association_rows(config, usage))
    return facts.outcome()


def association_rows(
    config: SlurmConfig, usage: Mapping[str, float], siblings: SiblingOrder = "newest_first"
) -> dict[tuple[str, str | None], np.void]:
    """Associations of a configuration by (account, user), their factors computed from `usage`."""
    empty = World.from_state(WorldSpec(resources=("cpu",), gpu_resource=None))
    config = SlurmConfig(
        priority=config.priority,
        accounts=config.accounts,
        root_user_shares=config.root_user_shares,
        usage=usage,
        sibling_order=siblings,
    )
    block = block_for(config, empty)
    refresh(block)
    names = list(association_names(config))
    return dict(zip(names, opened(block, empty.size).assocs[: len(names)], strict=True))


def association_names(config: SlurmConfig) -> Iterator[tuple[str, str | None]]:
    """(account, user) of each association, in the order of the table."""
    yield "root", None
    if config.root_user_shares is not None:
        yield "root", "root"
    yield from _names_below("root", config.accounts)


def _names_below(account: str, entries: Iterable[Account | User]) -> Iterator[tuple[str, str | None]]:
    for entry in entries:
        if isinstance(entry, User):
            yield account, entry.name
        else:
            yield entry.name, None
            yield from _names_below(entry.name, entry.children)


def check_rows(
    facts: Facts, expected: Iterable[Mapping[str, Any]], rows: Mapping[tuple[str, str | None], Any], when: str = ""
) -> None:
    """Compare rows of sshare, column by column; what it did not print is not compared."""
    for line in expected:
        who = f"{when}{line['account']}:{line['user'] or ''}"
        row = rows.get((line["account"], line["user"]))
        if row is None:
            facts.check(who, line, None)
            continue
        if line["raw_usage"] is not None:
            facts.check(f"{who} raw_usage", line["raw_usage"], int(row["raw"]))
        for column, field in COLUMNS.items():
            want = line.get(column)
            if want is None:
                continue
            actual, want = float(row[field]), float(want)
            slack = TOLERANCE * max(1.0, abs(want)) if column == "level_fs" and math.isfinite(want) else TOLERANCE
            if actual != want:
                facts.check_near(f"{who} {column}", want, actual, slack)
