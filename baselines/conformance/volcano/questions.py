"""State cases: a question about one rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gangline.baselines.conformance.cases import Outcome

Case = Mapping[str, Any]

QUESTIONS: dict[str, Callable[[Case], Outcome]] = {}
