"""Text files and the two kinds of trouble with them: a value that makes no sense, and words that nobody knows."""

from __future__ import annotations

import gzip
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from gangline.envs.errors import GanglineError

T = TypeVar("T")

MAX_SHOWN = 60  # characters of a value in a message
MAX_LISTED = 12  # unknown words in a warning; all of them are in the result


class Expected(ValueError):
    """A value that will not do; the message is what would: `a whole number`."""


class UnknownWords(UserWarning):
    """Words of a file that nobody here knows and that were passed over."""


def read_text(path: str | Path, what: str, *, lenient: bool = False) -> str:
    """The text of a file: unpacked if it ends in .gz, UTF-8 with or without a byte-order mark.

    Args:
        path: the file.
        what: it is, for messages: `slurm.conf`, `swf trace`.
        lenient: replace bytes that are not UTF-8 instead of refusing the file.

    Raises:
        GanglineError: no such file, not a gzip file, not UTF-8.
    """
    path = Path(path)
    if not path.is_file():
        raise GanglineError(f"{what} {path}: no such file; expected a text file, or one packed as .gz")
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        return content.decode("utf-8-sig", errors="replace" if lenient else "strict")
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise GanglineError(f"{what} {path}: ends in .gz but cannot be unpacked ({error})") from None
        raise GanglineError(f"{what} {path}: {error.strerror}, expected a file that can be read") from None
    except (EOFError, zlib.error) as error:
        raise GanglineError(f"{what} {path}: ends in .gz but cannot be unpacked ({error})") from None
    except UnicodeDecodeError as error:
        raise GanglineError(f"{what} {path}: byte {error.start} is not UTF-8; expected UTF-8 text") from None


def lines_of(text: str) -> list[str]:
    """The lines of a text, Unix or Windows ends; a form feed or the like inside a line does not end it."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def shown(value: object) -> str:
    """A value as it appears in a message: one line, quoted, not longer than `MAX_SHOWN` characters."""
    word = repr(value)
    return word if len(word) <= MAX_SHOWN else f"{word[: MAX_SHOWN - 20]}... ({len(word)} characters)"


def parsed(where: str, name: str, value: object, parse: Callable[[str], T]) -> T:
    """`parse(value)`; what it expected becomes the one line `where: name is value, expected ...`."""
    try:
        return parse(str(value))
    except Expected as error:
        raise GanglineError(f"{where}: {name} is {shown(value)}, expected {error}") from None


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'PriorityWeightAge'?`, or nothing."""
    if len(word) > MAX_SHOWN:
        return ""
    by_lower = {k.lower(): k for k in known}
    near = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.8)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


class Unknown:
    """Collects unknown words of one read, each once, in order of appearance."""

    def __init__(self) -> None:
        self._by_word: dict[str, str] = {}

    def add(self, where: str, word: str, known: Iterable[str] = ()) -> None:
        """Note a word, where it stands first, and what it may have been meant to be."""
        if word not in self._by_word:
            self._by_word[word] = f"{shown(word)[1:-1]} ({where}{nearest(word, known)})"

    def warn(self, file: str, what: str = "unknown, passed over") -> tuple[str, ...]:
        """All of them as `word (where; did you mean ...)`, after one warning if there are any."""
        found = tuple(self._by_word.values())
        if found:
            more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
            warnings.warn(
                f"{file}: {len(found)} {what}: {', '.join(found[:MAX_LISTED])}{more}",
                UnknownWords,
                stacklevel=3,
            )
        return found


# ---------------------------------------------------------------------------------------------------------------
# Simple values. Each takes a text and raises `Expected`.
# ---------------------------------------------------------------------------------------------------------------


def whole(text: str) -> int:
    """A whole number of at most 18 digits."""
    digits = text.strip().removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise Expected("a whole number")
    return int(text)


def count(text: str) -> int:
    """A whole number of at least 0."""
    value = whole(text)
    if value < 0:
        raise Expected("a whole number of at least 0")
    return value


def positive(text: str) -> int:
    """A whole number of at least 1."""
    value = whole(text)
    if value < 1:
        raise Expected("a whole number of at least 1")
    return value


def real(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        raise Expected("a number") from None
    if not abs(value) < 1e300:
        raise Expected("a finite number")
    return value


def word(text: str) -> str:
    """A text that is not empty."""
    if not text.strip():
        raise Expected("a name")
    return text.strip()


def words(text: str) -> tuple[str, ...]:
    """Words between commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def one_of(*known: str) -> Callable[[str], str]:
    """A parser for one of these words, upper or lower case; gives the known spelling."""

    def parse(text: str) -> str:
        for option in known:
            if option.lower() == text.strip().lower():
                return option
        raise Expected(f"one of {', '.join(known)}")

    return parse


def column_index(header: Sequence[str], *names: str) -> int | None:
    """Place of the first of these column names in a header, whatever their case and blanks."""
    plain = ["".join(title.split()).lower() for title in header]
    for name in names:
        if name.lower() in plain:
            return plain.index(name.lower())
    return None
