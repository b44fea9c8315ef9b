"""Fetch trees of CK Tile's headers into the cache: pinned ones, copies of folders, and commits of git repositories.

A folder is copied, not referenced: the copy keeps its content when the original changes, so the name of a tree always
means the same headers. To follow a checkout that you edit, set TILEWRIGHT_CK to its folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tilewright.base.digest import digest_tree, walk_tree
from tilewright.base.errors import ToolchainError
from tilewright.base.events import Advance, report_task
from tilewright.base.shared_files import hold_lock, lock_unused
from tilewright.building.ck_archive import DOWNLOAD_TIMEOUT_S, check_digest, download_archive, unpack_archive
from tilewright.building.ck_cache import (
    DEFAULT_TREE,
    FETCH,
    HEADERS,
    TOOLS,
    FetchedTree,
    check_tree_name,
    describe_source,
    find_fetched_tree,
    find_pinned_tree,
    get_tree_folder,
    write_manifest,
)

_LOCK_TIMEOUT_S = 2 * DOWNLOAD_TIMEOUT_S
_PRIVATE = ".fetch-"
# Puts the parts into a private folder in three steps, and returns the folder that has them.
_Provide = Callable[[Path, Sequence[str], Advance], Path]


def fetch_ck(name: str = DEFAULT_TREE, *, tools: bool = False) -> FetchedTree:
    """Download a pinned tree (with `tools` its tile_engine, too) into the cache, once.

    Threads and processes may call this concurrently: one downloads, all get the tree. This also holds for the other
    functions of this module.
    """
    pinned = find_pinned_tree(name)

    def provide(private: Path, parts: Sequence[str], advance: Advance) -> Path:
        archive = download_archive(pinned, private)
        advance("downloaded")
        check_digest(archive, pinned)
        advance("checked")
        unpack_archive(archive, pinned.folder, private / "tree", parts)
        advance("unpacked")
        return private / "tree"

    return _fetch_tree(name, pinned.source, tools, provide)


def copy_ck(folder: Path, name: str = "", *, tools: bool = False) -> FetchedTree:
    """Copy the tree in `folder` into the cache. Its name is that of the folder if you give none."""
    original = folder.expanduser().resolve()
    parts = _list_parts(tools)
    for needed in (f"{HEADERS}/ck_tile", *parts):
        if not (original / needed).is_dir():
            raise ToolchainError(
                f"{original} has no {needed}. Name the folder of a checkout or install of composable_kernel, the one "
                f"above {HEADERS}."
            )
    source = {"folder": str(original), "digest": digest_tree(original / HEADERS)}

    def provide(private: Path, parts: Sequence[str], advance: Advance) -> Path:
        advance("checked")
        for part in parts:
            _copy_files(original / part, private / part)
        advance("copied")
        if HEADERS in parts and digest_tree(private / HEADERS) != source["digest"]:
            raise ToolchainError(f"{original} changed while it was copied. Run the command again.")
        advance("compared")
        return private

    return _fetch_tree(check_tree_name(name or original.name), source, tools, provide)


def _copy_files(folder: Path, target: Path) -> None:
    """Copy a folder as a compiler sees it: with the files behind links, without broken links."""
    for name, entry in walk_tree(folder):
        if entry.is_file():
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(entry.path, copy)


def clone_ck(address: str, commit: str, subfolder: str = "", name: str = "", *, tools: bool = False) -> FetchedTree:
    """Fetch the tree in `subfolder` of a git repository at `commit`, with the user's git.

    The tree's name is the beginning of the commit's hash if you give none.
    """
    from tilewright.building import ck_git  # noqa: PLC0415  (costs start-up time)
    from tilewright.building.package_index import remove_password  # noqa: PLC0415

    commit, subfolder = ck_git.check_commit(commit), ck_git.check_subfolder(subfolder)
    local = Path(address).expanduser()
    address = str(local.resolve()) if local.exists() else address  # git runs in another folder
    source = {"git": remove_password(address), "commit": commit, "subfolder": subfolder}

    def provide(private: Path, parts: Sequence[str], advance: Advance) -> Path:
        return ck_git.check_out(address, commit, subfolder, private, parts, advance)

    return _fetch_tree(check_tree_name(name or commit[:12]), source, tools, provide)


def _list_parts(tools: bool) -> tuple[str, ...]:
    return (HEADERS, TOOLS) if tools else (HEADERS,)


def _fetch_tree(name: str, source: Mapping[str, str], tools: bool, provide: _Provide) -> FetchedTree:
    """Return the tree, after `provide` got its missing parts."""
    home = get_tree_folder(name)
    home.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(home.parent)
    tree = _find_tree(name, source)
    if all(tree.has(part) for part in _list_parts(tools)):
        return tree
    lock = _get_lock(home)
    with hold_lock(lock, _LOCK_TIMEOUT_S) as held:
        if not held:
            raise ToolchainError(
                f"{lock} is still held by another process after {_LOCK_TIMEOUT_S:g} s. "
                f"End that process and run `{FETCH}` again."
            )
        tree = _find_tree(name, source)
        if absent := [part for part in _list_parts(tools) if not tree.has(part)]:
            tree = _add_parts(tree, absent, provide)
    return tree


def _find_tree(name: str, source: Mapping[str, str]) -> FetchedTree:
    """The tree in the cache, empty if it is not there. An error if the tree of this name has another source."""
    tree = find_fetched_tree(name)
    if tree is None:
        return FetchedTree(name, get_tree_folder(name), source, {})
    if tree.source != source:
        raise ToolchainError(
            f"the name {name} is in use for another tree: {describe_source(tree.source) or 'its source is unknown'}, "
            f"while you want {describe_source(source)}{_describe_change(tree.source, source)}. Choose another name "
            f"with --name, or delete {tree.folder} first."
        )
    return tree


def _describe_change(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    digests = before.get("digest"), after.get("digest")
    return f" (its headers changed: digest {digests[0]}, now {digests[1]})" if all(digests) else ""


def _add_parts(tree: FetchedTree, parts: Sequence[str], provide: _Provide) -> FetchedTree:
    """Get the parts in a private folder next to the tree, move each of them into the tree, and write its manifest."""
    with report_task(f"fetching CK tree {tree.name}", total=3) as advance, _open_private(tree.folder) as private:
        found = provide(private, parts, advance)
        tree.folder.mkdir(exist_ok=True)
        counts = dict(tree.files)
        for part in parts:
            shutil.rmtree(tree.folder / part, ignore_errors=True)  # left by a process that was killed here
            (found / part).rename(tree.folder / part)
            counts[part] = sum(1 for path in (tree.folder / part).rglob("*") if path.is_file())
        whole = FetchedTree(tree.name, tree.folder, tree.source, counts)
        write_manifest(whole)
    return whole


@contextmanager
def _open_private(home: Path) -> Iterator[Path]:
    """Create the private folder of the tree whose lock the caller holds, and remove it at the end."""
    private = home.with_name(f"{_PRIVATE}{home.name}")
    try:
        private.mkdir()
        yield private
    finally:
        shutil.rmtree(private, ignore_errors=True)
        if find_fetched_tree(home.name) is None:
            shutil.rmtree(home, ignore_errors=True)  # interrupted before the manifest was written


def _remove_leftovers(folder: Path) -> None:
    """Remove the private folders of processes that were killed: nobody holds their locks."""
    for private in folder.glob(f"{_PRIVATE}*"):
        with lock_unused(_get_lock(folder / private.name.removeprefix(_PRIVATE))) as unused:
            if unused:
                shutil.rmtree(private, ignore_errors=True)


def _get_lock(home: Path) -> Path:
    return Path(f"{home}.lock")
