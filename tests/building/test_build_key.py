"""The key of a build: everything that decides the code changes it, nothing else does. Nothing is compiled here."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from absent_toolchain import TOOLCHAIN, make_absent_job
from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.base import digest, knobs
from tilewright.base.digest import compute_files_digest, digest_tree
from tilewright.building import compile_job, flags
from tilewright.building.compile_job import CompileJob
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

ROOT = Path(__file__).resolve().parents[2]


def gemm() -> Kernel:
    op = find_op("gemm")
    return op.make_kernel(op.make_example(), "gfx942")


@pytest.fixture(scope="module")
def base() -> CompileJob:
    return make_absent_job(gemm())


def _changed(text: str, place: int, letter: str) -> str:
    place %= len(text)
    return text[:place] + letter + text[place + 1 :]


@given(place=st.integers(0, 100_000), letter=st.characters(codec="utf-8"), which=st.integers(0, 100))
@settings(max_examples=200)
def test_any_letter_of_source_and_support_files(base: CompileJob, place: int, letter: str, which: int) -> None:
    source = base.source
    changed = dataclasses.replace(source, text=_changed(source.text, place, letter))
    assert (CompileJob(changed, TOOLCHAIN).key == base.key) == (changed.text == source.text)
    name = sorted(source.files)[which % len(source.files)]
    text = _changed(source.files[name], place, letter)
    changed = dataclasses.replace(source, files={**source.files, name: text})
    assert (CompileJob(changed, TOOLCHAIN).key == base.key) == (text == source.files[name])


def test_names_of_support_files(base: CompileJob) -> None:
    files = dict(base.source.files)
    name = sorted(files)[0]
    renamed = {**{other: text for other, text in files.items() if other != name}, f"{name}x": files[name]}
    fewer = {other: text for other, text in files.items() if other != name}
    keys = [CompileJob(dataclasses.replace(base.source, files=some), TOOLCHAIN).key for some in (files, renamed, fewer)]
    assert keys[0] == base.key
    assert len(set(keys)) == 3


FACTS = (
    "compiler", "compiler_digest", "system_digest", "bitcode_digest", "ck_digest", "hip_version", "hip_digest", "kind",
)  # fmt: skip


@pytest.mark.parametrize("fact", FACTS)
def test_every_fact_of_the_toolchain(base: CompileJob, fact: str) -> None:
    changed = dataclasses.replace(TOOLCHAIN, **{fact: "another"})
    assert CompileJob(base.source, changed).key != base.key


@pytest.mark.parametrize("place", ["cxx", "objdump", "readelf", "rocm_path", "bitcode_dir", "ck_include"])
def test_no_place_of_the_toolchain(base: CompileJob, place: str) -> None:
    moved = dataclasses.replace(TOOLCHAIN, **{place: Path("/elsewhere")})
    assert CompileJob(base.source, moved).key == base.key


def test_every_flag_of_both_passes(base: CompileJob, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {base.key}
    arch = archs.load("gfx942")
    for which in ("device_flags", "host_flags"):
        real = getattr(flags, which)
        shown = TOOLCHAIN.key_flags(arch) if which == "device_flags" else TOOLCHAIN.host_key_flags()
        for number in range(len(shown)):

            def changed(
                *places: object, _real: Callable[..., tuple[str, ...]] = real, _n: int = number
            ) -> tuple[str, ...]:
                found = list(_real(*places))
                found[_n] += "x"
                return tuple(found)

            with monkeypatch.context() as patch:
                patch.setattr(flags, which, changed)
                keys.add(CompileJob(base.source, TOOLCHAIN).key)
    assert len(keys) == 1 + len(TOOLCHAIN.key_flags(arch)) + len(TOOLCHAIN.host_key_flags())


def test_the_recipe_and_the_gpu(base: CompileJob, monkeypatch: pytest.MonkeyPatch) -> None:
    op = find_op("gemm")
    other = dataclasses.replace(base.source, kernel=op.make_kernel(op.make_example(), "gfx950"))
    assert CompileJob(other, TOOLCHAIN).key != base.key
    monkeypatch.setattr(compile_job, "RECIPE", compile_job.RECIPE + 1)
    assert CompileJob(base.source, TOOLCHAIN).key != base.key


def test_flags_of_a_key_have_no_folders() -> None:
    arch: Arch = archs.load("gfx942")
    words = (*TOOLCHAIN.key_flags(arch), *TOOLCHAIN.host_key_flags(), *TOOLCHAIN.link_flags())
    assert not any("/nowhere" in word or str(ROOT) in word for word in words)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small CK tree that is old enough to be remembered, with a memory of its own."""
    monkeypatch.setenv(knobs.CACHE_DIR.name, str(tmp_path / "cache"))
    monkeypatch.setattr(digest, "RACY_S", 0.05)
    root = tmp_path / "ck" / "include"
    (root / "ck_tile" / "core").mkdir(parents=True)
    for name in ("a.hpp", "b.hpp", "core/c.hpp"):
        (root / "ck_tile" / name).write_text(f"// {name}\n")
    time.sleep(0.1)
    yield root


