"""Accounts, users and QOS from Slurm's accounting: `sacctmgr show assoc -P`, `sacctmgr dump`, `sacctmgr show qos -P`.

    sacctmgr -P show assoc tree > assoc.txt        # or format=cluster,account,parentname,user,share,...
    sacctmgr dump mycluster file=cluster.cfg
    sacctmgr -P show qos > qos.txt

`read_accounts` takes either of the first two and tells them apart; `read_qos` the third. The parent of an account
comes from the column ParentName, from Lineage, or from the blanks that `tree` puts before a name. Account names are
lower case, as Slurm stores them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gangline.envs.errors import GanglineError
from gangline.envs.files.slurm_values import seconds_ms, time_ms, tres
from gangline.envs.files.text import Expected, Unknown, count, lines_of, parsed, read_text, real, shown, whole, words

ROOT = "root"
MAX_DEPTH = 100
SHARES_PARENT = "parent"


def shares(text: str) -> int | str:
    """A number of shares, or `parent`."""
    if text.strip().lower() == SHARES_PARENT:
        return SHARES_PARENT
    try:
        return count(text)
    except Expected:
        raise Expected("a whole number of at least 0, or parent") from None


def limit(text: str) -> int | None:
    """A whole number; None for -1."""
    value = whole(text)
    return None if value < 0 else value


# Our name: (how to read it, the names it has in `show -P` and in `dump`, lower case without blanks)
LIMITS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "shares": (shares, ("share", "shares", "fairshare", "rawshares")),
    "priority": (count, ("priority",)),
    "grp_jobs": (limit, ("grpjobs",)),
    "grp_jobs_accrue": (limit, ("grpjobsaccrue",)),
    "grp_submit": (limit, ("grpsubmit", "grpsubmitjobs")),
    "grp_tres": (tres, ("grptres",)),
    "grp_tres_mins": (tres, ("grptresmins",)),
    "grp_tres_run_mins": (tres, ("grptresrunmins", "grptresrunmin")),
    "grp_wall_ms": (time_ms, ("grpwall", "grpwallduration")),
    "max_jobs": (limit, ("maxjobs",)),
    "max_jobs_accrue": (limit, ("maxjobsaccrue",)),
    "max_submit": (limit, ("maxsubmit", "maxsubmitjobs")),
    "max_tres": (tres, ("maxtres", "maxtresperjob", "maxtrespj")),
    "max_tres_per_node": (tres, ("maxtrespernode", "maxtrespn")),
    "max_tres_mins": (tres, ("maxtresmins", "maxtresminsperjob", "maxtresminspj")),
    "max_wall_ms": (time_ms, ("maxwall", "maxwallduration", "maxwalldurationperjob")),
    "qos": (words, ("qos",)),
    "default_qos": (str.strip, ("defqos", "defaultqos")),
    "number": (count, ("id",)),
}
COLUMNS = (
    "cluster",
    "account",
    "user",
    "partition",
    "parname",
    "parentname",
    "lineage",
    "lft",
    "rgt",
    "parentid",
)
PASSED_OVER = (
    *("description", "descr", "organization", "org", "defaultaccount", "defaultwckey", "adminlevel", "admin"),
    *("coordinators", "coord", "classification", "comment", "flags", "islimit", "defaultuser", "isdefault"),
    *("maxtresrunmins", "maxtresrunmin", "grpcpus", "grpmem", "grpnodes", "maxcpus", "maxnodes", "maxnodesperjob"),
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What associations and qualities of service limit alike; not set: None (numbers, times) or empty (TRES)."""

    grp_jobs: int | None = None
    grp_jobs_accrue: int | None = None
    grp_submit: int | None = None
    grp_tres: Mapping[str, int] = field(default_factory=dict)
    grp_tres_mins: Mapping[str, int] = field(default_factory=dict)
    grp_tres_run_mins: Mapping[str, int] = field(default_factory=dict)
    grp_wall_ms: int | None = None
    max_tres: Mapping[str, int] = field(default_factory=dict)
    max_tres_per_node: Mapping[str, int] = field(default_factory=dict)
    max_tres_mins: Mapping[str, int] = field(default_factory=dict)
    max_wall_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class Association(Limits):
    """An account, or a user in an account."""

    account: str
    user: str | None = None  # None = the account itself
    parent: str | None = None  # of an account: the account above; of a user: the account; None = root
    partition: str | None = None
    shares: int | str = 1  # or SHARES_PARENT
    priority: int = 0
    max_jobs: int | None = None
    max_jobs_accrue: int | None = None
    max_submit: int | None = None
    qos: tuple[str, ...] = ()
    default_qos: str | None = None
    number: int | None = None  # in order of creation
    given: Mapping[str, str] = field(default_factory=dict)  # title (lower case, no blanks) -> text


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """The tree of accounts, as rows in the order of the file.

    Attributes:
        cluster: whose it is; "" where the file does not say.
        rows: accounts and users; every account comes before what is below it.
        unknown: words of the file that were passed over, with their place.
    """

    cluster: str
    rows: tuple[Association, ...]
    unknown: tuple[str, ...] = ()

    @cached_property
    def _below(self) -> dict[str | None, list[Association]]:
        below: dict[str | None, list[Association]] = {}
        for row in self.rows:
            below.setdefault(row.parent, []).append(row)
        return below

    @property
    def accounts(self) -> tuple[Association, ...]:
        """The accounts, root left out."""
        return tuple(row for row in self.rows if row.user is None and row.account != ROOT)

    @property
    def users(self) -> tuple[Association, ...]:
        """The users, one row for each account that they are in."""
        return tuple(row for row in self.rows if row.user is not None)

    def children(self, account: str = ROOT) -> tuple[Association, ...]:
        """What stands directly below an account, in order of the file."""
        return tuple(self._below.get(account, ()))

    def nested(self, account: str = ROOT) -> list[dict[str, Any]]:
        """The tree below an account: `{name, shares, set, children}` of accounts, `{name, shares, set}` of users.

        `set` holds the limits as the file words them. Users of root, with whom Slurm starts every tree, are left out.
        """
        tree: list[dict[str, Any]] = []
        for row in self.children(account):
            limits = {k: v for k, v in row.given.items() if k not in (*LIMITS["shares"][1], *COLUMNS, "id")}
            if row.user is None:
                children = self.nested(row.account)
                tree.append({"name": row.account, "shares": row.shares, "set": limits, "children": children})
            elif account != ROOT:
                tree.append({"name": row.user, "shares": row.shares, "set": limits})
        return tree


