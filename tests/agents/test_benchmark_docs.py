"""The table of metrics in docs/benchmark.md is what the code says. To refresh it, run this file."""

from pathlib import Path

from gangline.agents.results import UNITS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmark.md"
MARK = "<!-- metrics -->"


def table() -> str:
    """Every metric with its unit and its better direction; headline metrics bold."""
    lines = ["| metric | unit | better |", "|---|---|---|"]
    for name, unit in UNITS.items():
        shown = f"**{name}**" if unit.is_headline else name
        lines.append(f"| {shown} | {unit.unit} | {'' if unit.better == 'none' else unit.better} |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_every_metric() -> None:
    assert PAGE.read_text(encoding="utf-8").split(MARK + "\n")[1].strip() == table().strip()


if __name__ == "__main__":
    head = PAGE.read_text(encoding="utf-8").split(MARK)[0]
    PAGE.write_text(f"{head}{MARK}\n\n{table()}", encoding="utf-8")