def _one_byte(root: Path) -> None:
    path = root / "ck_tile" / "a.hpp"
    status = path.stat()
    path.write_text("// A.hpp\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)


def _replaced(root: Path) -> None:
    """Another file of the same size and time under the same name, as rsync puts it there."""
    path = root / "ck_tile" / "a.hpp"
    status = path.stat()
    new = path.with_name("new")
    new.write_text("// B.hpp\n")
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(path)


def _added(root: Path) -> None:
    (root / "ck_tile" / "d.hpp").write_text("")


def _removed(root: Path) -> None:
    (root / "ck_tile" / "b.hpp").unlink()


def _renamed(root: Path) -> None:
    (root / "ck_tile" / "b.hpp").rename(root / "ck_tile" / "e.hpp")


def _swapped(root: Path) -> None:
    one, other = root / "ck_tile" / "a.hpp", root / "ck_tile" / "b.hpp"
    one.rename(root / "x")
    other.rename(one)
    (root / "x").rename(other)


@pytest.mark.parametrize("change", [_one_byte, _replaced, _added, _removed, _renamed, _swapped])
def test_any_change_of_a_header(tree: Path, change: Callable[[Path], None]) -> None:
    before = digest.compute_tree_digest(tree)
    assert digest.compute_tree_digest(tree) == before == digest_tree(tree)
    change(tree)
    assert digest.compute_tree_digest(tree) == digest_tree(tree) != before


def test_places_and_times_of_headers_do_not_matter(tree: Path, tmp_path: Path) -> None:
    before = digest.compute_tree_digest(tree)
    shutil.copytree(tree, tmp_path / "elsewhere")
    assert digest.compute_tree_digest(tmp_path / "elsewhere") == before
    for path in tree.rglob("*"):
        os.utime(path, (1, 1))
    assert digest.compute_tree_digest(tree) == before
    for path in tree.rglob("*"):
        os.utime(path, (4e9, 4e9))
    assert digest.compute_tree_digest(tree) == before


def test_programs_by_content(tree: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "clang", tmp_path / "lld"
    one.write_bytes(b"\x7fELF 1")
    other.write_bytes(b"\x7fELF 2")
    before = compute_files_digest([one, other])
    assert compute_files_digest([other, one]) != before
    (tmp_path / "moved").mkdir()
    for path in (one, other):
        shutil.copy(path, tmp_path / "moved" / path.name)
    assert compute_files_digest([tmp_path / "moved" / "clang", tmp_path / "moved" / "lld"]) == before
    status = one.stat()
    one.write_bytes(b"\x7fELF 3")
    os.utime(one, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert compute_files_digest([one, other]) != before


class Watch:
    """Notes the files that are opened. A hook cannot be taken back, so there is one that is switched on and off."""

    def __init__(self) -> None:
        self.on = False
        self.hooked = False
        self.paths: list[str] = []

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.on and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            self.paths.append(os.fsdecode(arguments[0]))


WATCH = Watch()


@pytest.fixture
def opened(tree: Path) -> Iterator[Callable[[], list[str]]]:
    """The files of the tree that were opened since this was asked the last time."""
    if not WATCH.hooked:
        sys.addaudithook(WATCH)
        WATCH.hooked = True

    def take() -> list[str]:
        found = [path for path in WATCH.paths if path.startswith(str(tree))]
        WATCH.paths.clear()
        return found

    WATCH.on = True
    yield take
    WATCH.on = False
    WATCH.paths.clear()


def test_an_unchanged_tree_is_not_read_again(tree: Path, opened: Callable[[], list[str]]) -> None:
    before = digest.compute_tree_digest(tree)
    assert len(opened()) == 3
    assert digest.compute_tree_digest(tree) == before
    assert opened() == []
    _one_byte(tree)
    opened()
    assert digest.compute_tree_digest(tree) != before
    assert len(opened()) == 3


def test_a_tree_that_has_just_changed_is_read_each_time(
    tree: Path, opened: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its times could stay as they are while it changes once more."""
    monkeypatch.setattr(digest, "RACY_S", 2.0)
    _added(tree)
    opened()
    for _ in range(2):
        digest.compute_tree_digest(tree)
        assert len(opened()) == 4


def test_files_of_the_future_are_read_each_time(tree: Path, opened: Callable[[], list[str]]) -> None:
    """The clock was set back: nobody can tell whether they are young."""
    os.utime(tree / "ck_tile" / "a.hpp", (time.time() + 1e6, time.time() + 1e6))
    time.sleep(0.1)
    for _ in range(2):
        digest.compute_tree_digest(tree)
        assert len(opened()) == 3


@pytest.mark.parametrize("memory", [b"", b"{", b"[]", b'{"signature": 1, "digest": 2}', b"\xff\xfe"])
def test_a_damaged_memory_is_no_memory(tree: Path, tmp_path: Path, memory: bytes) -> None:
    before = digest.compute_tree_digest(tree)
    (remembered,) = (tmp_path / "cache" / "digests").iterdir()
    remembered.write_bytes(memory)
    assert digest.compute_tree_digest(tree) == before


def test_threads_that_ask_at_once(tree: Path, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)
            assert len(set(pool.map(lambda _: digest.compute_tree_digest(tree), range(16)))) == 1
    assert [path.suffix for path in (tmp_path / "cache" / "digests").iterdir()] == [".json"]


@pytest.fixture
def linked(tree: Path, tmp_path: Path) -> Path:
    """An include folder whose ck_tile is a link to the tree of a working copy."""
    root = tmp_path / "stow" / "include"
    root.mkdir(parents=True)
    (root / "ck_tile").symlink_to(tree / "ck_tile")
    return root


def test_a_linked_folder_is_the_folder(tree: Path, linked: Path) -> None:
    assert digest_tree(linked) == digest_tree(tree)
    assert digest.compute_tree_digest(linked) == digest.compute_tree_digest(tree)


@pytest.mark.parametrize("change", [_one_byte, _replaced, _added, _removed, _renamed, _swapped])
def test_any_change_of_a_header_behind_a_link(tree: Path, linked: Path, change: Callable[[Path], None]) -> None:
    before = digest.compute_tree_digest(linked)
    change(tree)
    assert digest.compute_tree_digest(linked) == digest_tree(linked) != before


def test_a_link_that_is_turned_to_another_folder(tree: Path, linked: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tree / "ck_tile", other)
    before = digest.compute_tree_digest(linked)
    (linked / "ck_tile").unlink()
    (linked / "ck_tile").symlink_to(other)
    assert digest.compute_tree_digest(linked) == before
    (other / "a.hpp").write_text("// A.hpp\n")
    assert digest.compute_tree_digest(linked) != before


def test_links_in_a_circle_end(tree: Path) -> None:
    before = digest_tree(tree)
    (tree / "ck_tile" / "core" / "up").symlink_to(tree)
    (tree / "ck_tile" / "core" / "here").symlink_to(".")
    around = digest.compute_tree_digest(tree)
    assert around == digest_tree(tree) != before, "headers can be included by longer names now"
    _one_byte(tree)
    assert digest.compute_tree_digest(tree) == digest_tree(tree) != around


def test_a_folder_reached_by_two_names_counts_under_both(tree: Path) -> None:
    (tree / "ck_tile" / "core2").symlink_to("core")
    linked = digest_tree(tree)
    (tree / "ck_tile" / "core2").unlink()
    shutil.copytree(tree / "ck_tile" / "core", tree / "ck_tile" / "core2")
    assert digest_tree(tree) == linked


def test_a_link_to_nowhere_is_no_file(tree: Path) -> None:
    before = digest_tree(tree)
    (tree / "ck_tile" / "gone.hpp").symlink_to("/nowhere/gone.hpp")
    assert digest.compute_tree_digest(tree) == digest_tree(tree) == before
