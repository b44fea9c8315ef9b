"""Prepare precompiled headers for a build: take them from the store, or compile and store them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tilewright.base.errors import CompileError, CorruptError, StoreError
from tilewright.base.events import Noticed, emit, task
from tilewright.building.allocator import fast_allocator
from tilewright.building.compile import error_lines
from tilewright.building.graph import GRAPH, HEADERS, write_headers_graph
from tilewright.building.ninja_run import StepEnded, cpu_seconds, run_graph
from tilewright.building.outcome import read_log, without_room
from tilewright.building.prefix import DEPENDENCIES, PRECOMPILED, READ, HeadersRead, Prefix, Roof, put_headers
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.faults import explained
from tilewright.building.store.local import Store

# Normally 3 s of CPU time, but minutes on an overloaded machine.
_LIMIT_S = 600.0


def roofs_of(prefixes: Mapping[str, Prefix], store: Store, folder: Path, jobs: int) -> dict[str, Roof]:
    """Precompile header sets; return the flags to compile with, by key. `folder` is private to the build.

    If headers do not compile, the flags contain no precompiled header, and a notice is emitted: each kernel then fails
    or takes longer. Raises `StoreError` if the disk is full.
    """
    folder.mkdir(mode=0o700)
    for prefix in prefixes.values():
        put_headers(prefix, store)
    roofs: dict[str, Roof] = {}
    while True:
        missing = _take_ready(prefixes, store, folder, roofs)
        if not missing:
            return roofs
        with ExitStack() as held:
            tried = {key: store.try_flight(key) for key in missing}
            mine = [key for key, flight in tried.items() if flight is not None and held.enter_context(flight)]
            mine = [key for key in _take_ready(prefixes, store, folder, roofs) if key in mine]
            if mine:
                for key in mine:
                    _remove_outdated(prefixes[key], key, store)
                roofs |= _precompiled({key: prefixes[key] for key in mine}, store, folder, jobs)
                continue
        _wait_for_one(missing, roofs, store)


def roof_of(prefix: Prefix, store: Store) -> Roof:
    """Precompile one header set; return the flags to compile with. Builds use `prepare_header_sets`."""
    key = prefix.key(store)
    with store.work_folder("headers") as private:
        made = roofs_of({key: prefix}, store, private / "roofs", jobs=1)[key]
        found = store.get(key)
    if not isinstance(found, Artifact):
        raise CompileError(f"the headers of {prefix.name} are not precompiled; see the notice for the reason", "")
    return prefix.roof(store, found.checked(PRECOMPILED), made.cpu_s)


def _take_ready(prefixes: Mapping[str, Prefix], store: Store, folder: Path, roofs: dict[str, Roof]) -> list[str]:
    """Add precompiled headers from the store to `roofs`; return the missing keys."""
    for key, prefix in prefixes.items():
        if key not in roofs and (path := _linked(store, key, folder)) is not None:
            roofs[key] = prefix.roof(store, path)
    return [key for key in prefixes if key not in roofs]


def _linked(store: Store, key: str, folder: Path) -> Path | None:
    """Make a hard link to the precompiled header, so that gc cannot remove it while it is used."""
    found = store.get(key)
    if not isinstance(found, Artifact):
        return None
    target = folder / f"{key}.pch"
    try:
        if not _is_current(found):
            return None
        path = found.checked(PRECOMPILED)
        try:
            os.link(path, target)
        except FileNotFoundError:
            return None  # removed since it was checked
        except OSError:  # a file system without hard links
            with explained("write", target):
                shutil.copyfile(path, target)
    except CorruptError:
        return None  # reported and moved by `verify_file`
    return target


def _is_current(found: Artifact) -> bool:
    """Return whether the system headers are unchanged. Raises `CorruptError` for a damaged entry."""
    return READ in found.files and HeadersRead.of_text(found.checked(READ).read_text("utf-8")).unchanged


def _has_current(store: Store, key: str) -> bool:
    found = store.get(key)
    try:
        return isinstance(found, Artifact) and _is_current(found)
    except CorruptError:
        return False


def _remove_outdated(prefix: Prefix, key: str, store: Store) -> None:
    """Remove the entry if its headers have changed: it would prevent storing a new one."""
    if store.get(key) is not None and not _has_current(store, key) and store.remove(key):
        emit(Noticed(f"system headers have changed; the headers of {prefix.name} are precompiled again"))


def _wait_for_one(missing: list[str], roofs: Mapping[str, Roof], store: Store) -> None:
    key = next((key for key in missing if key not in roofs), None)
    if key is not None:
        with store.flight(key, landed=lambda: _has_current(store, key)):
            return


def _precompiled(prefixes: Mapping[str, Prefix], store: Store, folder: Path, jobs: int) -> dict[str, Roof]:
    work = folder / "new"
    with explained("write", work):
        work.mkdir(mode=0o700, exist_ok=True)
    write_headers_graph(prefixes, store, work, preload=fast_allocator(), limit_s=_LIMIT_S, jobs=jobs)
    codes = {}
    with task("precompiling headers", len(prefixes)) as advance:
        for event in run_graph(work, jobs):
            if isinstance(event, StepEnded):
                codes[event.key] = event.code
                advance(prefixes[event.key].name)
    return {key: _roof(prefix, key, codes.get(key), store, work / key) for key, prefix in prefixes.items()}


def _roof(prefix: Prefix, key: str, code: int | None, store: Store, work: Path) -> Roof:
    path = work / PRECOMPILED
    cpu_s = cpu_seconds(work, HEADERS)
    if code == 0 and path.is_file():
        facts = {"slug": f"precompiled headers, {prefix.name}", "cost": {"cpu_s": round(cpu_s, 2)}}
        read = prefix.headers_read(store, (work / DEPENDENCIES).read_text("utf-8"))
        if read.changed_since((work.parent / GRAPH).stat().st_mtime):
            # It is unknown which version was read.
            emit(Noticed(f"system headers changed while the headers of {prefix.name} were precompiled; not stored"))
            return prefix.plain_roof(store)
        try:
            with explained("write", work):
                (work / READ).write_text(read.text(), "utf-8")
            store.put(key, {name: work / name for name in (PRECOMPILED, READ)}, facts)
        except StoreError as error:
            emit(Noticed(f"{error} The precompiled headers are used for this build only."))
        return prefix.roof(store, path, cpu_s)
    said = read_log(work, HEADERS)
    if without_room(work, said):
        raise StoreError(f"the headers of {prefix.name} cannot be precompiled in {work}: the disk is full.")
    why = "; ".join(error_lines(said)) or f"the compiler ended with code {code}"
    emit(Noticed(f"the headers of {prefix.name} are not precompiled, so each kernel takes longer: {why}"))
    return prefix.plain_roof(store)
