"""Recorded cases of real systems: read a folder of JSON files, run each case, say what differs.

A file is a list of cases, an object with `cases` (and what it says about all of them), or one case. A system is a
module of this package with `run_case(about, case) -> Outcome`, which runs the case through the scheduler that runs in
the environment.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.envs.errors import GanglineError, unknown_name

Case = Mapping[str, Any]


@dataclass(frozen=True)
class Mismatch:
    """One fact that came out differently."""

    fact: str
    expected: Any
    actual: Any


@dataclass(frozen=True)
class Outcome:
    """What became of a case: passed if nothing differs and it was not skipped."""

    mismatches: tuple[Mismatch, ...] = ()
    skipped: str | None = None  # why it was not run

    @property
    def passed(self) -> bool:
        """Whether every fact came out as recorded."""
        return not self.mismatches and self.skipped is None


@dataclass
class Facts:
    """Collects the facts of a case that differ."""

    found: list[Mismatch]

    def __init__(self) -> None:
        self.found = []

    def check(self, fact: str, expected: Any, actual: Any) -> None:
        """Two values that have to be equal."""
        if expected != actual:
            self.found.append(Mismatch(fact, expected, actual))

    def check_near(self, fact: str, expected: float, actual: float | None, tolerance: float) -> None:
        """Two numbers that may differ by `tolerance`."""
        if actual is None or abs(expected - actual) > tolerance:
            self.found.append(Mismatch(fact, expected, actual))

    def outcome(self) -> Outcome:
        """The case's outcome."""
        return Outcome(tuple(self.found))


def system_names() -> list[str]:
    """Systems whose cases can be run."""
    import gangline.baselines.conformance as package

    return sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.name != "cases")


def runner(system: str) -> Callable[[Case, Case], Outcome]:
    """`run_case` of a system.

    Raises:
        GanglineError: unknown system.
    """
    if system not in system_names():
        raise unknown_name("system", system, system_names())
    run_case: Callable[[Case, Case], Outcome] = importlib.import_module(f"{__package__}.{system}").run_case
    return run_case


def read_cases(folder: Path) -> Iterator[tuple[str, Case, Case]]:
    """(file name, what the file says about all its cases, case) of every JSON file of a folder.

    Raises:
        GanglineError: no such folder, no cases in it, or a file that is not JSON.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise GanglineError(f"{folder} has no JSON files, expected a folder of recorded cases")
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise GanglineError(f"{file} is not JSON ({error}), expected recorded cases") from None
        if isinstance(content, list):
            about, cases = {}, content
        else:
            about = {key: value for key, value in content.items() if key != "cases"}
            cases = content.get("cases", [content])
        for case in cases:
            yield file.name, about, case


def name_of(case: Case) -> str:
    """A case's name, with its variant."""
    return " ".join(str(case[key]) for key in ("id", "name", "variant") if key in case)


def print_report(system: str, folder: Path) -> int:
    """Run every case of a folder, print what differs; returns how many failed. The last line counts."""
    run_case = runner(system)
    passed = failed = skipped = 0
    for file, about, case in read_cases(folder):
        outcome = run_case(about, case)
        if outcome.passed:
            passed += 1
            continue
        where = f"{file}: {name_of(case)}".rstrip(": ")
        if outcome.skipped is not None:
            skipped += 1
            print(f"skipped {where}: {outcome.skipped}")
            continue
        failed += 1
        print(f"failed  {where}")
        for mismatch in outcome.mismatches:
            print(f"        {mismatch.fact}: expected {mismatch.expected!r}, actual {mismatch.actual!r}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed
