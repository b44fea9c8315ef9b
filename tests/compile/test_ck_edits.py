"""Edits of CK's headers: they apply to the known trees, keep line numbers, and leave other trees alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ck_trees import NEWER, TREES
from tilewright.building.ck_edits import EDITS, LOOPS_NAME, count_edits, edit_headers
from tilewright.building.compile_job import make_compile_job
from tilewright.building.toolchain import find_toolchain
from tilewright.ops import find_op

pytestmark = pytest.mark.compile


def list_trees() -> list[Path]:
    return [find_toolchain().ck_include, *([TREES / NEWER / "include"] if (TREES / NEWER).is_dir() else [])]


def test_every_edit_applies_to_the_known_trees() -> None:
    for tree in list_trees():
        assert {edit: count > 0 for edit, count in count_edits(tree).items()} == dict.fromkeys(EDITS, True), tree


def test_lines_keep_their_numbers() -> None:
    for tree in list_trees():
        for name, text in edit_headers(tree, "").items():
            if name != LOOPS_NAME:
                old = (tree / name).read_text("utf-8")
                assert text.count("\n") == old.count("\n")
                unchanged = [a == b for a, b in zip(text.splitlines(), old.splitlines(), strict=True)]
                assert sum(unchanged) > 0.85 * len(unchanged), name


def test_edited_headers_include_the_loops_that_they_call() -> None:
    for tree in list_trees():
        for name, text in edit_headers(tree, "").items():
            assert ("::tilewright_ck::" in text) == (f'#include "{LOOPS_NAME}"' in text), name


def test_a_tree_without_one_of_these_texts_is_left_alone(tmp_path: Path) -> None:
    tree = find_toolchain().ck_include
    for name in {edit.header for edit in EDITS}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((tree / name).read_bytes())
    assert edit_headers(tmp_path, "the same") == edit_headers(tree, "")
    changed = tmp_path / EDITS[-1].header
    changed.write_text(changed.read_text("utf-8").replace("forward<U>(e)", "move(e)"), encoding="utf-8")
    assert edit_headers(tmp_path, "changed") == {}
    changed.unlink()
    assert edit_headers(tmp_path, "missing") == {}


def test_copies_come_before_the_headers_of_ck_and_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    op = find_op("gemm")
    job = make_compile_job(op.make_kernel(op.make_example({}), "gfx942"), find_toolchain())
    assert set(job.edited_headers) <= set(job.device_headers.files)
    keys = (job.key, job.source_key)
    monkeypatch.setattr("tilewright.building.compile_job.edit_headers", lambda *_: {})
    monkeypatch.setattr("tilewright.building.compile_job.digest_edits", lambda: "")
    other = make_compile_job(job.kernel, job.toolchain)
    assert other.key != keys[0]
    assert other.source_key != keys[1]
