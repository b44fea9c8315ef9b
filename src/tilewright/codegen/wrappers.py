"""One small .cpp per kernel header, so that kernels are compiled separately and in parallel."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tilewright.base.digest import digest_text
from tilewright.base.document_values import expect_list_items, expect_table, expect_text
from tilewright.base.documents import convert_read_errors, read_json
from tilewright.base.errors import InvalidValueError
from tilewright.codegen.build_files.recipe import WRAPPER_SUFFIX
from tilewright.codegen.folder import MANIFEST_NAME

HEADER_SUFFIXES = (".hpp", ".h", ".hh", ".hxx")
# Names that need no quoting in any shell, build file, assembler or compiler option.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# Linux allows file names of 255 bytes; the files of a kernel add a suffix to its name.
_LONGEST = 200
_UNSPEAKABLE = ('"', "\n", "\r")


@dataclass(frozen=True)
class Wrapper:
    """A kernel header and the name of its wrapper. `header` is relative to the folder of kernels."""

    header: str
    name: str
    marker: str  # the symbol that shows that a library contains this kernel

    @property
    def file(self) -> str:
        """The wrapper's file name."""
        return self.name + WRAPPER_SUFFIX

    def render_text(self) -> str:
        """The wrapper's source."""
        return _TEXT.format(name=self.name, header=self.header, marker=self.marker)


_TEXT = """\
// {name}
// Written by `tilewright wrap`; a change here is lost at the next run.
#include "{header}"

// Keeps the object from being empty when the header holds only templates and inline functions.
extern "C" {{
extern __attribute__((visibility("default"))) const char {marker}[];
const char {marker}[] = "{name}";
}}
"""


@dataclass(frozen=True)
class KernelFolder:
    """The manifest of a folder of kernels: its support files, and the GPU of each kernel file."""

    support: frozenset[str]
    gpus: Mapping[str, str]


def make_wrapper(header: str) -> Wrapper:
    """Make the wrapper of a header. It depends only on the header's name, not on other headers."""
    for character in _UNSPEAKABLE:
        if character in header:
            raise InvalidValueError(f"{header!r} cannot be included: its name has {character!r}. Rename the header.")
    digest = digest_text(header)[:8]
    name = header.removesuffix(".hpp")
    if not _PLAIN.fullmatch(name) or len(name) > _LONGEST:
        name = f"{_replace_odd_characters(name, '_.-')[:_LONGEST]}-{digest}"
    return Wrapper(header, name, f"tilewright_wrapped_{_replace_odd_characters(name, '_')[:_LONGEST]}_{digest}")


def _replace_odd_characters(text: str, kept: str) -> str:
    plain = "".join(c if (c.isascii() and c.isalnum()) or c in kept else "_" for c in text)
    return plain if plain[:1] not in "-." else f"_{plain[1:]}"


def find_wrappers(folder: Path, pattern: str, known: KernelFolder) -> tuple[Wrapper, ...]:
    """Make the wrappers of all matching headers in `folder`, sorted by name; support files get none."""
    if not folder.is_dir():
        raise InvalidValueError(f"the folder of kernels {folder} does not exist")
    if not pattern or PurePosixPath(pattern).is_absolute() or ".." in PurePosixPath(pattern).parts:
        raise InvalidValueError(f"the pattern {pattern!r} must be relative and stay in the folder, such as '*.hpp'")
    matched = sorted(path.relative_to(folder).as_posix() for path in folder.glob(pattern) if path.is_file())
    headers = [name for name in matched if name not in known.support]
    for name in headers:
        if not name.endswith(HEADER_SUFFIXES):
            listing = ", ".join(HEADER_SUFFIXES)
            raise InvalidValueError(f"the pattern {pattern!r} matches {name}, which is not a header ({listing})")
    if not headers:
        there = sum(1 for path in folder.iterdir() if path.name.endswith(HEADER_SUFFIXES))
        raise InvalidValueError(
            f"no kernel header in {folder} matches {pattern!r}: of {there} headers there, {len(matched)} match, "
            f"and {len(matched)} of these are support files. "
            "Create kernels with `tilewright generate`, or use another --pattern."
        )
    return _check_distinct([make_wrapper(name) for name in headers])


def _check_distinct(wrappers: Sequence[Wrapper]) -> tuple[Wrapper, ...]:
    """Return the wrappers; raise if two share a file, which only a header name that imitates a digest can cause."""
    by_name: dict[str, Wrapper] = {}
    for wrapper in wrappers:
        first = by_name.setdefault(wrapper.name, wrapper)
        if first is not wrapper:
            raise InvalidValueError(f"{first.header!r} and {wrapper.header!r} both become {wrapper.file}: rename one")
    return tuple(wrappers)


def read_kernel_folder(folder: Path) -> KernelFolder:
    """Read the manifest that `tilewright generate` wrote; empty for a folder of another generator."""
    path = folder / MANIFEST_NAME
    if not path.exists():
        return KernelFolder(frozenset(), {})
    with convert_read_errors(path, "this is not a manifest of generated kernels: move it away to continue"):
        manifest = expect_table("a manifest", read_json(path))
        support = frozenset(expect_list_items("support", manifest["support"], expect_text))
        kernels = expect_list_items("kernels", manifest["kernels"], expect_table)
        gpus = {expect_text("file", entry["file"]): expect_text("arch", entry["arch"]) for entry in kernels}
    return KernelFolder(support, gpus)


def choose_gpus(wrappers: Sequence[Wrapper], known: KernelFolder, asked: Sequence[str]) -> tuple[str, ...]:
    """Choose the GPUs to compile for: those in `asked`, else the one that all kernels were rendered for.

    A kernel's name contains the GPU it was rendered for, so that one must be among them.
    """
    rendered = {wrapper.header: known.gpus[wrapper.header] for wrapper in wrappers if wrapper.header in known.gpus}
    there = sorted(set(rendered.values()))
    if not asked:
        if len(there) == 1:
            return tuple(there)
        fact = f"the kernels are for {len(there)} GPUs ({', '.join(there)})" if there else "no manifest names a GPU"
        raise InvalidValueError(f"choose the GPU to compile for with --arch GPU: {fact}")
    for header, gpu in rendered.items():
        if gpu not in asked:
            raise InvalidValueError(
                f"{header} was rendered for {gpu}, which is not among --arch {' '.join(asked)}. "
                f"Generate kernels for that GPU, or choose headers with --pattern."
            )
    return tuple(dict.fromkeys(asked))
