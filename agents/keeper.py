"""What training and a learner agree on: where checkpoints go, when to stop, how progress is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Report = Callable[[int, float | None], None]  # steps so far, running mean of the last episodes' returns


@dataclass
class Keeper:
    """Where and how often a run is checkpointed, and whether it has been asked to stop.

    Attributes:
        folder: the checkpoint goes there.
        every_s: seconds between checkpoints.
        resume: begin from the folder's checkpoint.
        stop: set to end training at the next update, after a checkpoint.
        steps_before: steps of earlier sessions of the run.
    """

    folder: Path
    every_s: float = 60.0
    resume: bool = False
    stop: bool = False
    steps_before: int = 0


class Stopped(Exception):
    """Training was asked to stop; the run can be resumed."""
