"""Tables of measured winners: exact problems only, the quickest counts, files are read strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.base.errors import FileFormatError
from tilewright.ops import find_op, parse_kernel
from tilewright.select.tuned import TunedEntry, TunedTable, read_tuned, write_tuned

FIRST, SECOND = list(find_op("gemm").sets()["fp16_rcr_essential"].kernels("gfx942"))[:2]


def problem(m: int, **fields: Any) -> Any:
    return tw.gemm.Problem(**{"m": m, "n": 256, "k": 256, "dtype": "fp16", "layout": "rcr", **fields})


def test_only_the_very_problem_on_the_very_gpu() -> None:
    table = TunedTable([TunedEntry(FIRST, problem(64), 9.0)])
    assert table.find_entry("gfx942", problem(64)) == TunedEntry(FIRST, problem(64), 9.0)
    assert table.find_entry("gfx950", problem(64)) is None
    assert table.find_entry("gfx942", problem(65)) is None
    assert table.find_entry("gfx942", problem(64, stride_a=512)) is None


def test_the_quickest_of_several_counts_in_any_order() -> None:
    entries = [
        TunedEntry(FIRST, problem(64), 9.0),
        TunedEntry(SECOND, problem(64), 7.5),
        TunedEntry(FIRST, problem(64), 8.0),
    ]
    for order in (entries, entries[::-1]):
        found = TunedTable(order).find_entry("gfx942", problem(64))
        assert found is not None and (found.kernel, found.us) == (SECOND, 7.5)
        assert len(TunedTable(order)) == 1


def test_a_file_comes_back_and_has_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    conv = next(iter(find_op("grouped_conv").sets().values()))
    kernel = next(conv.kernels(conv.archs[0]))
    image = tw.grouped_conv.Problem(
        direction="forward", n=1, c=64, k=64, input_size=(14, 14), filter_size=(3, 3), pad=1, dtype="fp16"
    )
    entries = [
        TunedEntry(FIRST, problem(64), 9.0),
        TunedEntry(SECOND, problem(128), 7.5),
        TunedEntry(kernel, image, 3.25),
    ]
    write_tuned(TunedTable(entries), tmp_path / "a.json")
    write_tuned(TunedTable(entries[::-1]), tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    table = read_tuned(tmp_path / "a.json")
    assert table.source == "a.json"
    assert table.find_entry(kernel.arch, image) == TunedEntry(kernel, image, 3.25)
    assert sorted(entry.us for entry in table) == [3.25, 7.5, 9.0]
    assert parse_kernel(FIRST.slug) == FIRST


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ('{"schema": 2, "tuned": []}', "schema"),
        ('{"schema": 1, "tuned": [{"kernel": "x", "problem": {}, "us": -1}]}', "tuned.0.us"),
        (json.dumps({"schema": 1, "tuned": [{"kernel": "gemm-x", "problem": {}, "us": 1}]}), "tuned.0"),
        (
            json.dumps({"schema": 1, "tuned": [{"kernel": FIRST.slug, "problem": {"q": 1}, "us": 1}]}),
            "tuned.0: unknown field of a problem",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(FileFormatError, match=said):
        read_tuned(tmp_path / "bad.json")
