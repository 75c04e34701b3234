"""Cases transcribed from Volcano's own tests, and that a wrong expectation is seen."""

from __future__ import annotations

import copy
import json

import pytest
from golden.worlds import GOLDEN

from gangline.__main__ import main
from gangline.baselines.conformance.cases import name_of, read_cases, runner

FOLDER = GOLDEN / "volcano"
FILES = sorted(path.name for path in FOLDER.glob("*.json"))
recorded = pytest.mark.skipif(not FILES, reason=f"no recorded cases in {FOLDER}; GANGLINE_GOLDEN names their folder")
NOT_MODELLED = ("not modelled", "no rule of the baseline")


@recorded
@pytest.mark.parametrize("file", FILES)
def test_every_recorded_case_comes_out_as_recorded(file):
    run_case = runner("volcano")
    num_cases = 0
    for name, about, case in read_cases(FOLDER):
        if name == file:
            outcome = run_case(about, case)
            assert not outcome.mismatches, (name_of(case), outcome)
            assert outcome.passed or any(words in outcome.skipped for words in NOT_MODELLED)
            num_cases += 1
    assert num_cases > 0


def first_case(file):
    return copy.deepcopy(json.loads((FOLDER / file).read_text())[0])


@recorded
@pytest.mark.parametrize(
    ("file", "fact", "wrong"),
    [
        ("allocate.json", "bind_count", 99),
        ("preempt.json", "evict_count", 99),
        ("reclaim.json", "evict_count", 99),
        ("gang_state.json", "value", None),
        ("podgroup_phase.json", "phase", "Pending"),
        ("sla.json", "left_before_right", None),
    ],
)
def test_a_wrong_expectation_is_seen(file, fact, wrong):
    case = first_case(file)
    case["expect"][fact] = wrong
    outcome = runner("volcano")({}, case)
    assert [m.fact for m in outcome.mismatches] == [fact]


@recorded
def test_the_command_counts_and_fails_if_a_case_fails(tmp_path, capsys):
    case = first_case("allocate.json")
    case["expect"]["bind_count"] = 99
    (tmp_path / "allocate.json").write_text(json.dumps([first_case("allocate.json"), case]))
    assert main(["conformance", "volcano", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"
