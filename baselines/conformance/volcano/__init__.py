"""Recorded cases of Volcano, transcribed from its own tests, run through the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline.baselines.conformance.cases import Outcome
from gangline.baselines.conformance.volcano.questions import QUESTIONS
from gangline.baselines.conformance.volcano.runs import RUNS

Case = Mapping[str, Any]


def run_case(about: Case, case: Case) -> Outcome:
    """Run one case through the scheduler that runs in the environment."""
    known = {**RUNS, **QUESTIONS}
    if case["kind"] not in known:
        return Outcome(skipped=f"kind {case['kind']!r} is not known; known: {', '.join(sorted(known))}")
    return known[case["kind"]](case)
