"""Write wrappers and build files into a folder: only changed files; stale files of earlier runs are removed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tilewright.base import events
from tilewright.base.atomic_write import create_folder
from tilewright.base.digest import to_canonical_json
from tilewright.base.document_values import expect_list_items, expect_table, expect_text
from tilewright.base.documents import convert_read_errors, read_json
from tilewright.base.errors import InvalidValueError
from tilewright.codegen.build_files import BUILD_SYSTEMS, BuildSystem
from tilewright.codegen.build_files.recipe import HEADERS, OBJECT_LIST, PRODUCTS, RECIPE, CompileRecipe, LibraryTarget
from tilewright.codegen.fatbin import fatbin_symbol, render_fatbin
from tilewright.codegen.folder import write_if_changed
from tilewright.codegen.wrappers import Wrapper

WRAPPERS_NAME = "wrappers.json"
WRAPPERS_SCHEMA = 1


@dataclass(frozen=True)
class WrapResult:
    """The result of a run: the files that were written, those that were up to date, and the files of earlier runs
    that were removed."""

    folder: Path
    library: LibraryTarget
    wrappers: tuple[Wrapper, ...]
    systems: tuple[BuildSystem, ...]
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class _Earlier:
    """The list of an earlier run: files that it wrote, and products that its build may have written."""

    files: frozenset[str] = frozenset()
    products: frozenset[str] = frozenset()


def wrap_kernels(
    wrappers: Sequence[Wrapper],
    kernel_dir: Path,
    folder: Path,
    recipe: CompileRecipe,
    *,
    library: str,
    systems: Sequence[BuildSystem],
    jobs: int = 1,
) -> WrapResult:
    """Write a wrapper per kernel, the other files of the recipe, and build files of `systems` into `folder`.

    Build files of earlier runs are updated too. Files that do not belong to an earlier run are never changed.
    """
    made = LibraryTarget(library, [wrapper.name for wrapper in wrappers], recipe)
    earlier = _read_earlier(folder)
    kept = tuple(s for s in BUILD_SYSTEMS if s in systems or (s.file in earlier.files and (folder / s.file).exists()))
    for system in kept:
        headers = [*(wrapper.header for wrapper in wrappers), *recipe.list_include_paths()]
        system.check_names(headers, str(folder.resolve()))
    texts = _render_texts(wrappers, made, kept)
    _reject_foreign(folder, texts, earlier)
    create_folder(folder)
    changed = [HEADERS] if _link_headers(folder / HEADERS, kernel_dir) else []
    stale = (earlier.files - set(texts)) | (earlier.products - _list_products(made.kernels, recipe.suffixes()))
    removed = _remove_files(folder, stale)
    # The list is written before the files: even after a crash, every file is in some list.
    listing = _format_listing(wrappers, made, texts)
    changed += [WRAPPERS_NAME] if write_if_changed(folder / WRAPPERS_NAME, listing) else []
    changed += _write_changed(folder, texts, jobs)
    unchanged = sorted({*texts, WRAPPERS_NAME, HEADERS} - set(changed))
    return WrapResult(folder, made, tuple(wrappers), kept, tuple(sorted(changed)), tuple(unchanged), removed)


def _render_texts(
    wrappers: Sequence[Wrapper], library: LibraryTarget, systems: Iterable[BuildSystem]
) -> dict[str, str]:
    texts = {wrapper.file: wrapper.render_text() for wrapper in wrappers}
    texts |= _render_assemblies(library)
    texts |= {OBJECT_LIST: library.format_object_list(), RECIPE: library.recipe.to_json()}
    texts |= library.recipe.files
    return texts | {system.file: system.render(library) for system in systems}


def _render_assemblies(library: LibraryTarget) -> dict[str, str]:
    """Render the files that embed code objects, if the recipe has such a step."""
    recipe = library.recipe
    embedding = next((step for step in recipe.steps if step.embeds), None)
    if embedding is None:
        return {}
    texts = {}
    for kernel in library.kernels:
        files = dict(zip(recipe.gpus, embedding.embedded_products(kernel), strict=True))
        # Build files name the unit after its kernel, see Slot.UNIT.
        texts[kernel + embedding.source] = render_fatbin(files, fatbin_symbol(kernel))
    return texts


def _list_products(kernels: Iterable[str], suffixes: Sequence[str]) -> frozenset[str]:
    return frozenset(f"{PRODUCTS}/{kernel}{suffix}" for kernel in kernels for suffix in suffixes)


def _write_changed(folder: Path, texts: Mapping[str, str], jobs: int) -> list[str]:
    """Write all files that differ; return their names."""

    def write(name: str) -> bool:
        return write_if_changed(folder / name, texts[name])

    changed = []
    with events.report_task("wrap", len(texts)) as advance, ThreadPoolExecutor(max_workers=jobs) as pool:
        for name, wrote in zip(texts, pool.map(write, texts), strict=True):
            changed += [name] if wrote else []
            advance(name)
    return changed


def _link_headers(link: Path, kernel_dir: Path) -> bool:
    """Make `link` point to the kernels, by a relative path, so that both folders can be moved together."""
    target = os.path.relpath(kernel_dir.resolve(), link.parent.resolve())
    if link.is_symlink():
        if str(link.readlink()) == target:
            return False
        link.unlink()
    elif link.exists():
        raise InvalidValueError(f"{link} is in the way: move it, or choose another folder for the wrappers")
    link.symlink_to(target)
    return True


def _reject_foreign(folder: Path, texts: Mapping[str, str], earlier: _Earlier) -> None:
    for name, text in texts.items():
        path = folder / name
        if name not in earlier.files and path.exists() and path.read_bytes() != text.encode():
            raise InvalidValueError(
                f"{path} exists, and no earlier run in {folder} wrote it. "
                "Move it away, or choose another folder for the wrappers."
            )


def _remove_files(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Remove files; return the names of those that existed."""
    present = [name for name in sorted(names) if (folder / name).is_file()]
    for name in present:
        (folder / name).unlink()
    return tuple(present)


def _format_listing(wrappers: Sequence[Wrapper], library: LibraryTarget, files: Iterable[str]) -> str:
    """Format JSON with one kernel per line, so that a diff of two lists is readable."""
    kernels = [to_canonical_json({"header": w.header, "marker": w.marker, "name": w.name}) for w in wrappers]
    head = {
        "schema": WRAPPERS_SCHEMA,
        "library": library.file,
        "gpus": library.recipe.gpus,
        "files": sorted(files),
        "products": library.recipe.suffixes(),
    }
    lines = [f'"{key}":{to_canonical_json(value)}' for key, value in head.items()]
    return "{" + ",\n".join([*lines, '"kernels":[\n' + ",\n".join(kernels) + "\n]"]) + "}\n"


def _read_earlier(folder: Path) -> _Earlier:
    """Read the list of an earlier run. Names that are not plain are ignored: nothing outside the folder is touched."""
    path = folder / WRAPPERS_NAME
    if not path.exists():
        return _Earlier()
    with convert_read_errors(path, "this is not a list of wrappers: move it away to continue"):
        listed = expect_table("a list", read_json(path))
        files = _filter_plain(expect_list_items("files", listed["files"], expect_text))
        suffixes = _filter_plain(expect_list_items("products", listed["products"], expect_text))
        entries = expect_list_items("kernels", listed["kernels"], expect_table)
        kernels = _filter_plain(expect_text("name", entry["name"]) for entry in entries)
    return _Earlier(frozenset(files), _list_products(kernels, suffixes))


def _filter_plain(names: Iterable[str]) -> list[str]:
    return [name for name in names if Path(name).name == name]
