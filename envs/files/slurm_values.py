"""Values as Slurm writes them: times, sizes, host ranges, trackable resources (TRES), generic resources (GRES).

Each parser takes a text and raises `text.Expected`. Source: Slurm's `parse_time.c`, `hostlist.c`, and the manual pages
slurm.conf(5), sacct(1), sbatch(1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from gangline.envs.files.text import Expected, count, real, words

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
MIB = 1 << 20
MAX_HOSTS = 1 << 16
ENDLESS = ("unlimited", "infinite", "none", "-1")

_TIME = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?\Z")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGTP]?)[Bb]?\Z", re.IGNORECASE)
_SIZE_IN_MIB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_COUNT = re.compile(r"(\d{1,15})([KMGTP]?)\Z", re.IGNORECASE)
_TIMES = "a time such as 90 (minutes), 12:00:00, 1-12:00:00, 7-0 or UNLIMITED"


def time_ms(text: str) -> int | None:
    """Milliseconds; None = unlimited.

    `90` minutes, `90:30` minutes:seconds, `12:00:00` hours:minutes:seconds, `7-0` days-hours, `1-12:30`, `1-12:00:00`.
    """
    if text.strip().lower() in ENDLESS:
        return None
    found = _TIME.match(text.strip())
    if found is None:
        raise Expected(_TIMES)
    days, first, second, third = (None if part is None else int(part) for part in found.groups())
    if days is not None:
        seconds = (days * 24 + (first or 0)) * 3600 + (second or 0) * 60 + (third or 0)
    elif third is not None:
        seconds = (first or 0) * 3600 + (second or 0) * 60 + third
    else:
        seconds = (first or 0) * 60 + (second or 0)
    return seconds * SECOND_MS


def finite_time_ms(text: str) -> int:
    """Milliseconds, not unlimited."""
    value = time_ms(text)
    if value is None:
        raise Expected("a time that is not unlimited")
    return value


def seconds_ms(text: str) -> int:
    """A plain number of seconds, as milliseconds."""
    return count(text) * SECOND_MS


def minutes_up(ms: int | None) -> int | None:
    """Whole minutes, rounded up: Slurm's time limits. None = unlimited."""
    return None if ms is None else -(-ms // MINUTE_MS)


def date_ms(text: str) -> int | None:
    """Milliseconds since 1970 of a date of sacct, naive ones read as UTC; None for `Unknown`, `None` and empty.

    `2024-03-01T12:00:00` with or without a zone, or seconds since 1970 (SLURM_TIME_FORMAT=%s).
    """
    text = text.strip()
    if text.lower() in ("", "unknown", "none", "n/a"):
        return None
    if text.isascii() and text.isdigit() and 9 <= len(text) <= 11:
        return int(text) * SECOND_MS
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise Expected("a time such as 2024-03-01T12:00:00, or Unknown") from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()) * SECOND_MS


def size_bytes(text: str) -> int:
    """Bytes of a memory size: `64G`, `512M`, `1.5T`; a bare number is MiB."""
    found = _SIZE.match(text.strip())
    if found is None:
        raise Expected("a size such as 512M, 64G or a number of MiB")
    return round(float(found[1]) * _SIZE_IN_MIB[found[2].upper()] * MIB)


def large_count(text: str) -> int:
    """A count with an optional binary suffix: `8`, `4K`."""
    found = _COUNT.match(text.strip())
    if found is None:
        raise Expected("a count such as 8 or 4K")
    return int(found[1]) * 1024 ** " KMGTP".index(found[2].upper() or " ")


def yes_or_no(text: str) -> bool:
    """YES or NO."""
    value = {"yes": True, "up": True, "true": True, "1": True, "no": False, "down": False, "false": False, "0": False}
    if text.strip().lower() not in value:
        raise Expected("YES or NO")
    return value[text.strip().lower()]


# ---------------------------------------------------------------------------------------------------------------
# Host ranges
# ---------------------------------------------------------------------------------------------------------------


def hosts(text: str) -> tuple[str, ...]:
    """Host names of a range: `n[01-04,7]` is n01 n02 n03 n04 n7; `rack[0-1]n[0-3],login` has nine."""
    found: list[str] = []
    for item in _outside(text, ",", "[", "]"):
        if item.strip():
            found += _expanded(item.strip())
        if len(found) > MAX_HOSTS:
            raise Expected(f"a host range of at most {MAX_HOSTS} names")
    if not found:
        raise Expected("host names such as n[01-04,7]")
    return tuple(found)


def _expanded(item: str) -> list[str]:
    names = [""]
    for part in re.split(r"(\[[^\[\]]*\])", item):
        if part.startswith("["):
            numbers = list(_numbers(part[1:-1]))
            if len(names) * len(numbers) > MAX_HOSTS:
                raise Expected(f"a host range of at most {MAX_HOSTS} names")
            names = [name + number for name in names for number in numbers]
        elif "[" in part or "]" in part or " " in part:
            raise Expected("host names such as n[01-04,7], each bracket closed")
        else:
            names = [name + part for name in names]
    return names


