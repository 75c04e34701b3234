"""Recorded cases of Kueue: its own tests, random worlds and whole histories, run through the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline.baselines.conformance.cases import Outcome
from gangline.baselines.conformance.kueue.runs import RUNS

Case = Mapping[str, Any]


def run_case(about: Case, case: Case) -> Outcome:
    """Run one case through the scheduler that runs in the environment."""
    if case["kind"] not in RUNS:
        return Outcome(skipped=f"kind {case['kind']!r} is not known; known: {', '.join(sorted(RUNS))}")
    return RUNS[case["kind"]](case)
