"""A pack as a value, and its manifest as JSON. The same pack always gives the same text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tilewright.base.digest import digest_value, to_canonical_json
from tilewright.base.document_models import validate_document
from tilewright.base.documents import convert_read_errors, parse_json
from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError, PackError, choose
from tilewright.building.store.files import hash_regular, read_regular

MANIFEST = "manifest.json"
SCHEMA = 1
KIND = "tilewright-pack"
# Ten times the largest space: 16,000 kernels of about 1.5 KB each.
MAX_MANIFEST_BYTES = 256 * 2**20
# A C identifier: the name becomes part of file names, CMake targets and CMake variables.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# No part starts with a dot, so that no path leads out of the pack.
PackPath = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Gpu = Annotated[str, Field(pattern=r"^gfx[0-9a-f]+$")]
Symbol = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Size = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class PackFile:
    """A file of a pack: its path in the pack, its size, and its digest as in `base.digest`."""

    path: str
    size: int
    blake2b: str


@dataclass(frozen=True)
class PackKernel:
    """A kernel of a pack. `code_object` is the digest of its device code, `resources` the resources of each device
    kernel in it; empty if unknown."""

    slug: str
    op: str
    symbol: str
    arch: str
    config: Mapping[str, Any]
    code_object: str
    resources: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Pack:
    """A pack in a folder: one library per GPU, and the kernels that are in them."""

    folder: Path
    name: str
    version: str  # of Tilewright when it was written
    libraries: Mapping[str, PackFile]
    files: tuple[PackFile, ...]  # headers and the CMake package
    kernels: tuple[PackKernel, ...]

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(self.libraries)

    def library_path(self, gpu: str) -> Path:
        """Return the path of the library for a GPU."""
        return self.folder / self.libraries[choose("GPU of the pack", gpu, self.libraries)].path

    def to_text(self) -> str:
        """Return the manifest with one kernel per line, so that a diff of two packs is readable."""
        head = {"schema": SCHEMA, "kind": KIND, "name": self.name, "version": self.version}
        libraries = {gpu: asdict(file) for gpu, file in self.libraries.items()}
        files = [asdict(file) for file in self.files]
        kernels = [asdict(kernel) for kernel in self.kernels]
        lines = ",\n".join(to_canonical_json(kernel) for kernel in kernels)
        digest = digest_value({**head, "libraries": libraries, "files": files, "kernels": kernels, "digest": None})
        return (
            f"{to_canonical_json(head)[:-1]},\n"
            f'"libraries":{to_canonical_json(libraries)},\n'
            f'"files":{to_canonical_json(files)},\n'
            f'"kernels":[\n{lines}\n],"digest":"{digest}"}}\n'
        )


def check_name(name: str) -> str:
    """Return `name` if it is valid for a pack."""
    if not _NAME.fullmatch(name):
        raise InvalidValueError(
            f"{name!r} cannot name a pack: use letters, digits and '_', and no leading digit, as in 'my_kernels'."
        )
    return name


def gpu_order(gpu: str) -> tuple[int, str]:
    """Sort key for gfx908, gfx90a, …, gfx1201: the order of `arch.arch_names`."""
    return len(gpu), gpu


def describe_pack_file(root: Path, path: str) -> PackFile:
    """Read the current size and digest of a file. Raises `OSError` if it is not a regular file."""
    return PackFile(path, *hash_regular(root / path))


def read_pack(folder: Path) -> Pack:
    """Read a pack and compare all its files with the manifest. Raises `PackError` or `FileFormatError`."""
    pack = read_manifest(folder)
    problems = [
        problem for file in (*pack.libraries.values(), *pack.files) if (problem := _describe_damage(folder, file))
    ]
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise PackError(f"{folder} is damaged, {len(problems)} problem(s):\n{lines}\nWrite the pack again.")
    return pack


def read_manifest(folder: Path) -> Pack:
    """Read the manifest of a pack without checking its files."""
    path = folder / MANIFEST
    try:
        raw = read_regular(path, MAX_MANIFEST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise PackError(f"{folder} is not a pack: no {MANIFEST} exists. Use `tilewright build --pack`.") from error
    except OSError as error:
        raise PackError(f"cannot read {path}: {error.strerror}.") from error
    if len(raw) > MAX_MANIFEST_BYTES:
        raise PackError(f"{path} has over {MAX_MANIFEST_BYTES:,} bytes, which is too long for the manifest of a pack.")
    with convert_read_errors(path):
        value = parse_json(raw)
    parsed = validate_document(path, ManifestFile, value, strict=True)
    table = parsed.model_dump()
    with convert_read_errors(path):
        pack = Pack(
            folder=folder,
            name=parsed.name,
            version=parsed.version,
            libraries={gpu: PackFile(**table["libraries"][gpu]) for gpu in sorted(table["libraries"], key=gpu_order)},
            files=tuple(PackFile(**file) for file in table["files"]),
            kernels=tuple(PackKernel(**{**row, "resources": tuple(row["resources"])}) for row in table["kernels"]),
        )
        problems = list(_find_contradictions(pack))
        # Packs of earlier versions have no digest.
        if parsed.digest is not None and parsed.digest != digest_value({**value, "digest": None}):
            problems.append(FileProblem("digest", "does not match: the manifest was changed. Write the pack again"))
    if problems:
        raise FileFormatError(path, problems)
    return pack


def _find_contradictions(pack: Pack) -> Iterator[FileProblem]:
    """Find parts of a manifest that are valid on their own but contradict each other."""
    archs = {kernel.arch for kernel in pack.kernels}
    for gpu in sorted(archs ^ set(pack.libraries)):
        what = "has kernels but no library" if gpu in archs else "has a library but no kernels"
        yield FileProblem("libraries", f"{gpu} {what}")
    for slug, count in Counter(kernel.slug for kernel in pack.kernels).items():
        if count > 1:
            yield FileProblem("kernels", f"{slug} occurs {count} times")


def _describe_damage(folder: Path, file: PackFile) -> str:
    """Describe how a file differs from the manifest; empty if it does not."""
    try:
        found = describe_pack_file(folder, file.path)
    except (FileNotFoundError, NotADirectoryError):
        return f"{file.path} is missing"
    except OSError as error:
        return f"{file.path} cannot be read: {error.strerror}"
    if found == file:
        return ""
    return (
        f"{file.path} has {found.size:,} bytes with blake2b {found.blake2b}, "
        f"but the manifest has {file.size:,} bytes with {file.blake2b}"
    )


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _File(_Strict):
    path: PackPath
    size: Size
    blake2b: Digest


class _Kernel(_Strict):
    slug: str
    op: str
    symbol: Symbol
    arch: Gpu
    config: dict[str, Any]
    code_object: Digest
    resources: list[dict[str, Any]]


class ManifestFile(_Strict):
    """The whole file, as pydantic checks it: `SCHEMA` is its number, `KIND` its kind."""

    model_config = ConfigDict(extra="forbid", title="pack manifest")

    schema_number: Literal[1] = Field(alias="schema")
    kind: Literal["tilewright-pack"]
    name: Symbol
    version: str
    libraries: dict[Gpu, _File]
    files: list[_File]
    kernels: list[_Kernel]
    digest: Digest | None = None