def _numbers(inside: str) -> Iterator[str]:
    """The numbers of `01-04,7`, zeros kept."""
    for span in inside.split(","):
        found = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", span)
        if found is None:
            raise Expected(f"numbers or spans in brackets, such as [01-04,7], not [{inside[:20]}]")
        low, high = int(found[1]), int(found[2] or found[1])
        if high < low:
            raise Expected(f"a span that grows, not {low}-{high}")
        if high - low >= MAX_HOSTS:
            raise Expected(f"a host range of at most {MAX_HOSTS} names")
        for number in range(low, high + 1):
            yield str(number).zfill(len(found[1]))


def _outside(text: str, separator: str, opening: str, closing: str) -> Iterator[str]:
    """Parts between separators that are not inside brackets."""
    depth, start = 0, 0
    for i, sign in enumerate(text):
        if sign == opening:
            depth += 1
        elif sign == closing:
            depth -= 1
        elif sign == separator and depth == 0:
            yield text[start:i]
            start = i + 1
    yield text[start:]


# ---------------------------------------------------------------------------------------------------------------
# Resources
# ---------------------------------------------------------------------------------------------------------------


def tres_name(text: str) -> str:
    """The name of a resource, lower case but for a type: `GRES/gpu:H100` is `gres/gpu:H100`."""
    name, colon, kind = text.strip().partition(":")
    return name.lower() + colon + kind


def tres(text: str) -> dict[str, int]:
    """Trackable resources: `cpu=64,mem=512G,node=8,gres/gpu:h100=64`; memory in bytes."""
    amounts = {}
    for part in words(text):
        name, equals, value = part.partition("=")
        name = tres_name(name)
        if not equals or not name:
            raise Expected("resources such as cpu=64,mem=512G,gres/gpu=8")
        if name == "mem":
            amounts[name] = size_bytes(value)
        elif value.strip() == "-1":
            continue  # sacctmgr's word for "no limit"
        elif name in ("energy", "pages", "vmem") or name.startswith(("fs/", "ic/")):
            continue  # use, not demand; may be a number without sense
        else:
            amounts[name] = large_count(value)
    return amounts


def gpus_of(amounts: dict[str, int]) -> tuple[int, str | None]:
    """(GPUs, their type) of trackable resources; the type is None if it is not said, or if there are several."""
    typed = {name.partition(":")[2]: n for name, n in amounts.items() if name.startswith("gres/gpu:") and n}
    number = amounts.get("gres/gpu", sum(typed.values()))
    return number, next(iter(typed)) if len(typed) == 1 and sum(typed.values()) == number else None


def tres_weights(text: str) -> dict[str, float]:
    """Weights per unit: `CPU=1.0,Mem=0.25G,GRES/gpu=2.0`. Memory per MiB, all others per piece."""
    weights = {}
    for part in words(text):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise Expected("weights such as CPU=1.0,Mem=0.25G,GRES/gpu=2.0")
        found = re.fullmatch(r"(.*?)([KMGTP]?)", value.strip(), re.IGNORECASE | re.DOTALL)
        assert found is not None
        per = _SIZE_IN_MIB[found[2].upper()] if name.strip().lower() == "mem" else 1
        weights[tres_name(name)] = real(found[1]) / per
    return weights


class Gres(NamedTuple):
    """One generic resource: `gpu:h100:8`."""

    name: str
    type: str | None
    number: int


def gres(text: str) -> tuple[Gres, ...]:
    """Generic resources: `gpu:h100:8(S:0-1),nvme:2`, `gpu:8`, `gpu` (= 1)."""
    found = []
    for part in _outside(text, ",", "(", ")"):
        plain = re.sub(r"\([^()]*\)", "", part).strip().removeprefix("gres/").removeprefix("gres:")
        if not plain or plain.lower() in ("(null)", "none", "n/a"):
            continue
        name, *rest = [piece for piece in re.split("[:=]", plain) if piece.lower() != "no_consume"]
        number = 1
        if rest and rest[-1][:1].isdigit() and _COUNT.match(rest[-1]):
            number = large_count(rest.pop())
        if len(rest) > 1 or not name or not all(rest):
            raise Expected("resources such as gpu:8 or gpu:h100:8")
        found.append(Gres(name.lower(), rest[0] if rest else None, number))
    return tuple(found)


def gpu_request(text: str) -> tuple[int, str | None]:
    """GPUs of `--gpus=8`, `--gpus=h100:8`, and the type; several types add up and leave it open."""
    number, types = 0, set()
    for part in words(text):
        kind, colon, amount = part.rpartition(":")
        number += large_count(amount)
        types.add(kind if colon else None)
    return number, types.pop() if len(types) == 1 else None
