"""Fetching pinned trees."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import tarfile
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.base import events
from tilewright.base.errors import FileFormatError, ToolchainError, UnknownValueError
from tilewright.building import ck_cache, ck_fetch, ck_headers
from tilewright.building.ck_cache import DEFAULT_TREE, PINNED_TREES, PinnedTree

WHEEL = PINNED_TREES[DEFAULT_TREE]
SDIST = PINNED_TREES["2025-07"]


def list_files(inside: str) -> dict[str, str]:
    return {
        f"{inside}/include/ck_tile/core.hpp": "// core",
        f"{inside}/include/ck/ck.hpp": "// ck",
        f"{inside}/tile_engine/ops/gemm.py": "pass",
        f"{inside}/example/big.cpp": "not wanted",
        "aiter/__init__.py": "",
    }


TREE = WHEEL.folder
GOOD = list_files(TREE)


def make_wheel(path: Path, files: dict[str, str], link: str | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        if link:
            info = zipfile.ZipInfo(link)
            info.external_attr = 0o120777 << 16
            archive.writestr(info, "/etc/passwd")
    return path


def make_sdist(path: Path, files: dict[str, str], link: str | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
        if link:
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(info)
    return path


def pin(patch: pytest.MonkeyPatch, tree: PinnedTree, archive: Path) -> None:
    """Pins another file for a tree."""
    pinned = replace(tree, sha256=hashlib.sha256(archive.read_bytes()).hexdigest(), size=archive.stat().st_size)
    patch.setattr(ck_cache, "PINNED_TREES", {**ck_cache.PINNED_TREES, tree.name: pinned})


class FakeIndex:
    """Stands for the package index: hands out one file and counts the downloads in another."""

    def __init__(self, archive: Path, delay_s: float = 0.0) -> None:
        self.archive = archive
        self.delay_s = delay_s
        self.log = archive.with_suffix(".downloads")

    def __call__(self, tree: PinnedTree, folder: Path) -> Path:
        with self.log.open("a") as log:
            log.write(f"{os.getpid()}\n")
        time.sleep(self.delay_s)
        return Path(shutil.copy(self.archive, folder / tree.file))

    @property
    def downloads(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


def serve(patch: pytest.MonkeyPatch, archive: Path, delay_s: float = 0.0, tree: PinnedTree = WHEEL) -> FakeIndex:
    index = FakeIndex(archive, delay_s)
    patch.setattr(ck_fetch, "download_archive", index)
    pin(patch, tree, archive)
    return index


@pytest.fixture
def index(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> FakeIndex:
    return serve(clean_knobs, make_wheel(tmp_path / "ck.whl", GOOD))


def leftovers(cache: Path) -> list[str]:
    """What a fetch left in the cache, apart from the trees and their locks."""
    found = sorted((cache / "ck").iterdir()) if (cache / "ck").exists() else []
    return [path.name for path in found if path.suffix != ".lock" and not (path / "manifest.json").exists()]


def make_tree(folder: Path, text: str = "// core") -> Path:
    (folder / "include" / "ck_tile").mkdir(parents=True)
    (folder / "include" / "ck_tile" / "core.hpp").write_text(text)
    (folder / "example").mkdir()
    (folder / "example" / "big.cpp").write_text("not wanted")
    return folder


def test_fetch_takes_the_headers_only_and_a_second_call_does_nothing(index: FakeIndex, tmp_path: Path) -> None:
    seen: list[events.Event] = []
    with events.add_listener(seen.append):
        tree = ck_fetch.fetch_ck()
    assert tree.folder == tmp_path / "cache" / "ck" / "2025-11"
    assert (tree.include / "ck_tile" / "core.hpp").read_text() == "// core"
    assert sorted(p.name for p in tree.folder.iterdir()) == ["include", "manifest.json"]
    assert leftovers(tmp_path / "cache") == []
    assert [type(e).__name__ for e in seen] == ["Started", *["Advanced"] * 3, "Finished"]
    manifest = json.loads((tree.folder / "manifest.json").read_text())
    assert manifest["name"] == "2025-11"
    assert manifest["source"] == ck_cache.PINNED_TREES["2025-11"].source
    assert manifest["files"] == {"include": 2}
    assert ck_fetch.fetch_ck() == tree
    assert index.downloads == 1
    assert ck_headers.find_ck_component(None).path == tree.include


def test_an_sdist_is_unpacked_next_to_the_other_tree(
    index: FakeIndex, clean_knobs: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ck_fetch.fetch_ck()
    serve(clean_knobs, make_sdist(tmp_path / "ck.tar.gz", list_files(SDIST.folder)), tree=SDIST)
    tree = ck_fetch.fetch_ck("2025-07", tools=True)
    assert sorted(p.name for p in tree.folder.iterdir()) == ["include", "manifest.json", "tile_engine"]
    assert tree.files == {"include": 2, "tile_engine": 1}
    assert str(tree) == "2025-07, flash-attn 2.8.3.post2"
    assert [found.name for found in ck_cache.list_fetched_trees()] == ["2025-07", "2025-11"]
    assert ck_headers.find_ck_component(None).version == "2025-11, amd-aiter 0.1.7.post2.dev18"
    clean_knobs.setenv("TILEWRIGHT_CK", "2025-07")
    found = ck_headers.find_ck_component(None)
    assert (found.path, found.version) == (tree.include, str(tree))
    assert ck_headers.find_ck_tools() == tree.folder / "tile_engine"


def test_what_a_dead_process_left_is_replaced(index: FakeIndex) -> None:
    tree = ck_fetch.fetch_ck()
    (tree.folder / "manifest.json").unlink()
    (tree.include / "stale.hpp").write_text("")
    assert ck_headers.find_ck_component(None).problem
    ck_fetch.fetch_ck()
    assert not (tree.include / "stale.hpp").exists()


def test_an_unknown_tree_is_an_error_with_the_known_ones(clean_knobs: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownValueError, match=r"unknown tree '2025-12'.* Known: 2025-11, 2025-07\. .*--folder"):
        ck_fetch.fetch_ck("2025-12")


@pytest.mark.parametrize(
    "name",
    [f"{TREE}/include/../../../../evil", f"{TREE}/include/a\\..\\evil", f"{TREE}/include/.."],
)
def test_a_name_that_leaves_the_folder_is_rejected(clean_knobs: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    serve(clean_knobs, make_wheel(tmp_path / "ck.whl", {**GOOD, name: "evil"}))
    with pytest.raises(ToolchainError, match="leads out of its folder"):
        ck_fetch.fetch_ck()
    assert list(tmp_path.rglob("evil*")) == []
    assert leftovers(tmp_path / "cache") == []


def test_a_name_in_an_sdist_that_leaves_the_folder_is_rejected(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = {**list_files(SDIST.folder), f"{SDIST.folder}/include/../../../evil": "evil"}
    serve(clean_knobs, make_sdist(tmp_path / "ck.tar.gz", files), tree=SDIST)
    with pytest.raises(ToolchainError, match="leads out of its folder"):
        ck_fetch.fetch_ck("2025-07")
    assert list(tmp_path.rglob("evil*")) == []


def test_a_link_is_rejected(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    serve(clean_knobs, make_wheel(tmp_path / "ck.whl", GOOD, link=f"{TREE}/include/link"))
    with pytest.raises(ToolchainError, match="is a link"):
        ck_fetch.fetch_ck()
    sdist = make_sdist(tmp_path / "ck.tar.gz", list_files(SDIST.folder), link=f"{SDIST.folder}/include/link")
    serve(clean_knobs, sdist, tree=SDIST)
    with pytest.raises(ToolchainError, match="is a link"):
        ck_fetch.fetch_ck("2025-07")


def test_another_file_than_expected_is_rejected(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "ck.whl", GOOD)
    serve(clean_knobs, wheel)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    clean_knobs.setattr(ck_cache, "PINNED_TREES", PINNED_TREES)
    match = rf"has sha256 {found}, expected {WHEEL.sha256}.*\({wheel.stat().st_size:,} bytes instead of 40,189,929\)"
    with pytest.raises(ToolchainError, match=match):
        ck_fetch.fetch_ck()
    assert leftovers(tmp_path / "cache") == []


@pytest.mark.parametrize(("tree", "make"), [(WHEEL, make_wheel), (SDIST, make_sdist)], ids=["wheel", "sdist"])
def test_an_archive_that_is_none_or_lacks_the_tree_is_rejected(
    clean_knobs: pytest.MonkeyPatch, tmp_path: Path, tree: PinnedTree, make: Callable[[Path, dict[str, str]], Path]
) -> None:
    text = tmp_path / "text"
    text.write_text("not an archive")
    serve(clean_knobs, text, tree=tree)
    with pytest.raises(ToolchainError, match="is not a wheel" if tree is WHEEL else "is not an sdist"):
        ck_fetch.fetch_ck(tree.name)
    serve(clean_knobs, make(tmp_path / "other", {"a.py": ""}), tree=tree)
    with pytest.raises(ToolchainError, match=f"has no {tree.folder}/include/"):
        ck_fetch.fetch_ck(tree.name)


def test_a_failed_download_says_what_to_do(clean_knobs: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pip")  # without it, the index is read: see test_build_package_index.py
    from tilewright.building import ck_archive

    def fails(command: list[str], timeout_s: float) -> str:
        raise ToolchainError(f"{command[0]} ended with code 1: no network")

    clean_knobs.setattr(ck_archive, "read_tool_output", fails)
    with pytest.raises(ToolchainError, match=r"no network\n.*TILEWRIGHT_CK to a checkout"):
        ck_fetch.fetch_ck()


def test_an_sdist_is_never_given_to_pip(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """To download an sdist, pip runs its setup.py."""
    from tilewright.building import ck_archive

    clean_knobs.setattr(ck_archive, "read_tool_output", lambda *_, **__: pytest.fail("pip was started"))
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        clean_knobs.delenv(name, raising=False)
    clean_knobs.setenv("PIP_CONFIG_FILE", "/dev/null")
    clean_knobs.setenv("PIP_NO_INDEX", "1")
    clean_knobs.setenv("PIP_FIND_LINKS", str(tmp_path))
    pin(clean_knobs, SDIST, make_sdist(tmp_path / SDIST.file, list_files(SDIST.folder)))
    assert ck_fetch.fetch_ck("2025-07").files == {"include": 2}


def test_a_broken_manifest_is_named(index: FakeIndex) -> None:
    tree = ck_fetch.fetch_ck()
    (tree.folder / "manifest.json").write_text("[]")
    with pytest.raises(FileFormatError, match=r"must be an object, got .*; delete .*2025-11 and run"):
        ck_fetch.fetch_ck()
    assert "manifest.json" in ck_headers.find_ck_component(None).problem
    (listed,) = ck_cache.list_fetched_trees()
    assert "must be an object" in listed.problem


def test_threads_at_once_download_once(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    index = serve(clean_knobs, make_wheel(tmp_path / "ck.whl", GOOD), delay_s=0.2)
    with ThreadPoolExecutor(4) as pool:
        homes = {tree.folder for tree in pool.map(lambda _: ck_fetch.fetch_ck(), range(4))}
    assert len(homes) == 1
    assert index.downloads == 1


def start_fetches(count: int) -> list[multiprocessing.process.BaseProcess]:
    context = multiprocessing.get_context("fork")  # the children keep the fake index
    children = [context.Process(target=ck_fetch.fetch_ck) for _ in range(count)]
    for child in children:
        child.start()
    return list(children)


def test_processes_at_once_download_once(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    index = serve(clean_knobs, make_wheel(tmp_path / "ck.whl", GOOD), delay_s=0.2)
    children = start_fetches(4)
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0, 0]
    assert index.downloads == 1
    assert ck_headers.find_ck_component(None).ok


def test_an_interrupted_fetch_leaves_nothing(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    serve(clean_knobs, make_wheel(tmp_path / "ck.whl", GOOD))
    for step in ("check_digest", "unpack_archive", "write_manifest"):
        with clean_knobs.context() as patch:
            patch.setattr(ck_fetch, step, interrupt)
            with pytest.raises(KeyboardInterrupt):
                ck_fetch.fetch_ck()
        assert leftovers(tmp_path / "cache") == [], step
    assert ck_fetch.fetch_ck().files == {"include": 2}


def test_the_files_of_a_killed_fetch_are_removed_by_the_next_one(
    clean_knobs: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve(clean_knobs, make_wheel(tmp_path / "ck.whl", GOOD), delay_s=60)
    (child,) = start_fetches(1)
    private = tmp_path / "cache" / "ck" / ".fetch-2025-11"
    deadline = time.monotonic() + 30
    while not private.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    copied = ck_fetch.copy_ck(make_tree(tmp_path / "mine"))
    assert private.exists()  # in use
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(30)
    assert private.exists()
    assert ck_fetch.copy_ck(tmp_path / "mine") == copied
    assert leftovers(tmp_path / "cache") == []


@pytest.mark.compile
@pytest.mark.parametrize(("name", "headers"), [("2025-11", 1019), ("2025-07", 881)])
def test_the_real_trees(clean_knobs: pytest.MonkeyPatch, name: str, headers: int) -> None:
    tree = ck_fetch.fetch_ck(name, tools=True)
    assert (tree.include / "ck_tile" / "core.hpp").is_file()
    assert (tree.folder / "tile_engine" / "ops").is_dir()
    assert tree.files["include"] == headers
