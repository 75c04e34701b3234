"""Cases recorded on a running Slurm 22.05.8, run through the Slurm baseline."""

from __future__ import annotations

from gangline.baselines.conformance.cases import Case, Outcome
from gangline.baselines.conformance.slurm.formulas import run_formula, run_transcribed
from gangline.baselines.conformance.slurm.histories import run_history
from gangline.baselines.conformance.slurm.runs import run_recorded
from gangline.baselines.conformance.slurm.usage import run_usage
from gangline.baselines.conformance.slurm.worlds import (
    CPU,
    SECOND_MS,
    SlurmWorld,
    node_changes,
    pods_of,
    slurm_world,
    users_of,
)

__all__ = ["CPU", "SECOND_MS", "SlurmWorld", "node_changes", "pods_of", "run_case", "slurm_world", "users_of"]


def run_case(about: Case, case: Case) -> Outcome:
    """One case of any kind: a formula, a recorded run, usage line by line, or a history."""
    if "tree" in case:
        return run_formula(case)
    if "associations" in case:
        return run_transcribed(case)
    if "cluster" not in about or "jobs" not in case:
        return Outcome(skipped="neither a formula nor a run")
    if any("runs" in observed for observed in case["observed"].values()):
        return run_history(about, case)
    if any("new usage to assoc" in line for _, line in case.get("log", ())):
        return run_usage(about, case)
    return run_recorded(about, case)
