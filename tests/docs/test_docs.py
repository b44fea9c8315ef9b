"""The documents: links lead somewhere, examples run, lines fit, and what is generated is not stale."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fences import PAGES, ROOT, blocks, check_output, run_python

import make_docs
from tilewright.base import knobs
from tilewright.ops.op import Op

WIDTH = 120
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_RUNNABLE = [
    page for page in PAGES if page.name != "README.md" and any(b.language == "python" and b.run for b in blocks(page))
]


_COMPILED = [page for page in _RUNNABLE if any(b.compiles for b in blocks(page))]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(autouse=True)
def _clean_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents describe what is shipped, whatever the machine has set."""
    for knob in knobs.KNOBS:
        monkeypatch.delenv(knob.name, raising=False)


def anchors(path: Path) -> set[str]:
    """The names of a page's headings, as links write them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The lines outside of fenced blocks."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    for number, line in prose(page):
        for target in _LINK.findall(line):
            if target.startswith(("http://", "https://")):
                continue
            file, _, anchor = target.partition("#")
            path = (page.parent / file).resolve() if file else page

            assert path.exists(), f"{page}:{number}: {target}"
            assert not anchor or anchor in anchors(path), f"{page}:{number}: {target} names no heading"


def test_the_index_names_every_document() -> None:
    index = ROOT / "docs" / "index.md"
    text = index.read_text(encoding="utf-8")
    below = [page for page in PAGES if page.is_relative_to(index.parent) and page != index]

    assert [str(page) for page in below if str(page.relative_to(index.parent)) not in text] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_layers_are_those_of_the_contract(page: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = (each["layers"] for each in contracts if each["type"] == "layers")
    listed = re.findall(r"^\| `(\w+)`(?:, next to `\w+`)? \|", section_of(ROOT / page, "Layers"), re.MULTILINE)
    known = [set(re.findall(r"tilewright\.(\w+)", layer)) for layer in layers]
    assert set(listed) == set().union(*known)
    heights = [next(i for i, layer in enumerate(known) if name in layer) for name in listed]
    assert heights == sorted(heights)


@pytest.mark.parametrize(
    "name",
    ["bench-*", "data", "distribution", "functions", "measuring", "running", "scaling", "selection", "verifying"],
)
def test_measured_figures_have_a_date_and_a_commit(name: str) -> None:
    for page in (ROOT / "docs").glob(f"{name}.md"):
        assert re.search(r"\d{4}-\d\d-\d\d,\scommit\s`[0-9a-f]{7,}\+?`", page.read_text(encoding="utf-8")), page


def section_of(path: Path, title: str) -> str:
    return path.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_field_of_an_op_is_documented() -> None:
    text = (ROOT / "docs" / "add-an-op.md").read_text(encoding="utf-8")

    assert [field.name for field in dataclasses.fields(Op) if f"`{field.name}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_fit_an_editor(page: Path) -> None:
    long = [number for number, line in prose(page) if len(line) > WIDTH and not line.startswith("|")]

    assert long == [], f"{page}: lines over {WIDTH} characters"


@pytest.mark.parametrize("page", _RUNNABLE, ids=name_of)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    follow(page, compiled=False)


@pytest.mark.compile
@pytest.mark.parametrize("page", _COMPILED, ids=name_of)
def test_python_examples_that_compile_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(b.shown for b in blocks(page) if b.compiles and "print(" in b.text)
    monkeypatch.chdir(tmp_path)
    follow(page, compiled=True)


def follow(page: Path, *, compiled: bool) -> None:
    """Run the Python of a page from top to bottom; without `compiled`, what needs no compiler."""
    names: dict[str, Any] = {"__name__": "example"}
    for block in blocks(page):
        if block.language == "python" and block.run and (compiled or not block.compiles):
            printed = run_python(page, block, names)
            if block.shown:
                check_output(block.shown, printed)


@pytest.mark.deep  # CI runs the same command in `make check`
def test_the_reference_is_what_the_code_says(capsys: pytest.CaptureFixture[str]) -> None:
    code = make_docs.main(["--check"])

    assert code == 0, capsys.readouterr().out


def test_a_stale_document_is_named_and_then_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other pages take longer to make, and are compared by `make check`.
    monkeypatch.setattr(make_docs, "PAGES", {name: make_docs.PAGES[name] for name in ("knobs.md", "fields.md")})
    make_docs.main(["--folder", str(tmp_path)])
    (tmp_path / "knobs.md").write_text("something else")
    capsys.readouterr()

    assert make_docs.main(["--folder", str(tmp_path), "--check"]) == 1
    assert capsys.readouterr().out == f"{tmp_path / 'knobs.md'} is stale: run `make docs`\n"
    assert make_docs.main(["--folder", str(tmp_path)]) == 0
    assert make_docs.main(["--folder", str(tmp_path), "--check"]) == 0


def test_the_documents_are_not_made_from_gpus_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(knobs.ARCH_PATH.name, str(tmp_path))

    with pytest.raises(SystemExit, match="unset it"):
        make_docs.main(["--check"])
