from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilewright.base import events
from tilewright.base.errors import FileFormatError, ToolchainError
from tilewright.building import ck_headers

TREE = ck_headers.TREE_IN_WHEEL
GOOD = {
    f"{TREE}/include/ck_tile/core.hpp": "// core",
    f"{TREE}/include/ck/ck.hpp": "// ck",
    f"{TREE}/tile_engine/ops/gemm.py": "pass",
    f"{TREE}/example/big.cpp": "not wanted",
    "aiter/__init__.py": "",
}


def make_wheel(path: Path, files: dict[str, str], link: str | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        if link:
            info = zipfile.ZipInfo(link)
            info.external_attr = 0o120777 << 16
            archive.writestr(info, "/etc/passwd")
    return path


class FakeIndex:
    """Stands for the package index: hands out one wheel and counts the downloads in a file."""

    def __init__(self, wheel: Path, delay_s: float = 0.0) -> None:
        self.wheel = wheel
        self.delay_s = delay_s
        self.log = wheel.with_suffix(".downloads")

    def __call__(self, folder: Path) -> Path:
        with self.log.open("a") as log:
            log.write(f"{os.getpid()}\n")
        time.sleep(self.delay_s)
        return Path(shutil.copy(self.wheel, folder))

    @property
    def downloads(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


def serve(patch: pytest.MonkeyPatch, wheel: Path, delay_s: float = 0.0) -> FakeIndex:
    index = FakeIndex(wheel, delay_s)
    patch.setattr(ck_headers, "download_wheel", index)
    patch.setattr(ck_headers, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    return index


@pytest.fixture
def index(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> FakeIndex:
    return serve(clean_knobs, make_wheel(tmp_path / "ck.whl", GOOD))


def leftovers(home: Path) -> list[str]:
    return [p.name for p in home.parent.iterdir() if p.name.startswith(".fetch-")]


def test_fetch_takes_the_headers_only_and_a_second_call_does_nothing(index: FakeIndex) -> None:
    seen: list[events.Event] = []
    with events.add_listener(seen.append):
        home = ck_headers.fetch_ck()
    assert (home / "include" / "ck_tile" / "core.hpp").read_text() == "// core"
    assert sorted(p.name for p in home.iterdir()) == ["include", "manifest.json"]
    assert leftovers(home) == []
    assert [type(e).__name__ for e in seen] == ["Started", *["Advanced"] * 3, "Finished"]
    manifest = json.loads((home / "manifest.json").read_text())
    assert manifest["wheel"] == "ck.whl"
    assert manifest["sha256"] == ck_headers.WHEEL_SHA256
    assert manifest["files"] == {"include": 2}
    assert ck_headers.fetch_ck() == home
    assert index.downloads == 1
    assert ck_headers.find_ck_component(None).path == home / "include"


def test_tools_are_added_to_fetched_headers(index: FakeIndex) -> None:
    ck_headers.fetch_ck()
    with pytest.raises(ToolchainError, match="fetch-ck --tools"):
        ck_headers.find_ck_tools()
    home = ck_headers.fetch_ck(tools=True)
    assert (ck_headers.find_ck_tools() / "ops" / "gemm.py").is_file()
    assert ck_headers.read_manifest(home)["files"] == {"include": 2, "tile_engine": 1}
    ck_headers.fetch_ck(tools=True)
    assert index.downloads == 2


def test_tools_of_a_checkout(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_knobs.setenv("TILEWRIGHT_CK", str(tmp_path))
    with pytest.raises(ToolchainError, match=f"TILEWRIGHT_CK={tmp_path} has no tile_engine/"):
        ck_headers.find_ck_tools()
    (tmp_path / "tile_engine").mkdir()
    assert ck_headers.find_ck_tools() == tmp_path / "tile_engine"


def test_what_a_dead_process_left_is_replaced(index: FakeIndex) -> None:
    home = ck_headers.fetch_ck()
    (home / "manifest.json").unlink()
    (home / "include" / "stale.hpp").write_text("")
    assert ck_headers.find_ck_component(None).problem
    ck_headers.fetch_ck()
    assert not (home / "include" / "stale.hpp").exists()


@pytest.mark.parametrize(
    "name",
    [f"{TREE}/include/../../../../evil", f"{TREE}/include/a\\..\\evil", f"{TREE}/include/.."],
)
def test_a_name_that_leaves_the_folder_is_refused(clean_knobs: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    serve(clean_knobs, make_wheel(tmp_path / "ck.whl", {**GOOD, name: "evil"}))
    with pytest.raises(ToolchainError, match="leads out of its folder"):
        ck_headers.fetch_ck()
    assert list(tmp_path.rglob("evil*")) == []
    assert not (tmp_path / "cache" / "ck" / ck_headers.VERSION).exists()


def test_a_link_is_refused(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    serve(clean_knobs, make_wheel(tmp_path / "ck.whl", GOOD, link=f"{TREE}/include/link"))
    with pytest.raises(ToolchainError, match="is a link"):
        ck_headers.fetch_ck()


def test_another_file_than_expected_is_refused(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    serve(clean_knobs, make_wheel(tmp_path / "ck.whl", GOOD))
    clean_knobs.setattr(ck_headers, "WHEEL_SHA256", "0" * 64)
    with pytest.raises(ToolchainError, match="expected 0000"):
        ck_headers.fetch_ck()


def test_a_file_that_is_no_wheel_or_lacks_the_tree_is_refused(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "text.whl").write_text("not a zip")
    serve(clean_knobs, tmp_path / "text.whl")
    with pytest.raises(ToolchainError, match="is not a wheel"):
        ck_headers.fetch_ck()
    serve(clean_knobs, make_wheel(tmp_path / "other.whl", {"a.py": ""}))
    with pytest.raises(ToolchainError, match="has no aiter_meta/3rdparty/composable_kernel/include/"):
        ck_headers.fetch_ck()


def test_a_failed_download_says_what_to_do(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pip")  # without it, the index is read: see test_build_package_index.py

    def fails(command: list[str], timeout_s: float) -> str:
        raise ToolchainError(f"{command[0]} ended with code 1: no network")

    clean_knobs.setattr(ck_headers, "read_tool_output", fails)
    with pytest.raises(ToolchainError, match=r"no network\n.*TILEWRIGHT_CK to a checkout"):
        ck_headers.fetch_ck()


def test_a_broken_manifest_is_named(index: FakeIndex) -> None:
    home = ck_headers.fetch_ck()
    (home / "manifest.json").write_text("[]")
    with pytest.raises(FileFormatError, match=r"must be an object, got .*; delete the folder and run"):
        ck_headers.fetch_ck()
    assert "manifest.json" in ck_headers.find_ck_component(None).problem


def test_threads_at_once_download_once(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    index = serve(clean_knobs, make_wheel(tmp_path / "ck.whl", GOOD), delay_s=0.2)
    with ThreadPoolExecutor(4) as pool:
        homes = set(pool.map(lambda _: ck_headers.fetch_ck(), range(4)))
    assert len(homes) == 1
    assert index.downloads == 1


def test_processes_at_once_download_once(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    index = serve(clean_knobs, make_wheel(tmp_path / "ck.whl", GOOD), delay_s=0.2)
    context = multiprocessing.get_context("fork")  # the children keep the fake index
    children = [context.Process(target=ck_headers.fetch_ck) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0, 0]
    assert index.downloads == 1
    assert ck_headers.find_ck_component(None).ok


@pytest.mark.compile
def test_the_real_wheel(clean_knobs: pytest.MonkeyPatch) -> None:
    home = ck_headers.fetch_ck(tools=True)
    assert (home / "include" / "ck_tile" / "core.hpp").is_file()
    assert (ck_headers.find_ck_tools() / "ops").is_dir()
    assert ck_headers.read_manifest(home)["files"]["include"] > 900