@dataclass(frozen=True, kw_only=True)
class Qos(Limits):
    """A quality of service."""

    name: str
    priority: int = 0
    preempt: tuple[str, ...] = ()  # QOS whose jobs its jobs may preempt
    preempt_mode: str | None = None  # lower case; None = the cluster's
    preempt_exempt_ms: int | None = None
    grace_ms: int = 0
    flags: tuple[str, ...] = ()
    usage_factor: float = 1.0
    usage_threshold: float | None = None
    limit_factor: float = 1.0
    min_tres: Mapping[str, int] = field(default_factory=dict)
    max_tres_per_user: Mapping[str, int] = field(default_factory=dict)
    max_tres_per_account: Mapping[str, int] = field(default_factory=dict)
    max_jobs_per_user: int | None = None
    max_jobs_per_account: int | None = None
    max_submit_per_user: int | None = None
    max_submit_per_account: int | None = None
    max_jobs_accrue_per_user: int | None = None
    max_jobs_accrue_per_account: int | None = None
    given: Mapping[str, str] = field(default_factory=dict)  # title (lower case, no blanks) -> text


def own_mode(text: str) -> str | None:
    """Preemption modes, lower case, between commas; None for `cluster`."""
    modes = [mode.lower() for mode in words(text)]
    for mode in modes:
        if mode not in ("cluster", "off", "cancel", "requeue", "suspend", "gang", "within", "priority"):
            raise Expected("a preemption mode: cluster, off, cancel, requeue, suspend")
    return ",".join(mode for mode in modes if mode != "cluster") or None


