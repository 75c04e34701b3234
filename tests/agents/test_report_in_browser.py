"""The report in a real browser: it draws, says nothing on the console, and hover, zoom and slider work.

Needs Debian's chromium (`apt-get install chromium`) and playwright (`pip install "gangline[browser]"`); `.ci/run
browser` installs both.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.test_benchmark import TENANTS, benchmark, busy_rows, world
from gangline.__main__ import main

pytest.importorskip("pyarrow")
pytest.importorskip("plotly")
api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: apt-get install chromium")

SECTIONS = ("overview", "metrics", "split", "tenants", "waits", "flows", "fragmentation", "gantt")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a small benchmark at two loads, with jobs and tenants of hostile names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("report")
    world(folder, busy_rows(120))
    assert benchmark(folder, folder / "out", "--traces", "3", "--loads", "0.6,0.9") == 0
    for file in (folder / "out").glob("runs/*/0/*.parquet"):
        table = pq.read_table(file)
        names = [f"<img src=x onerror=alert(1)> {i}" for i in range(table.num_rows)]
        pq.write_table(table.set_column(table.schema.get_field_index("job"), "job", pa.array(names)), file)
    assert main(["report", str(folder / "out")]) == 0
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """The report, opened without a network; fails on anything that the console or a dialog says, or that is fetched."""
    said: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, offline=True)
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: None if request.url.startswith("file:") else said.append(request.url))
    page.goto(report.as_uri())
    page.wait_for_selector("#frontier .main-svg")
    yield page
    page.wait_for_timeout(200)
    assert said == []
    context.close()


def draw_all(page: Any) -> None:
    for name in SECTIONS:
        page.locator(f"#{name}").scroll_into_view_if_needed()
        page.wait_for_selector(f"#{name} .main-svg")


def test_it_opens_quickly_and_is_small(browser: Any, report: Path) -> None:
    """Measured beside other loads: 0.4 s (second time), 2.1 s (first); the bound leaves room for a busy machine."""
    assert report.stat().st_size < 10_000_000
    page = browser.new_page()
    began = time.perf_counter()
    page.goto(report.as_uri())
    page.wait_for_selector("#frontier .main-svg")
    took_s = time.perf_counter() - began
    page.close()
    assert took_s < 8, took_s


def test_every_section_draws_and_names_are_text(page: Any) -> None:
    draw_all(page)
    assert page.locator("section").count() == len(SECTIONS) + 1
    page.locator("#decisions").scroll_into_view_if_needed()
    assert page.locator("#decisions tbody tr").count() == 3
    assert page.locator("main img").count() == 0
    assert page.locator("script").count() == 3  # its own
    assert TENANTS[0] in page.locator("#shares").inner_text()
    assert page.locator("#status").inner_text() == "complete: 18 runs"
    rows = page.locator("#overview tbody tr")
    assert rows.count() == 3
    assert page.locator("#frontier .scatterlayer .trace").count() >= 3


def test_hover_tells_job_tenant_gang_and_state(page: Any) -> None:
    draw_all(page)
    area = page.locator("#gantt-figure .nsewdrag").first.bounding_box()
    for across in range(2, 19):
        page.mouse.move(area["x"] + area["width"] * across / 20, area["y"] + area["height"] * 0.3)
        page.wait_for_timeout(120)
        if page.locator("#gantt-figure .hoverlayer text").count():
            break
    text = page.locator("#gantt-figure .hoverlayer").text_content()
    assert "<img src=x onerror=alert(1)>" in text and "gang of" in text and "running" in text
    assert any(tenant in text for tenant in TENANTS)


def test_zoom_and_slider_move_both_schedulers_clock(page: Any) -> None:
    draw_all(page)
    clock = page.locator("#gantt-clock")
    assert clock.inner_text() == "0.0 to 6.0 h"
    few = page.locator("#gantt-figure .barlayer .point").count()
    page.click("[data-hours='2']")
    assert clock.inner_text() == "2.0 to 4.0 h"
    page.locator("#gantt-time").fill("1000")
    assert clock.inner_text() == "4.0 to 6.0 h"
    page.locator("#gantt-time").fill("0")
    assert clock.inner_text() == "0.0 to 2.0 h"
    assert 0 < page.locator("#gantt-figure .barlayer .point").count() < few
    area = page.locator("#gantt-figure .nsewdrag").first.bounding_box()
    page.mouse.move(area["x"] + area["width"] * 0.25, area["y"] + 50)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.75, area["y"] + 60, steps=5)
    page.mouse.up()
    page.wait_for_timeout(500)
    low, high = (float(word) for word in clock.inner_text().removesuffix(" h").split(" to "))
    assert low == pytest.approx(0.5, abs=0.1) and high == pytest.approx(1.5, abs=0.1)
    ranges = page.evaluate(
        "(f => [f.layout.xaxis.range, f.layout.yaxis.range])(document.getElementById('gantt-figure'))"
    )
    assert ranges[0] == pytest.approx([low, high], abs=0.1) and ranges[1] == [8, 0]
    page.click("[data-hours='Infinity']")
    assert clock.inner_text() == "0.0 to 6.0 h"


def test_choices_light_and_dark_and_print(page: Any) -> None:
    draw_all(page)
    page.select_option("#load", "0.9")
    page.select_option("#metrics select", "wait_p95_s")
    page.select_option("#waits select >> nth=1", "tenant")
    page.select_option("#gantt select >> nth=1", "fair_reclaim")
    page.wait_for_timeout(300)
    assert "jobs)" in page.locator("#distributions .legend").text_content()
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    page.wait_for_timeout(300)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert len(page.pdf(format="A4")) > 20_000
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
