"""Several CK trees and one store: a kernel that was built with one tree is never served for another."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from engine import lend_headers_of

from ci_kernels import STORE
from ck_trees import ABSENT, NEWER, TREES, use_tree
from tilewright.building.builder import build_compile_jobs
from tilewright.building.ck_cache import find_fetched_tree
from tilewright.building.ck_fetch import fetch_ck
from tilewright.building.compile_job import CODE_OBJECT, CompileJob
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.store.tiers import Tiers
from tilewright.building.toolchain import find_toolchain
from tilewright.codegen.render import render_unchecked
from tilewright.ops import parse_kernel

# It needs few headers, so it compiles quickly. CI builds it with both trees, so their headers are precompiled.
CHEAP = "moe_sorting-gfx942-tile1-69561eeac02b"
KERNELS = {
    "gemm": "gemm-gfx942-standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle"
    "-padm-padn-padk-f4197df1400e",
    "grouped_conv": "grouped_conv-gfx942-forward-nd2-fp16-fp16-fp32-fp16-b64x64x32-w2x2x1-i16x16x32-compv3-intrawave"
    "-cshuffle-v8x8x8-8a062b028f3d",
    "fmha": "fmha-gfx942-combine-batch-fp16-combine-b32x64-padq-splits3-eceb5069a7cd",
}
PAIRS = list(itertools.combinations(("default", "one byte", "2025-07", NEWER), 2))
# A header that every op includes.
CHANGED = Path("include", "ck_tile", "core", "container", "sequence.hpp")


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The default tree, one that differs from it in one byte, and those others that are on this machine."""
    folder = tmp_path_factory.mktemp("trees")
    default = fetch_ck().folder
    for name in ("copy", "one byte"):
        shutil.copytree(default / "include", folder / name / "include")
    header = folder / "one byte" / CHANGED
    text = header.read_bytes()
    header.write_bytes(text.replace(b"// SPDX", b"// SPDx", 1))
    assert header.read_bytes() != text
    found = {"default": default, "copy": folder / "copy", "one byte": folder / "one byte"}
    older = find_fetched_tree("2025-07")
    return {
        **found,
        **({"2025-07": older.folder} if older else {}),
        **({NEWER: TREES / NEWER} if (TREES / NEWER).is_dir() else {}),
    }


def make_job(tree: Path, slug: str) -> CompileJob:
    with use_tree(tree):
        job = CompileJob(render_unchecked(parse_kernel(slug)), find_toolchain())
        assert job.toolchain.ck_include == tree / "include"
        assert job.key
        return job


@pytest.mark.parametrize("op", KERNELS)
@pytest.mark.parametrize(
    "names", list(itertools.combinations(("default", "one byte", "2025-07", NEWER), 2)), ids=" and ".join
)
def test_keys_of_two_trees_differ(names: tuple[str, str], op: str, trees: dict[str, Path], tmp_path: Path) -> None:
    if missing := [name for name in names if name not in trees]:
        pytest.skip(ABSENT if NEWER in missing else f"the tree {missing[0]} is not fetched")
    one, other = (make_job(trees[name], KERNELS[op]) for name in names)
    assert one.key != other.key
    store = Store(tmp_path)
    for one_set, other_set in ((one.device_headers, other.device_headers), (one.host_headers, other.host_headers)):
        assert one_set.key(store) != other_set.key(store)


@pytest.mark.parametrize("op", KERNELS)
def test_equal_trees_in_two_folders_have_the_same_keys(op: str, trees: dict[str, Path]) -> None:
    assert make_job(trees["default"], KERNELS[op]).key == make_job(trees["copy"], KERNELS[op]).key


@pytest.mark.compile
def test_a_kernel_is_built_for_each_tree_and_served_for_its_own(trees: dict[str, Path], tmp_path: Path) -> None:
    if NEWER not in trees:
        pytest.skip(ABSENT)
    store = Store(tmp_path)
    kernel = parse_kernel(CHEAP)
    for name in ("default", NEWER):  # precompiling takes twice as long as the kernel
        lend_headers_of(make_job(trees[name], CHEAP), STORE.root, store.root)

    def build(name: str) -> tuple[int, Artifact]:
        with use_tree(trees[name]):
            result = build_compile_jobs([make_job(trees[name], CHEAP)], tiers=Tiers(store), jobs=1)
        entry = result.results[kernel]
        assert isinstance(entry, Artifact), entry
        return result.compiled, entry

    count, older = build("default")
    assert count == 1
    count, newer = build(NEWER)
    assert count == 1  # although the store has this kernel of the other tree
    assert [entry.facts["ck"] for entry in (older, newer)] == ["2025-11", "2026-06"]
    assert older.files[CODE_OBJECT] != newer.files[CODE_OBJECT]
    for name, entry in (("default", older), (NEWER, newer), ("copy", older)):
        assert build(name) == (0, entry)
    assert store.get(make_job(trees["one byte"], CHEAP).key) is None