def grace_ms(text: str) -> int:
    """Seconds, or a time, as milliseconds."""
    return seconds_ms(text) if ":" not in text else (time_ms(text) or 0)


QOS: dict[str, tuple[Any, tuple[str, ...]]] = {
    **{k: LIMITS[k] for k in ("priority", "max_tres", "max_tres_per_node", "max_tres_mins", "max_wall_ms")},
    **{k: v for k, v in LIMITS.items() if k.startswith("grp_")},
    "preempt": (words, ("preempt",)),
    "preempt_mode": (own_mode, ("preemptmode",)),
    "preempt_exempt_ms": (time_ms, ("preemptexempttime",)),
    "grace_ms": (grace_ms, ("gracetime",)),
    "flags": (words, ("flags",)),
    "usage_factor": (real, ("usagefactor",)),
    "usage_threshold": (real, ("usagethres", "usagethreshold")),
    "limit_factor": (real, ("limitfactor",)),
    "min_tres": (tres, ("mintres", "mintresperjob", "mintrespj")),
    "max_tres_per_user": (tres, ("maxtrespu", "maxtresperuser")),
    "max_tres_per_account": (tres, ("maxtrespa", "maxtresperaccount", "maxtresperacct")),
    "max_jobs_per_user": (limit, ("maxjobspu", "maxjobsperuser")),
    "max_jobs_per_account": (limit, ("maxjobspa", "maxjobsperaccount", "maxjobsperacct")),
    "max_submit_per_user": (limit, ("maxsubmitpu", "maxsubmitjobspu", "maxsubmitjobsperuser", "maxsubmitperuser")),
    "max_submit_per_account": (limit, ("maxsubmitpa", "maxsubmitjobspa", "maxsubmitjobsperaccount")),
    "max_jobs_accrue_per_user": (limit, ("maxjobsaccruepu", "maxjobsaccrueperuser")),
    "max_jobs_accrue_per_account": (limit, ("maxjobsaccruepa", "maxjobsaccrueperaccount")),
}
QOS_PASSED_OVER = ("name", "id", "descr", "description", "maxtresrunminspu", "maxtresrunminspa", "mintrespernode")


def read_accounts(path: str | Path) -> Accounts:
    """Read the tree of accounts from `sacctmgr show assoc -P` or from `sacctmgr dump`.

    Raises:
        GanglineError: one line with file and line: neither form, a column that is missing, a wrong number, a parent
            that is not there.
    """
    lines = lines_of(read_text(path, "accounts"))
    if any(re.match(r"\s*(Cluster|Parent|Account|User)\s+-\s+'", line) for line in lines[:200]):
        cluster, found = _dumped(lines, str(path))
    else:
        cluster, found = _shown(lines, str(path))
    _check_tree(found, str(path))
    unknown = Unknown()
    rows = [
        Association(
            account=account,
            user=user,
            parent=parent,
            partition=given.get("partition") or None,
            given={k: v for k, v in given.items() if v},
            **_values(given, LIMITS, (*COLUMNS, *PASSED_OVER), where, unknown),
        )
        for account, user, parent, given, where in found
    ]
    return Accounts(cluster=cluster, rows=tuple(rows), unknown=unknown.warn(str(path)))


def read_qos(path: str | Path) -> dict[str, Qos]:
    """Read `sacctmgr show qos -P`: QOS by name, in order of the file.

    Raises:
        GanglineError: one line with file and line: no column Name, a wrong number, a QOS that preempts one that is not
            there.
    """
    unknown = Unknown()
    found: dict[str, Qos] = {}
    for row, where in _table(lines_of(read_text(path, "qos")), f"qos {path}", ("name",), "sacctmgr show qos -P"):
        name = row["name"].strip()
        if not name or name in found:
            raise GanglineError(f"{where}: Name is {shown(name)}, expected a name that no other line has")
        given = {k: v for k, v in row.items() if v.strip() and k != "name"}
        found[name] = Qos(name=name, given=given, **_values(row, QOS, QOS_PASSED_OVER, where, unknown))
    for qos in found.values():
        for victim in qos.preempt:
            if victim not in found:
                raise GanglineError(f"qos {path}: {qos.name} preempts {shown(victim)}, expected a QOS of this file")
    unknown.warn(str(path))
    return found


