"""Find CK Tile's headers: in TILEWRIGHT_CK, in a ROCm installation, or among the fetched trees."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from tilewright.base import knobs
from tilewright.base.errors import FileFormatError, ToolchainError
from tilewright.base.knobs import ROCM
from tilewright.building.ck_cache import (
    DEFAULT_TREE,
    FETCH,
    HEADERS,
    PINNED_TREES,
    TOOLS,
    FetchedTree,
    find_fetched_tree,
    get_tree_folder,
    is_tree_name,
    list_fetched_trees,
)
from tilewright.building.components import Component
from tilewright.building.discover import discover


def find_ck() -> Path:
    """Find the include folder with ck_tile/: from the knob, else from the chosen ROCm, else the fetched one."""
    found = discover()
    part = find_ck_component(found.rocm_root if found.chosen == ROCM else None)
    if part.path is None:
        raise ToolchainError(str(part))
    return part.path


def find_ck_tools() -> Path:
    """Find the folder of CK's tile_engine: in the tree that the knob names, else in the default tree."""
    configured = knobs.CK_PATH.get()
    tree = _find_configured_tree(configured) if configured else find_fetched_tree(DEFAULT_TREE)
    if configured and tree is None:
        folder = Path(configured).expanduser()
        if (folder / TOOLS).is_dir():
            return folder / TOOLS
        raise ToolchainError(
            f"{knobs.CK_PATH.name}={configured} has no {TOOLS}/, which only a checkout of "
            f"composable_kernel has. Unset it, then run: {FETCH} --tools"
        )
    if tree is None or not tree.has(TOOLS):
        name = tree.name if tree else DEFAULT_TREE
        which = f" --tree {name}" if name != DEFAULT_TREE else ""
        raise ToolchainError(f"CK's {TOOLS} is not in {get_tree_folder(name)}. Get it with: {FETCH}{which} --tools")
    return tree.folder / TOOLS


def find_ck_component(rocm: Path | None) -> Component:
    """Find the current CK headers as a toolchain component; `rocm` is the ROCm in use, if any."""
    configured = knobs.CK_PATH.get()
    try:
        if configured is not None:
            return _find_configured(configured)
        unknown = ""
        if rocm is not None and _has_ck(rocm / HEADERS):
            unknown = _find_difference(rocm / HEADERS)
            if not unknown:
                return _make_component(rocm / HEADERS, _read_version(rocm / HEADERS))
        tree = find_fetched_tree(DEFAULT_TREE)
    except FileFormatError as error:
        return _make_component(None, problem=str(error))
    if tree is not None:
        instead = f", because those of {rocm} are of an unknown generation: {unknown}" if unknown else ""
        return _make_component(tree.include, f"{tree}{instead}")
    if unknown:
        return _make_component(None, problem=f"{rocm}/include is of an unknown generation: {unknown}")
    places = f"they are not in {get_tree_folder(DEFAULT_TREE)}" + (f", nor in {rocm}/include" if rocm else "")
    return _make_component(None, problem=f"{places}{_list_others()}")


def _find_configured_tree(setting: str) -> FetchedTree | None:
    """The fetched tree of this name. It wins over a folder of the same name, which would depend on where you are."""
    return find_fetched_tree(setting) if is_tree_name(setting) else None


def _find_configured(setting: str) -> Component:
    tree = _find_configured_tree(setting)
    if tree is not None:
        return _make_component(tree.include, str(tree))
    include = Path(setting).expanduser() / HEADERS
    if _has_ck(include):
        return _make_component(include, _read_version(include))
    if is_tree_name(setting) and not Path(setting).exists():
        fetched = ", ".join(_list_usable()) or "none"
        problem = f"{knobs.CK_PATH.name}={setting} is neither a folder nor a fetched tree (fetched: {fetched})"
        fix = f"{FETCH} --tree {setting}" if setting in PINNED_TREES else f"unset {knobs.CK_PATH.name}"
        return _make_component(None, problem=problem, fix=fix)
    problem = f"{knobs.CK_PATH.name}={setting} has no include/ck_tile"
    return _make_component(None, problem=problem, fix=f"unset {knobs.CK_PATH.name}")


def _list_usable() -> list[str]:
    return [tree.name for tree in list_fetched_trees() if not tree.problem]


def _list_others() -> str:
    others = _list_usable()
    return f"; to use one of the fetched trees, set {knobs.CK_PATH.name} to {' or '.join(others)}" if others else ""


def _make_component(path: Path | None, version: str = "", problem: str = "", fix: str = FETCH) -> Component:
    return Component("ck", "CK Tile headers", path, version, problem, fix)


def _find_difference(include: Path) -> str:
    """The difference of a tree from all known generations; empty if it can be used for every op that has probes."""
    # By name: ops declare the probes, and the emulator, which looks for its compiler here, must work without ops.
    failures: Mapping[str, str] = importlib.import_module("tilewright.building.ck_tree").probe_tree(include).failures
    return next(iter(failures.values()), "")


def _has_ck(include: Path) -> bool:
    return (include / "ck_tile").is_dir()


def _read_version(include: Path) -> str:
    """Read CK_VERSION of an installed tree; a checkout only has the template of that file."""
    stated = include / "ck" / "version.h"
    if not stated.is_file():
        return ""
    words = (line.split() for line in stated.read_text(errors="replace").splitlines())
    return next((w[2] for w in words if w[:2] == ["#define", "CK_VERSION"] and len(w) > 2), "")
