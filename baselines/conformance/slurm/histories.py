"""Usage line by line. To be written."""

from gangline.baselines.conformance.cases import Case, Outcome


def run_history(about: Case, case: Case) -> Outcome:
    return Outcome(skipped="later")
