"""Trees of CK Tile's headers in the cache, side by side, each with a manifest; and the pinned ones to fetch.

A tree is a folder with `include/ck_tile`, as a checkout of composable_kernel has it, and optionally `tile_engine`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base import knobs
from tilewright.base.document_values import expect_integer, expect_table, expect_table_values, expect_text
from tilewright.base.documents import convert_read_errors, read_json
from tilewright.base.errors import FileFormatError, ToolchainError, UnknownValueError

HEADERS = "include"
TOOLS = "tile_engine"
FETCH = "tilewright toolchain fetch-ck"
_MANIFEST = "manifest.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True, slots=True)
class PinnedTree:
    """A tree inside one file of a package, which is used only if it has this digest."""

    name: str  # year and month of CK's sources
    package: str
    version: str
    file: str  # a wheel or an sdist
    sha256: str
    size: int  # bytes of the file
    folder: str  # of the tree, inside the file

    @property
    def source(self) -> dict[str, str]:
        """The source in the manifest."""
        return {"package": self.package, "version": self.version, "file": self.file, "sha256": self.sha256}


DEFAULT_TREE = "2025-11"
_PINNED = (
    # A pure-Python wheel, of about ROCm 7.1. It is a pre-release: pip installs it only by its exact version.
    PinnedTree(
        name=DEFAULT_TREE,
        package="amd-aiter",
        version="0.1.7.post2.dev18",
        file="amd_aiter-0.1.7.post2.dev18-py3-none-any.whl",
        sha256="fe139d74438217c35e87e3b961166bac8db2d381eadccb371da2e63615f05a31",
        size=40_189_929,
        folder="aiter_meta/3rdparty/composable_kernel",
    ),
    # The package is of 2026, but its CK is still commit e8709c24, which flash-attention selected on 2025-07-31.
    PinnedTree(
        name="2025-07",
        package="flash-attn",
        version="2.8.3.post2",
        file="flash_attn-2.8.3.post2.tar.gz",
        sha256="d0f9f0b08a986cdeadbffcf5ec8b3a8f514366c68ad1853d3ab061bc83cc340b",
        size=8_453_127,
        folder="flash_attn-2.8.3.post2/csrc/composable_kernel",
    ),
)
PINNED_TREES: Mapping[str, PinnedTree] = {tree.name: tree for tree in _PINNED}


@dataclass(frozen=True, slots=True)
class FetchedTree:
    """A tree in the cache: its source, and the number of files in each part."""

    name: str
    folder: Path
    source: Mapping[str, str]
    files: Mapping[str, int]
    problem: str = ""  # of a manifest that cannot be read

    @property
    def include(self) -> Path:
        """The folder that a compiler searches."""
        return self.folder / HEADERS

    def has(self, part: str) -> bool:
        """Whether `include` or `tile_engine` is there."""
        return part in self.files and (self.folder / part).is_dir()

    def __str__(self) -> str:
        described = describe_source(self.source)
        return f"{self.name}, {described}" if described else self.name

    def to_json(self) -> dict[str, Any]:
        """The tree as a JSON value: its manifest and its folder, or its problem."""
        facts = {"source": dict(self.source), "files": dict(self.files)}
        return {"name": self.name, "folder": str(self.folder), **({"problem": self.problem} if self.problem else facts)}


def describe_source(source: Mapping[str, str]) -> str:
    """`amd-aiter 0.1.7.post2.dev18`, `copy of /home/me/ck`, or `https://…/ck at 0123456789ab`."""
    if "package" in source:
        return f"{source['package']} {source['version']}"
    if "git" in source:
        inside = f", folder {source['subfolder']}" if source.get("subfolder") else ""
        return f"{source['git']} at {source['commit'][:12]}{inside}"
    return f"copy of {source['folder']}" if "folder" in source else ""


def find_pinned_tree(name: str) -> PinnedTree:
    """Find a pinned tree by name. Raises `UnknownValueError` with the known names."""
    if name not in PINNED_TREES:
        note = f"For another tree, give `{FETCH}` a --folder, or --git with --commit."
        raise UnknownValueError("tree", name, PINNED_TREES, note)
    return PINNED_TREES[name]


def get_tree_folder(name: str) -> Path:
    """The folder in the cache for a tree, whether it exists or not."""
    return knobs.cache_dir() / "ck" / name


def is_tree_name(text: str) -> bool:
    """Whether a text can be the name of a tree: up to 80 letters, digits, dots, hyphens and underscores."""
    return _NAME.fullmatch(text) is not None


def find_fetched_tree(name: str) -> FetchedTree | None:
    """Find a tree in the cache; None if it is not there. Raises `FileFormatError` for a damaged manifest."""
    return read_tree(get_tree_folder(name))


def list_fetched_trees() -> list[FetchedTree]:
    """List the trees in the cache by name. One with a damaged manifest has a `problem`."""
    home = get_tree_folder("")
    folders = (
        sorted(path for path in home.iterdir() if path.is_dir() and is_tree_name(path.name)) if home.is_dir() else []
    )
    return [tree for tree in map(_read_or_describe, folders) if tree is not None]


def _read_or_describe(folder: Path) -> FetchedTree | None:
    try:
        return read_tree(folder)
    except FileFormatError as error:
        return FetchedTree(folder.name, folder, {}, {}, str(error))


def read_tree(folder: Path) -> FetchedTree | None:
    """Read the manifest of a tree; None without one, or without the headers: a fetch did not end."""
    path = folder / _MANIFEST
    if not path.exists():
        return None
    with convert_read_errors(path, f"delete {folder} and run `{FETCH}`"):
        manifest = expect_table("a manifest", read_json(path))
        files = expect_table_values("files", manifest["files"], expect_integer)
        # Manifests had no source when there was only one tree.
        source = expect_table_values("source", manifest.get("source", {}), expect_text)
        describe_source(source)  # raises an error for a missing field
    tree = FetchedTree(folder.name, folder, source, files)
    return tree if tree.has(HEADERS) else None


def write_manifest(tree: FetchedTree) -> None:
    """Write the manifest of a tree. The caller holds the lock of its name."""
    manifest = {"name": tree.name, "source": dict(tree.source), "files": dict(tree.files)}
    private = tree.folder / f"{_MANIFEST}.new"
    private.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    private.replace(tree.folder / _MANIFEST)


def check_tree_name(name: str) -> str:
    """Return the name for a tree that is not pinned, or raise `ToolchainError`."""
    if not is_tree_name(name):
        raise ToolchainError(
            f"{name!r} cannot be the name of a tree. Give one with --name: 1 to 80 letters, digits, dots, hyphens "
            "and underscores, the first a letter or digit."
        )
    if name in PINNED_TREES:
        raise ToolchainError(f"{name} is the name of a pinned tree. Give another one with --name.")
    return name
