"""Cases recorded on a running Slurm, and that a wrong expectation is seen."""

from __future__ import annotations

import copy
import json

import pytest
from golden.worlds import GOLDEN

from gangline.__main__ import main
from gangline.baselines.conformance.cases import name_of, read_cases, runner

FOLDER = GOLDEN / "slurm"
FILES = sorted(path.name for path in FOLDER.glob("*.json"))
recorded = pytest.mark.skipif(not FILES, reason=f"no recorded cases in {FOLDER}; GANGLINE_GOLDEN names their folder")


@recorded
@pytest.mark.parametrize("file", FILES)
def test_every_recorded_case_comes_out_as_recorded(file):
    run_case = runner("slurm")
    num_cases = 0
    for name, about, case in read_cases(FOLDER):
        if name == file:
            outcome = run_case(about, case)
            assert outcome.passed, (name_of(case), outcome)
            num_cases += 1
    assert num_cases > 0


def change_factor(case):
    case["expected"][1]["fairshare"] = 0.25


def change_priority(case):
    case["snapshots"][0]["sprio"][0]["priority"] += 1


def change_nodes(case):
    case["observed"]["p1"]["nodes"] = "n2"


def change_victim(case):
    case["facts"]["victims"][0]["label"] = "low2"


def change_reason(case):
    case["snapshots"][0]["queue"][-1]["reason"] = "Resources"


def change_usage(case):
    at, line = case["log"][1]
    case["log"][1] = [at, line.replace("raw usage is now 201.", "raw usage is now 202.")]


def change_groups(case):
    groups = case["facts"]["start_groups"]
    for first, second in zip(groups[5::4], groups[6::4], strict=False):
        first["labels"], second["labels"] = second["labels"], first["labels"]


def change_a_start(case):
    """Ten seconds later, which only the run from the inputs alone can notice."""
    case["observed"]["j20"]["runs"][0]["start"] += 10


@recorded
@pytest.mark.parametrize(
    ("file", "number", "change"),
    [
        ("fairshare_formulas.json", 1, change_factor),
        ("priorities.json", 0, change_priority),
        ("placement.json", 1, change_nodes),
        ("preemption.json", 0, change_victim),
        ("limits.json", 0, change_reason),
        ("usage.json", 0, change_usage),
        ("histories.json", 1, change_groups),
        ("histories.json", 9, change_a_start),
    ],
)
def test_a_changed_record_fails(file, number, change):
    content = json.loads((FOLDER / file).read_text())
    case = copy.deepcopy(content["cases"][number])
    change(case)
    outcome = runner("slurm")({key: value for key, value in content.items() if key != "cases"}, case)
    assert outcome.mismatches


def test_the_command_counts_and_fails_with_1(tmp_path, capsys):
    tree = [
        {"kind": "acct", "name": "a", "raw_shares": 1, "children": [{"kind": "user", "name": "u", "raw_shares": 1}]}
    ]
    row = {"account": "a", "user": "u", "raw_usage": 5, "fairshare": 0.5}
    case = {"name": "one", "algorithm": "fair_tree", "dampening_factor": 1, "tree": tree, "usage": {"a:u": 5}}
    (tmp_path / "cases.json").write_text(json.dumps({"cases": [{**case, "expected": [row]}]}))
    assert main(["conformance", "slurm", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    wrong = {**row, "fairshare": 1.0}
    (tmp_path / "more.json").write_text(json.dumps([{**case, "expected": [wrong]}, {"name": "unknown"}]))
    assert main(["conformance", "slurm", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 passed, 1 failed, 1 skipped"
    assert any("a:u fairshare: expected 1.0, actual 0.5" in line for line in lines)


@pytest.mark.parametrize(
    ("system", "files", "want"),
    [
        ("slrm", {}, "did you mean 'slurm'"),
        ("slurm", {}, "has no JSON files"),
        ("slurm", {"broken.json": "{"}, "is not JSON"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(system, files, want, tmp_path, capsys):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert main(["conformance", system, str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert want in error and error.count("\n") == 1