def _values(
    given: Mapping[str, str],
    known: Mapping[str, tuple[Any, tuple[str, ...]]],
    passed_over: Iterable[str],
    where: str,
    unknown: Unknown,
) -> dict[str, Any]:
    """The values that are there, by our names."""
    ours = {title: (name, parse) for name, (parse, titles) in known.items() for title in titles}
    skipped = set(passed_over)
    values = {}
    for title, text in given.items():
        if title in ours and text.strip():
            name, parse = ours[title]
            values[name] = parsed(where, title, text.strip(), parse)
        elif title not in ours and title not in skipped:
            unknown.add(where, title, ours)
    return values


# ---------------------------------------------------------------------------------------------------------------
# The two forms
# ---------------------------------------------------------------------------------------------------------------

_Row = tuple[str, str | None, str | None, dict[str, str], str]  # account, user, parent, given, where


def _table(lines: list[str], what: str, needed: tuple[str, ...], command: str) -> Iterator[tuple[dict[str, str], str]]:
    """Rows of a table between `|`, by title (lower case, no blanks), with their place."""
    start = next((i for i, line in enumerate(lines) if line.strip()), None)
    if start is None:
        raise GanglineError(f"{what}: is empty, expected the output of {command}")
    titles = ["".join(title.split()).lower() for title in lines[start].split("|")]
    for title in needed:
        if title not in titles:
            found = shown(lines[start]) if "|" not in lines[start] else ", ".join(t for t in titles[:12] if t)
            raise GanglineError(f"{what}: no column {title!r}, expected the output of {command}; found {found}")
    for number, line in enumerate(lines[start + 1 :], start + 2):
        if not line.strip():
            continue
        fields = line.split("|")
        if len(fields) != len(titles):
            raise GanglineError(
                f"{what} line {number}: {len(fields)} fields, expected {len(titles)}, as in its first line; cut off?"
            )
        yield dict(zip(titles, fields, strict=True)), f"{what} line {number}"


def _shown(lines: list[str], path: str) -> tuple[str, list[_Row]]:
    """`sacctmgr show assoc -P`."""
    command = "sacctmgr -P show assoc tree"
    table = list(_table(lines, f"accounts {path}", ("account", "user"), command))
    clusters = dict.fromkeys(row.get("cluster", "").strip() for row, _ in table)
    if len(clusters) > 1:
        raise GanglineError(f"accounts {path}: clusters {', '.join(clusters)}, expected one; add cluster=NAME")
    has_parent = bool(table) and any(title in table[0][0] for title in ("parname", "parentname", "lineage"))
    above: list[tuple[int, str]] = []  # (blanks, account) of the accounts that the line may stand under
    rows: list[_Row] = []
    for row, where in table:
        account, user = row["account"].strip().lower(), row["user"].strip() or None
        if not account:
            raise GanglineError(f"{where}: account is empty, expected a name")
        parent = _parent_named(row)
        if not has_parent:
            blanks = len(row["account"]) - len(row["account"].lstrip(" "))
            while above and (above[-1][0] >= blanks) and user is None:
                above.pop()
            parent = above[-1][1] if above else None
            if user is None:
                above.append((blanks, account))
        if user is not None:
            parent = account
        elif account == ROOT:
            parent = None
        rows.append((account, user, parent or (None if account == ROOT else ROOT), row, where))
    accounts = {account for account, user, *_ in rows if user is None} | {ROOT}
    for account, user, parent, _, where in rows:
        if parent is not None and parent not in accounts:
            kind = "user" if user else "account"
            raise GanglineError(
                f"{where}: {kind} {shown(user or account)} is under {shown(parent)}, expected an account of this file"
            )
    return next(iter(clusters), ""), rows


