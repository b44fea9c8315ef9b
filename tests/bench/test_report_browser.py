"""The page in a browser: its scripts build the tables, sort and search them, and say what a picture shows.

Without a browser these tests are skipped, but not where TILEWRIGHT_TEST_BROWSER is set, as `.ci/run` does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest

from bench import reported
from tilewright.bench.report.page import make_report, write_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BROWSER is None and "TILEWRIGHT_TEST_BROWSER" not in os.environ,
        reason="no chromium or google-chrome on PATH (Debian: make browser)",
    ),
]


def dom(page: Path, profile: Path, view: str = "") -> str:
    """The page after its scripts ran, with what the address asks it to show."""
    assert BROWSER is not None, "no chromium or google-chrome on PATH. Run: make browser"
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={profile}", "--dump-dom", f"{page.as_uri()}{view}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def rows(html: str, table: str) -> list[dict[str, str]]:
    """The rows of a table as a reader sees them."""
    start = html.index(f'id="{table}"')
    part = html[start : html.index("</table>", start)]
    found = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", part)]
    names, *lines = [[unescape(re.sub(r"<[^>]*>", "", cell)) for cell in row] for row in found]
    return [dict(zip(names, line, strict=True)) for line in lines]


def told(html: str, table: str) -> str:
    found = re.search(r'class="told">([^<]*)', html[html.index(f'id="{table}"') :])
    assert found is not None
    return found[1]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", text)]


def number(text: str) -> float:
    return float(text.replace(",", "")) if text else float("inf")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "page.html"
    write_report(path, [*reported.gemm_counters(), *reported.with_failures(list(reported.many(600, 60)))])
    return path


def test_the_address_sorts_and_searches(page: Path, tmp_path: Path) -> None:
    plain = dom(page, tmp_path)
    shown = rows(plain, "times")
    assert len(shown) == 50
    assert [row["problem"] for row in shown] == sorted((row["problem"] for row in shown), key=_numbers)
    for problem in {row["problem"] for row in shown}:  # each with its best first
        times = [number(row["µs"]) for row in shown if row["problem"] == problem]
        assert times == sorted(times)
    assert told(plain, "times") == "1–50 of 600"
    wanted = sorted((r.counters["cache_lines"] for r in reported.gemm_counters() if r.ok), reverse=True)
    lines = [
        number(row["cache lines"])
        for row in rows(dom(page, tmp_path, f"#counters&sort={quote('cache lines')}&down"), "counters")
    ]
    assert lines == wanted[:50]
    found = dom(page, tmp_path, f"#counters&sort=problem&find={quote('compv4 128x64x64')}&only.status=ok")
    shown = rows(found, "counters")
    assert {(row["kernel"], row["status"]) for row in shown} == {("b128x64x64 w2x2x1 compv4", "ok")}
    order = [_numbers(row["problem"]) for row in shown]
    assert order == sorted(order)  # m=64 before m=128
    assert told(found, "counters") == f"1–{len(shown)} of {len(shown)} of 210"


def test_empty_values_are_last_in_both_directions(page: Path, tmp_path: Path) -> None:
    for direction in ("", "&down"):
        # The pages before are full of numbers, if the first of these rows has one.
        shown = [row["µs"] for row in rows(dom(page, tmp_path, f"#times&sort=%C2%B5s{direction}&page=11"), "times")]
        assert shown[0]
        assert not shown[-1]
        assert [not each for each in shown] == sorted(not each for each in shown)


def test_clicks_and_typing(page: Path, tmp_path: Path) -> None:
    script = """
    const heading = [...document.querySelectorAll("#times th button")].find((each) => each.textContent === "TFLOPS");
    heading.click();
    const search = document.querySelector("#times input");
    search.value = "m=128";
    search.dispatchEvent(new Event("input"));
    """
    path = tmp_path / "clicked.html"
    path.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    html = dom(path, tmp_path / "profile")
    shown = rows(html, "times")
    rates = [number(row["TFLOPS"]) for row in shown if row["TFLOPS"]]
    assert rates == sorted(rates, reverse=True)
    assert len(rates) > 5
    assert all("m=128" in row["problem"] for row in shown)
    assert 'aria-sort="descending"><button>TFLOPS' in html


def test_ten_thousand_rows_sort_in_a_moment(tmp_path: Path) -> None:
    script = """
    const headings = [...document.querySelectorAll("#times th button")];
    const begin = performance.now();
    for (const heading of headings) heading.click();
    document.body.dataset.each = (performance.now() - begin) / headings.length;
    """
    made = make_report(reported.many(10_000, 500))
    path = tmp_path / "large.html"
    path.write_text(made.html.replace("</body>", f"<script>{script}</script></body>"))
    html = dom(path, tmp_path / "profile")
    assert told(html, "times") == "1–50 of 10,000"
    spent = re.search(r'data-each="([0-9.]+)"', html)
    assert spent is not None
    assert float(spent[1]) < 1500  # ms; some 20 on an idle machine


def test_a_picture_says_what_lies_under_the_pointer(page: Path, tmp_path: Path) -> None:
    """Of every picture that has words: the pointer goes over it, and the words are those of the nearest thing."""
    script = """
    const said = {};
    for (const frame of document.querySelectorAll("[data-spots]")) {
      const image = frame.querySelector("img"), place = image.getBoundingClientRect();
      const found = said[frame.closest("figure").querySelector("h3").textContent] = [];
      for (let x = 0.02; x < 1; x += 0.02) for (let y = 0.02; y < 1; y += 0.02) {
        const at = { clientX: place.left + x * place.width, clientY: place.top + y * place.height };
        image.dispatchEvent(new PointerEvent("pointermove", at));
        const tip = document.querySelector(".tip");
        if (!tip.hidden) found.push(tip.textContent);
      }
    }
    document.body.dataset.said = JSON.stringify(said);
    """
    path = tmp_path / "pointed.html"
    path.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    html = dom(path, tmp_path / "profile")
    found = re.search(r'data-said="([^"]*)"', html)
    assert found is not None
    said = {title: {*texts} for title, texts in json.loads(unescape(found[1])).items()}
    assert set(said) == {
        *("Requested from memory", "Least traffic by region: tile"),
        *("Roofline", "Best tile by region", "Kernels × problems"),
        *("Kernels × problems: work and bytes", "Kernels × problems: lines and conflicts"),
    }
    kernel, problem, *_ = next(iter(said["Kernels × problems"])).split("\n")
    assert re.fullmatch(r"b[0-9]+x[0-9]+x[0-9]+ .*", kernel)
    assert problem.startswith("m=")
    assert any(text.endswith("crashed") for text in said["Kernels × problems"])
    assert any(re.search(r"\n[0-9.]+ TFLOPS$", text) for text in said["Roofline"])
    assert any(re.match(r"[0-9x]+: [0-9.]+ % of the best\n\d+ problem", text) for text in said["Best tile by region"])
    counted = said["Kernels × problems: lines and conflicts"]
    assert any(re.search(r"\ncache lines, × fewest: 1\nconflict cycles per KiB of LDS: [0-9.]+$", t) for t in counted)
    assert any(text.endswith("\nunsupported") for text in counted)
    assert not any("µs" in text or "TFLOPS" in text for text in counted | said["Requested from memory"])
