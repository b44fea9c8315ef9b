"""`sweep.json`: a folder takes the results of one sweep only."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilewright.base.errors import FileFormatError, JournalError
from tilewright.bench.sweep_file import FILE, claim_folder, read_request

ASKED = {"op": "gemm", "kernels": ["a", "b"], "settings": {"cold": False}}


def test_the_same_sweep_is_resumed(tmp_path: Path) -> None:
    assert claim_folder(tmp_path / "new", ASKED) is False
    assert claim_folder(tmp_path / "new", dict(reversed(ASKED.items()))) is True
    assert read_request(tmp_path / "new") == ASKED
    assert [path.name for path in (tmp_path / "new").iterdir()] == [FILE]


def test_another_sweep_is_refused_with_what_differs(tmp_path: Path) -> None:
    claim_folder(tmp_path, ASKED)
    with pytest.raises(JournalError) as caught:
        claim_folder(tmp_path, {**ASKED, "kernels": ["a", "c"], "more": 1})
    text = str(caught.value)
    assert "kernels a, b there, a, c now; more nothing there, 1 now." in text
    assert "op " not in text and "new folder" in text


def test_of_many_that_begin_at_once_one_begins(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: claim_folder(tmp_path, ASKED), range(16)))
    assert sorted(found) == [False] + [True] * 15


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "is not the request of a sweep"),
        ("[]", "is not the request of a sweep"),
        ('{"schema": 2, "digest": "", "asked": {}}', "this version reads 1"),
        ('{"schema": 1, "digest": "", "asked": {}}', "was changed"),
        ('{"schema": 1, "digest": "", "asked": {"seed": NaN}}', "NaN is not a JSON number"),
        ('{"schema": 1, "digest": "", "asked": {"seed": 1e999}}', "was changed"),
        ("[" * 100_000, "is not the request of a sweep"),
    ],
)
def test_a_file_that_cannot_be(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(FileFormatError, match=what):
        claim_folder(tmp_path, ASKED)


def test_a_folder_without_one(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="does not belong to a sweep"):
        read_request(tmp_path)
    claim_folder(tmp_path, ASKED)
    assert json.loads((tmp_path / FILE).read_text())["asked"] == ASKED