def _parent_named(row: Mapping[str, str]) -> str | None:
    """The parent that a column names: ParentName, or the last but one of Lineage (`/a/b/0-user/`)."""
    named = (row.get("parname") or row.get("parentname") or "").strip().lower()
    if named:
        return named
    path = [part for part in row.get("lineage", "").strip().lower().split("/") if part and not part.startswith("0-")]
    return path[-2] if len(path) > 1 else None


def _check_tree(rows: list[_Row], path: str) -> None:
    """Each account and user of an account is there once, and no account is above itself."""
    seen: set[tuple[str, str | None, str]] = set()
    for account, user, above, given, where in rows:
        key = (account, user, given.get("partition", ""))
        what = f"account {shown(account)}" if user is None else f"user {shown(user)} of account {shown(account)}"
        if key in seen:
            raise GanglineError(f"{where}: {what} is there already, expected each once")
        if user is None and above is not None and account == ROOT:
            raise GanglineError(f"{where}: account 'root' is under {shown(above)}, expected it at the top")
        seen.add(key)
    parent = {account: above for account, user, above, *_ in rows if user is None}
    for account in parent:
        depth, at = 0, parent[account]
        while at is not None and at != ROOT:
            depth, at = depth + 1, parent.get(at)
            if depth > MAX_DEPTH:  # Slurm has no limit, but nobody has hundreds of levels
                raise GanglineError(
                    f"accounts {path}: account {shown(account)} is above itself, or more than {MAX_DEPTH} levels deep; "
                    "expected a tree"
                )


_DUMPED = re.compile(r"\s*(Cluster|Parent|Account|User)\s+-\s+'([^']*)'\s*(?::(.*))?\Z", re.DOTALL)


def _dumped(lines: list[str], path: str) -> tuple[str, list[_Row]]:
    """`sacctmgr dump`."""
    cluster, parent = "", ROOT
    accounts = {ROOT}
    rows: list[_Row] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"accounts {path} line {number}"
        found = _DUMPED.match(line)
        if found is None:
            raise GanglineError(f"{where}: {shown(line)}, expected Cluster, Parent, Account or User - 'name':Key=value")
        kind, name, options = found[1], found[2], _options(found[3] or "", where)
        if kind == "Cluster":
            cluster = name
            rows.append((ROOT, None, None, options, where))
        elif kind == "Parent":
            parent = name.lower()
            if parent not in accounts:
                raise GanglineError(f"{where}: no account {shown(name)} yet, expected one of a line above")
        elif kind == "Account":
            accounts.add(name.lower())
            rows.append((name.lower(), None, parent, options, where))
        else:
            rows.append((parent, name, parent, options, where))
    return cluster, rows


def _options(text: str, where: str) -> dict[str, str]:
    """`Fairshare=40:GrpTRES=gres/gpu:h100=8:Description='a: b'`; the colon of a GPU type does not end a value."""
    options: dict[str, str] = {}
    last = ""
    for part in _outside_quotes(text, ":"):
        if last and re.search(r"gres/[\w.-]+\Z", options[last]):
            options[last] += f":{part}"
            continue
        key, equals, value = part.partition("=")
        if not equals:
            if not part.strip():
                continue
            raise GanglineError(f"{where}: {shown(part)}, expected Key=value between colons")
        last = key.strip().lower()
        options[last] = value.strip().strip("'")
    return options


def _outside_quotes(text: str, separator: str) -> Iterator[str]:
    """Parts between separators that are not inside single quotes."""
    quoted, start = False, 0
    for found in re.finditer(f"['{separator}]", text):
        if found[0] == "'":
            quoted = not quoted
        elif not quoted:
            yield text[start : found.start()]
            start = found.end()
    yield text[start:]
