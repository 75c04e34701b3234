"""docs/systems.md and its Chinese twin show what the commands print, the same tables in both, and no dead links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gangline.__main__ import main
from gangline.envs.config import scenario_names

DOCS = Path(__file__).resolve().parents[1] / "docs"
FENCE = re.compile(r"```text\n\$ gangline scenario (\w+) ([\w-]+)\n(.*?)```", re.DOTALL)


def tables(page: str) -> dict[tuple[str, str], list[str]]:
    """Printed lines by command."""
    return {(which, name): text.splitlines() for which, name, text in FENCE.findall((DOCS / page).read_text("utf-8"))}


PRINTED = tables("systems.md")


@pytest.mark.slow
@pytest.mark.parametrize(("which", "name"), PRINTED)
def test_the_page_shows_what_the_command_prints(which, name, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="pictures need gangline[train]")
    assert main(["scenario", which, name, "--out", str(tmp_path / "p.png")]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    missing = [line for line in PRINTED[which, name] if line not in printed]
    assert missing == []


def test_both_pages_show_the_same_tables_and_every_scenario():
    assert tables("systems.zh.md") == PRINTED
    assert {name for _, name in PRINTED} == set(scenario_names())


@pytest.mark.parametrize("page", ["systems.md", "systems.zh.md"])
def test_what_the_page_points_at_is_there(page):
    targets = re.findall(r"\]\(([^)]+)\)", (DOCS / page).read_text("utf-8"))
    assert targets and [target for target in targets if not (DOCS / target).exists()] == []
