"""The one exception that bad input raises: a single line saying what came, what was expected, and the way out."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class GanglineError(ValueError):
    """Bad input. Commands print it as one line and exit with code 2."""


def unknown_name(what: str, name: object, known: Iterable[object]) -> GanglineError:
    """An error for a name that is not known, with the nearest one that is.

    `unknown reward term 'neg_jtc'; known: fairness, neg_jct; did you mean 'neg_jct'?`
    """
    names = sorted(str(k) for k in known)
    near = get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return GanglineError(f"unknown {what} {str(name)!r}; known: {', '.join(names) or '(none)'}{hint}")
