"""Copies of folders, and finding the headers: by TILEWRIGHT_CK, else the default tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_build_ck_fetch import GOOD, leftovers, make_tree, make_wheel, serve

from tilewright.base.errors import ToolchainError
from tilewright.building import ck_cache, ck_fetch, ck_headers


def test_tools_are_added_to_fetched_headers(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    index = serve(clean_knobs, make_wheel(tmp_path / "ck.whl", GOOD))
    ck_fetch.fetch_ck()
    with pytest.raises(ToolchainError, match="fetch-ck --tools"):
        ck_headers.find_ck_tools()
    tree = ck_fetch.fetch_ck(tools=True)
    assert (ck_headers.find_ck_tools() / "ops" / "gemm.py").is_file()
    assert tree.files == {"include": 2, "tile_engine": 1}
    ck_fetch.fetch_ck(tools=True)
    assert index.downloads == 2


def test_tools_of_a_checkout(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_knobs.setenv("TILEWRIGHT_CK", str(tmp_path))
    with pytest.raises(ToolchainError, match=f"TILEWRIGHT_CK={tmp_path} has no tile_engine/"):
        ck_headers.find_ck_tools()
    (tmp_path / "tile_engine").mkdir()
    assert ck_headers.find_ck_tools() == tmp_path / "tile_engine"


def test_a_manifest_from_before_trees_had_sources(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = make_tree(tmp_path / "cache" / "ck" / "0.1.7.post2.dev18")
    (home / "manifest.json").write_text('{"wheel": "a.whl", "sha256": "ab", "files": {"include": 1}}')
    (tree,) = ck_cache.list_fetched_trees()
    assert (str(tree), tree.source) == ("0.1.7.post2.dev18", {})
    clean_knobs.setenv("TILEWRIGHT_CK", tree.name)
    assert ck_headers.find_ck_component(None).path == home / "include"


def test_a_folder_is_copied(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = make_tree(tmp_path / "2026-06-30")
    (mine / "include" / "ck_tile" / "link.hpp").symlink_to(mine / "example" / "big.cpp")
    (mine / "include" / "ck_tile" / "broken.hpp").symlink_to("nowhere")
    tree = ck_fetch.copy_ck(mine)
    assert (tree.name, tree.files) == ("2026-06-30", {"include": 2})
    assert str(tree) == f"2026-06-30, copy of {mine}"
    assert not (tree.include / "ck_tile" / "link.hpp").is_symlink()
    assert ck_fetch.copy_ck(mine) == tree
    clean_knobs.setenv("TILEWRIGHT_CK", "2026-06-30")
    assert ck_headers.find_ck_component(None).path == tree.include
    (mine / "include" / "ck_tile" / "core.hpp").write_text("// changed")
    assert (tree.include / "ck_tile" / "core.hpp").read_text() == "// core"
    with pytest.raises(ToolchainError, match=r"the name 2026-06-30 is in use .*its headers changed: .*--name"):
        ck_fetch.copy_ck(mine)
    other = ck_fetch.copy_ck(mine, "later")
    assert (other.include / "ck_tile" / "core.hpp").read_text() == "// changed"
    assert [found.name for found in ck_cache.list_fetched_trees()] == ["2026-06-30", "later"]


def test_a_folder_without_a_tree_is_rejected(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=f"{tmp_path} has no include/ck_tile. Name the folder"):
        ck_fetch.copy_ck(tmp_path)
    with pytest.raises(ToolchainError, match="has no tile_engine"):
        ck_fetch.copy_ck(make_tree(tmp_path / "mine"), tools=True)
    assert leftovers(tmp_path / "cache") == []


@pytest.mark.parametrize("name", ["2025-11", "a b", ".hidden", "../evil", "a" * 81])
def test_names_that_cannot_be_given(clean_knobs: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    with pytest.raises(ToolchainError, match="--name"):
        ck_fetch.copy_ck(make_tree(tmp_path / "mine"), name)


def test_the_knob_names_a_folder_or_a_tree(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_tree(tmp_path / "here" / "mine", "// the folder")
    clean_knobs.chdir(tmp_path / "here")
    clean_knobs.setenv("TILEWRIGHT_CK", "mine")
    assert ck_headers.find_ck_component(None).path == Path("mine/include")
    tree = ck_fetch.copy_ck(make_tree(tmp_path / "mine"))
    assert ck_headers.find_ck_component(None).path == tree.include
    clean_knobs.setenv("TILEWRIGHT_CK", "./mine")
    assert ck_headers.find_ck_component(None).path == Path("mine/include")
    clean_knobs.setenv("HOME", str(tmp_path))
    clean_knobs.setenv("TILEWRIGHT_CK", "~/mine")
    assert ck_headers.find_ck_component(None).path == tmp_path / "mine" / "include"
    clean_knobs.setenv("TILEWRIGHT_CK", "2025-07")
    missing = ck_headers.find_ck_component(None)
    assert missing.problem == "TILEWRIGHT_CK=2025-07 is neither a folder nor a fetched tree (fetched: mine)"
    assert missing.fix == "tilewright toolchain fetch-ck --tree 2025-07"
    clean_knobs.delenv("TILEWRIGHT_CK")
    assert ck_headers.find_ck_component(None).problem.endswith("set TILEWRIGHT_CK to mine")
