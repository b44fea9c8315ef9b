"""Generated folders: deterministic, incremental, described by a manifest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.base import events
from tilewright.base.errors import FileFormatError
from tilewright.codegen.folder import MANIFEST_NAME, generate_sources
from tilewright.ops import find_op, parse_kernel
from tilewright.ops.kernel import Kernel

GEMM = find_op("gemm")


def kernels(count: int) -> list[Kernel]:
    space = GEMM.sets()["fp16_rcr_all"]
    return list(space.kernels("gfx942"))[:count]


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_a_second_generation_writes_nothing(tmp_path: Path) -> None:
    first = generate_sources(kernels(5), tmp_path)
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    second = generate_sources(kernels(5), tmp_path)

    assert (first.kernels, first.written, first.unchanged) == (5, 11, 0)
    assert (second.written, second.unchanged, second.removed) == (0, 11, 0)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.iterdir()} == stamps


def test_only_what_changed_is_written_and_what_went_away_is_removed(tmp_path: Path) -> None:
    generate_sources(kernels(5), tmp_path)
    changed = tmp_path / f"{kernels(1)[0].slug}.hpp"
    changed.write_text("edited by hand")
    (tmp_path / "mine.txt").write_text("left alone")
    result = generate_sources(kernels(4), tmp_path)

    assert (result.written, result.removed) == (1, 1)
    assert changed.read_text() != "edited by hand"
    assert (tmp_path / "mine.txt").exists()
    assert len(list(tmp_path.glob("gemm-*.hpp"))) == 4


def test_the_manifest_describes_every_kernel(tmp_path: Path) -> None:
    generate_sources(kernels(3), tmp_path)
    manifest = json.loads((tmp_path / MANIFEST_NAME).read_text())

    assert manifest["support"] == [
        "tilewright_block_gemm.hpp",
        "tilewright_call.hpp",
        "tilewright_ck_api.hpp",
        "tilewright_ck_shortcuts.hpp",
        "tilewright_gemm.h",
        "tilewright_gemm_launch.hpp",
    ]
    for entry in manifest["kernels"]:
        kernel = parse_kernel(entry["slug"])
        assert GEMM.make_config(**entry["config"]) == kernel.config
        assert entry["symbol"] == kernel.symbol
        assert (tmp_path / entry["file"]).exists()


def test_the_order_and_number_of_workers_do_not_matter(tmp_path: Path) -> None:
    listed = list(GEMM.sets()["fp16_rcr_all"].kernels("gfx942"))
    generate_sources(listed, tmp_path / "a")
    generate_sources([*reversed(listed), *listed], tmp_path / "b", jobs=2)

    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_many_kernels_are_generated_in_parallel_with_progress(tmp_path: Path) -> None:
    from tilewright.ops.gemm import space

    listed = list(
        space(dtype="fp16", layout="rcr", variant="standard", block="128x128x32", persistent="*").iter("gfx942")
    )[:450]
    seen: list[events.Event] = []
    with events.add_listener(seen.append):
        result = generate_sources(listed, tmp_path, jobs=2)

    assert result.kernels == len(listed) == 450
    assert seen[0] == events.Started("generate", 450)
    assert sum(isinstance(e, events.Advanced) for e in seen) == 450


def test_a_foreign_manifest_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_text("[1, 2]")
    with pytest.raises(FileFormatError, match="not a manifest"):
        generate_sources(kernels(1), tmp_path)


def test_a_manifest_cannot_name_files_outside(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    generate_sources(kernels(1), folder)
    victim = tmp_path / "victim.hpp"
    victim.write_text("precious")
    manifest = json.loads((folder / MANIFEST_NAME).read_text())
    manifest["kernels"].append({**manifest["kernels"][0], "file": "../victim.hpp"})
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest))
    generate_sources(kernels(1), folder)

    assert victim.read_text() == "precious"
