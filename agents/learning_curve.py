"""How the score grew while an agent was trained: a CSV file in its folder, one line per update."""

from __future__ import annotations

import csv
from pathlib import Path

NAME = "curve.csv"
FIELDS = ("steps", "score")


def add(folder: Path, steps: int, score: float) -> None:
    """Append a line: steps so far, mean return of the last episodes."""
    path = folder / NAME
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(FIELDS)
        writer.writerow([steps, f"{score:.6f}"])


def read(folder: Path) -> list[tuple[int, float]]:
    """(steps, score) of every whole line; empty without a file."""
    path = folder / NAME
    if not path.exists():
        return []
    points = []
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.reader(file):
            try:
                points.append((int(line[0]), float(line[1])))
            except (ValueError, IndexError):
                continue  # the heading, or a line that a kill has cut off
    return points


def cut(folder: Path, steps: int) -> None:
    """Forget what lies beyond a checkpoint: it will be trained again."""
    kept = [point for point in read(folder) if point[0] <= steps]
    (folder / NAME).unlink(missing_ok=True)
    for point in kept:
        add(folder, *point)
