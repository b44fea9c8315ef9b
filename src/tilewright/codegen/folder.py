"""Writing kernels into a folder: only what changed, in parallel, with a manifest of what is there."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base import events
from tilewright.base.digest import digest_text
from tilewright.base.errors import FileFormatError, FileProblem
from tilewright.codegen.render import Source, render
from tilewright.ops.fields import config_json
from tilewright.ops.kernel import Kernel

MANIFEST_NAME = "manifest.json"
MANIFEST_SCHEMA = 1
# Below this many kernels, starting processes costs more than it saves.
PARALLEL_FROM = 400
CHUNK = 100


@dataclass(frozen=True)
class Generated:
    """What a generation did: kernels now in the folder, files written, files that were right already, and
    files of earlier generations that were removed."""

    folder: Path
    kernels: int
    written: int
    unchanged: int
    removed: int


def generate(kernels: Iterable[Kernel], folder: Path, *, jobs: int = 1) -> Generated:
    """Render kernels into `folder`. A file whose text is right already is not touched, so build tools see no
    change. Kernels that an earlier manifest lists and this one does not are removed; other files are left alone.
    """
    listed = sorted(set(kernels), key=lambda k: k.slug)
    folder.mkdir(parents=True, exist_ok=True)
    earlier = _earlier_files(folder)
    entries: list[dict[str, Any]] = []
    support: dict[str, str] = {}
    written = 0
    with events.task("generate", len(listed)) as advance:
        for changed, entry, files in _written(listed, folder, jobs):
            written += changed
            entries.append(entry)
            support.update(files)
            advance(entry["slug"])
    for name, text in support.items():
        written += write_if_changed(folder / name, text)
    manifest = {"schema": MANIFEST_SCHEMA, "support": sorted(support), "kernels": entries}
    write_if_changed(folder / MANIFEST_NAME, json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    stale = earlier - {entry["file"] for entry in entries} - set(support)
    for name in stale:
        (folder / name).unlink(missing_ok=True)
    total = len(entries) + len(support)
    return Generated(folder, len(entries), written, total - written, len(stale))


def write_if_changed(path: Path, text: str) -> bool:
    """Write a file unless it already holds this text; readers see the old or the new text, never a part."""
    content = text.encode()
    try:
        if path.read_bytes() == content:
            return False
    except FileNotFoundError:
        pass
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o644)  # noqa: PTH101  (mkstemp makes it private to the user)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True


def _written(
    kernels: Sequence[Kernel], folder: Path, jobs: int
) -> Iterable[tuple[bool, dict[str, Any], dict[str, str]]]:
    if jobs == 1 or len(kernels) < PARALLEL_FROM:
        for kernel in kernels:
            yield _write_one(kernel, folder)
        return
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        chunks = [kernels[i : i + CHUNK] for i in range(0, len(kernels), CHUNK)]
        for results in pool.map(_write_chunk, chunks, [folder] * len(chunks)):
            yield from results


def _write_chunk(kernels: Sequence[Kernel], folder: Path) -> list[tuple[bool, dict[str, Any], dict[str, str]]]:
    return [_write_one(kernel, folder) for kernel in kernels]


def _write_one(kernel: Kernel, folder: Path) -> tuple[bool, dict[str, Any], dict[str, str]]:
    source = render(kernel)
    changed = write_if_changed(folder / source.file_name, source.text)
    return changed, _entry(source), dict(source.files)


def _entry(source: Source) -> dict[str, Any]:
    kernel = source.kernel
    return {
        "slug": kernel.slug,
        "file": source.file_name,
        "symbol": kernel.symbol,
        "op": kernel.op,
        "arch": kernel.arch,
        "config": config_json(kernel.config),
        "text_digest": digest_text(source.text),
    }


def _earlier_files(folder: Path) -> set[str]:
    """Files that an earlier generation put here. Names are used only if they are plain file names."""
    path = folder / MANIFEST_NAME
    if not path.exists():
        return set()
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        names = {str(entry["file"]) for entry in manifest["kernels"]}
    except (ValueError, KeyError, TypeError) as error:
        problem = FileProblem("", f"not a manifest of generated kernels ({error}); move it away to go on")
        raise FileFormatError(path, [problem]) from error
    return {name for name in names if Path(name).name == name and name.endswith(".hpp")}
