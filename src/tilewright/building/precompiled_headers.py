"""Prepare precompiled headers for a build: take them from the store, or compile and store them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tilewright.base.errors import CompileError, CorruptError, StoreError
from tilewright.base.events import Notice, emit, report_task
from tilewright.building.compile import extract_errors
from tilewright.building.graph import GRAPH, HEADERS, write_headers_graph
from tilewright.building.header_set import (
    DEPENDENCIES,
    PRECOMPILED,
    READ,
    HeaderSet,
    PchFlags,
    SystemHeaders,
    write_headers,
)
from tilewright.building.ninja_run import StepEnded, read_cpu_seconds, run_graph
from tilewright.building.outcome import is_disk_full, read_log
from tilewright.building.process import find_fast_allocator
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.files import translate_os_errors
from tilewright.building.store.local import Store

# Normally 3 s of CPU time, but minutes on an overloaded machine.
_LIMIT_S = 600.0


def prepare_header_sets(
    prefixes: Mapping[str, HeaderSet], store: Store, folder: Path, jobs: int
) -> dict[str, PchFlags]:
    """Precompile header sets; return the flags to compile with, by key. `folder` is private to the build.

    If headers do not compile, the flags contain no precompiled header, and a notice is emitted: each kernel then fails
    or takes longer. Raises `StoreError` if the disk is full.
    """
    folder.mkdir(mode=0o700)
    for prefix in prefixes.values():
        write_headers(prefix, store)
    pch_flags: dict[str, PchFlags] = {}
    while True:
        missing = _take_ready(prefixes, store, folder, pch_flags)
        if not missing:
            return pch_flags
        with ExitStack() as held:
            tried = {key: store.try_lock_build(key) for key in missing}
            mine = [key for key, lock in tried.items() if lock is not None and held.enter_context(lock)]
            mine = [key for key in _take_ready(prefixes, store, folder, pch_flags) if key in mine]
            if mine:
                for key in mine:
                    _remove_outdated(prefixes[key], key, store)
                pch_flags |= _compile_headers({key: prefixes[key] for key in mine}, store, folder, jobs)
                continue
        _wait_for_one(missing, pch_flags, store)


def prepare_header_set(prefix: HeaderSet, store: Store) -> PchFlags:
    """Precompile one header set; return the flags to compile with. Builds use `prepare_header_sets`."""
    key = prefix.key(store)
    with store.create_work_folder("headers") as private:
        made = prepare_header_sets({key: prefix}, store, private / "roofs", jobs=1)[key]
        found = store.get(key)
    if not isinstance(found, Artifact):
        raise CompileError(f"the headers of {prefix.name} are not precompiled; see the notice for the reason", "")
    return prefix.make_pch_flags(store, found.verify_file(PRECOMPILED), made.cpu_s)


def _take_ready(
    prefixes: Mapping[str, HeaderSet], store: Store, folder: Path, pch_flags: dict[str, PchFlags]
) -> list[str]:
    """Add precompiled headers from the store to `pch_flags`; return the missing keys."""
    for key, prefix in prefixes.items():
        if key not in pch_flags and (path := _link_precompiled(store, key, folder)) is not None:
            pch_flags[key] = prefix.make_pch_flags(store, path)
    return [key for key in prefixes if key not in pch_flags]


def _link_precompiled(store: Store, key: str, folder: Path) -> Path | None:
    """Make a hard link to the precompiled header, so that gc cannot remove it while it is used."""
    found = store.get(key)
    if not isinstance(found, Artifact):
        return None
    target = folder / f"{key}.pch"
    try:
        if not _is_current(found):
            return None
        path = found.verify_file(PRECOMPILED)
        try:
            os.link(path, target)
        except FileNotFoundError:
            return None  # removed since it was checked
        except OSError:  # a file system without hard links
            with translate_os_errors("write", target):
                shutil.copyfile(path, target)
    except CorruptError:
        return None  # reported and moved by `verify_file`
    return target


def _is_current(found: Artifact) -> bool:
    """Return whether the system headers are unchanged. Raises `CorruptError` for a damaged entry."""
    return READ in found.files and SystemHeaders.from_json(found.verify_file(READ).read_text("utf-8")).is_unchanged


def _has_current(store: Store, key: str) -> bool:
    found = store.get(key)
    try:
        return isinstance(found, Artifact) and _is_current(found)
    except CorruptError:
        return False


def _remove_outdated(prefix: HeaderSet, key: str, store: Store) -> None:
    """Remove the entry if its headers have changed: it would prevent storing a new one."""
    if store.get(key) is not None and not _has_current(store, key) and store.remove(key):
        emit(Notice(f"system headers have changed; the headers of {prefix.name} are precompiled again"))


def _wait_for_one(missing: list[str], pch_flags: Mapping[str, PchFlags], store: Store) -> None:
    key = next((key for key in missing if key not in pch_flags), None)
    if key is not None:
        with store.lock_build(key, already_built=lambda: _has_current(store, key)):
            return


def _compile_headers(prefixes: Mapping[str, HeaderSet], store: Store, folder: Path, jobs: int) -> dict[str, PchFlags]:
    work = folder / "new"
    with translate_os_errors("write", work):
        work.mkdir(mode=0o700, exist_ok=True)
    write_headers_graph(prefixes, store, work, preload=find_fast_allocator(), limit_s=_LIMIT_S, jobs=jobs)
    codes = {}
    with report_task("precompiling headers", len(prefixes)) as advance:
        for event in run_graph(work, jobs):
            if isinstance(event, StepEnded):
                codes[event.key] = event.code
                advance(prefixes[event.key].name)
    return {key: _finish_header_set(prefix, key, codes.get(key), store, work / key) for key, prefix in prefixes.items()}


def _finish_header_set(prefix: HeaderSet, key: str, code: int | None, store: Store, work: Path) -> PchFlags:
    path = work / PRECOMPILED
    cpu_s = read_cpu_seconds(work, HEADERS)
    if code == 0 and path.is_file():
        facts = {"slug": f"precompiled headers, {prefix.name}", "cost": {"cpu_s": round(cpu_s, 2)}}
        read = prefix.find_system_headers(store, (work / DEPENDENCIES).read_text("utf-8"))
        if read.has_changed_since((work.parent / GRAPH).stat().st_mtime):
            # It is unknown which version was read.
            emit(Notice(f"system headers changed while the headers of {prefix.name} were precompiled; not stored"))
            return prefix.make_plain_flags(store)
        try:
            with translate_os_errors("write", work):
                (work / READ).write_text(read.to_json(), "utf-8")
            store.put(key, {name: work / name for name in (PRECOMPILED, READ)}, facts)
        except StoreError as error:
            emit(Notice(f"{error} The precompiled headers are used for this build only."))
        return prefix.make_pch_flags(store, path, cpu_s)
    said = read_log(work, HEADERS)
    if is_disk_full(work, said):
        raise StoreError(f"the headers of {prefix.name} cannot be precompiled in {work}: the disk is full.")
    why = "; ".join(extract_errors(said)) or f"the compiler ended with code {code}"
    emit(Notice(f"the headers of {prefix.name} are not precompiled, so each kernel takes longer: {why}"))
    return prefix.make_plain_flags(store)
