"""The page of a sweep: whole, self-contained, the same twice, and without any time where there is none."""

from __future__ import annotations

import base64
import json
import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench import reported
from research import conv_data
from research.sources import DATA
from tilewright.base.errors import InvalidValueError
from tilewright.bench.journal import Journal
from tilewright.bench.record import Record
from tilewright.bench.report.page import ReportPage, make_report
from tilewright.bench.table import export_table
from tilewright.cli.app import root

VOID = {"meta", "input", "img", "br", "hr", "link"}
needs_data = pytest.mark.skipif(
    not DATA.joinpath(*conv_data.FILE).is_file(), reason="the public measurements are not beside the repository"
)


class Page(HTMLParser):
    """A page taken apart: it notices tags that do not match, and names that are given twice."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.faults: list[str] = []
        self.ids: list[str] = []
        self.images: list[bytes] = []
        self.addresses: list[str] = []
        self.data: dict[str, Any] = {}
        self.words: list[str] = []
        self._script = ""
        self.feed(html)
        self.close()
        self.faults += [f"{tag} is not closed" for tag in self.open]

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if len(values) < len(attrs):
            self.faults.append(f"{tag} has an attribute twice")
        self.ids += [str(values["id"])] if "id" in values else []
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            if name in values:
                self.addresses.append(str(values[name]))
        if tag == "img":
            self.images.append(
                base64.b64decode(str(values["src"]).removeprefix("data:image/png;base64,"), validate=True)
            )
            if not values.get("alt"):
                self.faults.append("img has no alt")
        if tag not in VOID:
            self.open.append(tag)
        self._script = str(values.get("id", "script")) if tag == "script" else ""

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"{tag} is closed where it is not open")
        self._script = ""

    def handle_data(self, data: str) -> None:
        if self._script.endswith("-rows"):
            self.data[self._script] = json.loads(data)
        elif self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)


def checked(html: str) -> Page:
    page = Page(html)
    assert page.faults == []
    assert len(set(page.ids)) == len(page.ids)
    assert html.startswith("<!doctype html>")
    return page


@pytest.fixture(scope="module")
def times() -> ReportPage:
    return make_report(reported.with_failures(list(reported.many(1200, 100))), source="made up", notes=["<b>torn</b>"])


@pytest.fixture(scope="module")
def counters() -> ReportPage:
    return make_report(reported.gemm_counters())


def test_a_page_is_valid_and_asks_nothing_of_the_network(times: ReportPage, counters: ReportPage) -> None:
    for made, pictures in ((times, 5), (counters, 5)):
        page = checked(made.html)
        assert len(page.images) == pictures
        assert all(image.startswith(b"\x89PNG\r\n") for image in page.images)
        own = [address for address in page.addresses if not address.startswith("data:image/png;base64,")]
        assert all(address.startswith("#") and address[1:] in page.ids for address in own)
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", made.html)
        assert len(made.html) < 2**20


def test_a_page_tells_what_came_of_the_sweep(times: ReportPage) -> None:
    page = checked(times.html)
    for word in ("Roofline", "Kernels × problems", "Best tile by region", "How few kernels suffice", "Missing results"):
        assert word in page.text
    by_status = times.by_status
    assert sum(by_status.values()) == times.results == 1200
    for status in ("ok", "wrong", "timeout", "crashed", "quarantined", "unsupported", "out_of_memory"):
        assert by_status[status] > 0
    assert f"{times.right:,} right" in page.text
    assert "100 %: 1,200 of 1,200 pairs of a kernel and a problem of its kind have a result (12 × 100)" in page.text
    assert "<b>torn</b>" in page.text  # as it was written, not as a tag
    rows = page.data["times-rows"]
    assert rows["rows"] == 1200
    assert [column["name"] for column in rows["columns"]][:5] == ["problem", "kernel", "status", "µs", "spread %"]
    assert times.left_out == ()


def test_a_page_of_counters_has_no_time_and_says_so(counters: ReportPage) -> None:
    page = checked(counters.html)
    assert "This page has no times." in page.text
    written = re.sub(r"base64,[^\"]*", "", counters.html)  # the bytes of pictures can spell anything
    assert not re.search(r"µs|\bus\b|tflops|gb/s|\bms\b|second|fastest|took", written, re.IGNORECASE)
    assert "gemm on gfx942, emulated gfx942: counters, no time" in page.text
    named = [column["name"] for column in page.data["counters-rows"]["columns"]]
    assert {"matrix MFLOP", "× needed", "read KiB", "cache lines", "conflict cycles", "tolerance %"} <= set(named)
    assert "times-rows" not in page.data


def test_times_and_counters_are_never_in_one_table() -> None:
    made = make_report([*reported.many(60, 20), *reported.gemm_counters()[:30]])
    page = checked(made.html)
    assert "30 of these results have no time" in page.text
    assert page.data["times-rows"]["rows"] == 60
    assert page.data["counters-rows"]["rows"] == 30
    assert "cache lines" not in {column["name"] for column in page.data["times-rows"]["columns"]}
    assert "µs" not in {column["name"] for column in page.data["counters-rows"]["columns"]}


def test_a_page_is_the_same_whatever_the_order(counters: ReportPage) -> None:
    shuffled = reported.gemm_counters()
    random.Random(3).shuffle(shuffled)
    assert make_report(shuffled).html == counters.html


def test_a_text_cannot_end_the_script() -> None:
    records = reported.gemm_counters()[:9]
    bad = reported.failed(records[0], "wrong", "</script><script>alert('<!--')</script>")
    page = checked(make_report([bad, *records[1:]]).html)
    message = next(c for c in page.data["counters-rows"]["columns"] if c["name"] == "message")
    assert bad.message in message["texts"]


def test_a_sweep_of_failures_alone_is_reported() -> None:
    records = [reported.failed(record, "crashed", "signal 9") for record in reported.many(20, 5)]
    made = make_report(records)
    page = checked(made.html)
    assert made.right == 0
    assert len(page.images) == 1
    assert "0 of 5 problems have a kernel that computes them correctly" in page.text
    assert "20 of 20 results: 20 crashed" in page.text


def test_one_result_is_reported() -> None:
    for record in (next(reported.many(1, 1)), reported.gemm_counters()[0]):
        page = checked(make_report([record]).html)
        assert "1 × 1" in page.text


def test_a_recording_is_not_called_verified() -> None:
    def replayed(record: Record) -> Record:
        return replace(record, task=replace(record.task, device="replay:may"))

    page = checked(make_report([replayed(record) for record in reported.many(20, 5)]).html)
    assert "5 of 5 problems have a recorded time" in page.text
    assert "verified where it was recorded, or not at all" in page.text
    assert "computes them correctly" not in page.text


def test_models_of_one_architecture_are_told_apart() -> None:
    def on(model: str) -> list[Record]:
        text = json.dumps({"gpu": model, "hip": "7"})
        return [replace(record, task=replace(record.task, versions=text)) for record in reported.many(8, 4)]

    page = checked(make_report([*on("AMD Instinct MI300X"), *on("AMD Instinct MI300A")]).html)
    assert "gemm on gfx942, AMD Instinct MI300X" in page.text
    assert "GPU gfx942, AMD Instinct MI300X coverage" in page.text
    assert (
        "gfx942, AMD Instinct MI300A; rates and bandwidth are those of Instinct MI300X in the GPU's file" in page.text
    )


def test_nothing_is_an_error() -> None:
    with pytest.raises(InvalidValueError, match="it has no results to report"):
        make_report([])


def test_large_sweeps_make_small_pages_that_say_what_is_left_out() -> None:
    made = make_report(reported.many(15_000, 250))
    page = checked(made.html)
    assert len(made.html) < 1.5 * 2**20
    assert page.data["times-rows"]["rows"] <= 10_000
    (left,) = made.left_out
    assert re.match(r"The table of times has [89],\d{3} of 15,000 results: the \d+ best kernels of each problem", left)
    assert left in page.text
    assert "12 kernels with lower means are not shown" in page.text


@needs_data
def test_the_public_convolutions() -> None:
    made = make_report(reported.conv_times())
    page = checked(made.html)
    assert (made.results, made.right) == (2990, 2990)
    rows = page.data["times-rows"]
    column = {each["name"]: each for each in rows["columns"]}
    quickest = min(column["µs"]["values"])
    assert quickest == pytest.approx(min(r.times.us for r in reported.conv_times() if r.times), rel=1e-3)
    assert column["of best %"]["values"].count(100) >= 230  # a best one for each problem
    assert "Instinct MI355X" in page.text


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(root, [str(arg) for arg in args], prog_name="tilewright")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep") / "journal"
    records = reported.gemm_counters()
    with Journal(folder, "a", fsync="never") as first, Journal(folder, "b", fsync="never") as second:
        for i, record in enumerate(records):
            (first if i % 2 else second).append(record)
        second.append(_again(records[1]))
    with (folder / "b.jsonl").open("ab") as stream:
        stream.write(b'{"counters":{"torn')
    return folder


def _again(record: Record) -> Record:
    return reported.failed(record, "timeout", "a second time, and too late")


def test_the_command_reads_journals(journal: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = run("report", journal, "--out", out, "--title", "A <sweep>")
    assert result.exit_code == 0, result.output
    assert f"{out}: 210 results, 188 right, " in result.stdout
    assert "1 line of the journal could not be read" in result.stderr
    page = checked(out.read_text())
    assert "A <sweep>" in page.text
    assert "1 line of the journal could not be read" in page.text
    assert "too late" not in page.text  # a good record beats a failure
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html"]


def test_the_command_reads_tables(tmp_path: Path, counters: ReportPage) -> None:
    table, out = tmp_path / "records.parquet", tmp_path / "page.html"
    export_table(reported.gemm_counters(), table)
    result = run("report", table, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["page"] == str(out)
    assert document["bytes"] == out.stat().st_size
    assert document["by_status"] == {"ok": 188, "fault": 8, "unsupported": 14}
    assert document["damaged"] == document["left_out"] == []
    assert out.read_text().replace(f'\n<p class="quiet">{table}</p>', "") == counters.html


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = run("report", tmp_path / "empty", "--out", tmp_path / "page.html")
    assert result.exit_code == 2
    assert "it has no results to report" in result.stderr
    assert not (tmp_path / "page.html").exists()
