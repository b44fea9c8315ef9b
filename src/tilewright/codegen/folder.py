"""Write kernel sources into a folder: only changed files, in parallel, with a manifest."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tilewright import arch as archs
from tilewright.arch.ck_api import find_current_api
from tilewright.arch.spec import Arch
from tilewright.base import events
from tilewright.base.atomic_write import create_folder, describe_write_error, remove_draft, write_atomically
from tilewright.base.digest import digest_text, to_canonical_json
from tilewright.base.document_values import expect_list_items, expect_table, expect_text
from tilewright.base.documents import convert_read_errors, read_json
from tilewright.base.errors import OutputError
from tilewright.codegen.render import file_name, read_support_files, render, render_text
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import Legality

MANIFEST_NAME = "manifest.json"
MANIFEST_SCHEMA = 1
# Below this many kernels, starting processes costs more than it saves.
PARALLEL_FROM = 400
CHUNK = 100


@dataclass(frozen=True)
class GenerationResult:
    """The result of a generation: numbers of kernels in the folder, files written, files that were up to date, and
    files of earlier generations that were removed."""

    folder: Path
    kernels: int
    written: int
    unchanged: int
    removed: int


def generate_sources(kernels: Iterable[Kernel], folder: Path, *, jobs: int = 1) -> GenerationResult:
    """Render kernels into `folder`. Files that are up to date are not touched, so build tools see no change. Kernels
    that only an earlier manifest lists are removed; other files stay.
    """
    listed = list(dict.fromkeys(kernels))
    create_folder(folder)
    earlier = _read_earlier_files(folder)
    entries: dict[str, str] = {}
    written = 0
    with events.report_task("generate", len(listed)) as advance:
        for name, changed, entry in _write_kernels(listed, folder, jobs):
            written += changed
            entries[name] = entry
            advance(name)
    support = {name: text for op in sorted({k.op for k in listed}) for name, text in read_support_files(op).items()}
    for name, text in support.items():
        written += write_if_changed(folder / name, text)
    write_if_changed(
        folder / MANIFEST_NAME, _format_manifest(sorted(support), [entries[name] for name in sorted(entries)])
    )
    stale = earlier - set(entries) - set(support)
    for name in stale:
        (folder / name).unlink(missing_ok=True)
    total = len(entries) + len(support)
    return GenerationResult(folder, len(entries), written, total - written, len(stale))


def write_if_changed(path: Path, text: str, *, exists: bool = True) -> bool:
    """Write a file atomically unless it already has this text; return whether it was written.

    `exists` False means that the file is known not to exist. Nobody can be reading it, so it is written in place, which
    needs half the file operations. A partial file after a crash is rewritten next time, since it differs.
    """
    content = text.encode()
    if not exists:
        _write_in_place(path, content)
        return True
    if path.exists() and path.read_bytes() == content:
        return False
    with write_atomically(path) as draft:
        draft.write_bytes(content)
    return True


def _write_in_place(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        remove_draft(path)
        raise OutputError(describe_write_error(path, error)) from error


def _write_kernels(kernels: Sequence[Kernel], folder: Path, jobs: int) -> Iterable[tuple[str, bool, str]]:
    """Write kernels; yield the file name, whether it was written, and the manifest entry of each."""
    write = functools.partial(_write_chunk, folder=folder, empty=next(folder.iterdir(), None) is None)
    if jobs == 1 or len(kernels) < PARALLEL_FROM:
        for start in range(0, len(kernels), CHUNK):
            yield from write(kernels[start : start + CHUNK])
        return
    yield from write(kernels[:1])  # loads the GPU, its rules and the template, which worker processes inherit
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        for results in pool.map(write, [kernels[start : start + CHUNK] for start in range(1, len(kernels), CHUNK)]):
            yield from results


def _write_chunk(kernels: Sequence[Kernel], folder: Path, empty: bool) -> list[tuple[str, bool, str]]:
    results = []
    api = find_current_api()
    legalities = {
        (op, arch): _get_legality(op, archs.load(arch, api)) for op, arch in {(k.op, k.arch) for k in kernels}
    }
    for kernel in kernels:
        legal = legalities[kernel.op, kernel.arch](kernel.config)
        text = render_text(kernel, api) if legal else render(kernel, api).text
        name = file_name(kernel)
        changed = write_if_changed(folder / name, text, exists=not empty)
        results.append((name, changed, _format_entry(kernel, text)))
    return results


@functools.lru_cache(maxsize=8)
def _get_legality(op_name: str, arch: Arch) -> Legality:
    return Legality(find_op(op_name).rules, arch)


def _format_entry(kernel: Kernel, text: str) -> str:
    return to_canonical_json(
        {
            **kernel.facts,
            "slug": kernel.slug,
            "file": file_name(kernel),
            "symbol": kernel.symbol,
            "text_digest": digest_text(text),
        }
    )


def _format_manifest(support: Sequence[str], entries: Sequence[str]) -> str:
    """Format JSON with one kernel per line, so that a diff of two manifests is readable."""
    head = f'"schema":{MANIFEST_SCHEMA},"support":{to_canonical_json(support)}'
    return f'{{{head},"kernels":[\n' + ",\n".join(entries) + "\n]}\n"


def _read_earlier_files(folder: Path) -> set[str]:
    """Read the kernel files of an earlier generation. Names that are not plain file names are ignored."""
    path = folder / MANIFEST_NAME
    if not path.exists():
        return set()
    with convert_read_errors(path, "this is not a manifest of generated kernels: move it away to continue"):
        kernels = expect_list_items("kernels", expect_table("a manifest", read_json(path))["kernels"], expect_table)
        names = {expect_text("file", entry["file"]) for entry in kernels}
    return {name for name in names if Path(name).name == name and name.endswith(".hpp")}
