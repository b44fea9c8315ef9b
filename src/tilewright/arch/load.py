"""Readers of GPU files. All problems of a file are reported at once, each with its path.

An unknown key is a problem. `schema.py` defines the format.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from tilewright.arch.ck_api import CkApi, find_current_api
from tilewright.arch.dtypes import TRIPLES
from tilewright.arch.products import find_gpu_of_product
from tilewright.arch.spec import Arch, Compute, LdsSpec, MemorySpec, NumberSpec, Registers, parse_shape
from tilewright.base import knobs
from tilewright.base.documents import convert_read_errors, read_toml
from tilewright.base.errors import FileFormatError, FileProblem, KnobError, UnknownValueError, require

T = TypeVar("T")

DATA = Path(__file__).parent / "data"
_NAME = re.compile("gfx[0-9a-f]{3,4}")  # as in `ArchFile`
# Features that HIP and LLVM append to a name, `gfx942:sramecc+:xnack-`. Kernels are compiled for any value of them.
_FEATURES = re.compile(r"(:(sramecc|xnack)[+-])+", re.IGNORECASE)


def load_file(path: Path) -> Arch:
    """Read and check one GPU file. Raises `FileFormatError` with every problem in it."""
    raw = read_toml(path)
    _check_file(raw, path)
    return _build_arch(raw, path)


def _check_file(raw: Mapping[str, Any], path: Path) -> None:
    # Heavy: a third of the time to import all ops. Shipped files do not need it, because a test checks them.
    from pydantic import ValidationError  # noqa: PLC0415

    from tilewright.arch.schema import ArchFile, Draft, find_contradictions  # noqa: PLC0415
    from tilewright.base.document_models import list_problems  # noqa: PLC0415

    problems: list[FileProblem] = []
    try:
        ArchFile.model_validate(raw)
    except ValidationError as error:
        problems += list_problems(error, ArchFile)
    broken = {problem.where for problem in problems}
    with convert_read_errors(path):
        problems += find_contradictions(Draft(raw, path, broken))
    if problems:
        raise FileFormatError(path, problems)


def _build_arch(raw: Mapping[str, Any], path: Path) -> Arch:
    """Make the GPU of a file that was checked."""
    with convert_read_errors(path):
        return Arch(
            name=raw["name"],
            family=raw["family"],
            product=raw["product"],
            wave_size=raw["wave_size"],
            matrix=raw["matrix"],
            compute=_build_table(Compute, raw["compute"]),
            registers=_build_table(Registers, raw["registers"]),
            lds=_build_table(LdsSpec, raw["lds"]),
            memory=_build_table(MemorySpec, raw["memory"]),
            numbers=_build_table(NumberSpec, raw["numbers"]),
            peak_tflops={name: float(value) for name, value in raw["peak_tflops"].items()},
            matrix_share={name: float(value) for name, value in raw.get("matrix_share", {}).items()},
            waves=tuple(parse_shape(text) for text in raw["waves"]),
            mma={
                TRIPLES[key]: {parse_shape(shape): name for shape, name in table.items()}
                for key, table in raw["mma"].items()
            },
            op_tables=raw.get("op", {}),
            source=str(path),
        )


def _build_table(kind: type[T], values: Mapping[str, Any]) -> T:
    """Make a dataclass from a table, in which a float may be written as a whole number."""
    floats = {field.name for field in fields(kind) if field.type == "float"}  # type: ignore[arg-type]
    return kind(**{name: float(value) if name in floats else value for name, value in values.items()})


def list_arch_files() -> dict[str, Path]:
    """Name → file of every known GPU: the shipped ones and those in TILEWRIGHT_ARCH_PATH.

    A file in that folder overrides a shipped one of the same name; see `Arch.source`.
    """
    folders = [DATA]
    extra = knobs.ARCH_PATH.get()
    if extra is not None:
        if not extra.is_dir():
            raise KnobError(
                f"{knobs.ARCH_PATH.name}={str(extra)!r} cannot be used: the folder does not exist. "
                "Set it to a folder of gfx*.toml files, or unset it."
            )
        folders.append(extra)
    return {path.stem: path for folder in folders for path in sorted(folder.glob("gfx*.toml"))}


def arch_names() -> tuple[str, ...]:
    """Names of all known GPUs, in the order gfx908, gfx90a, …, gfx1201."""
    return tuple(sorted(list_arch_files(), key=lambda name: (len(name), name)))


def load(name: str, ck: CkApi | None = None) -> Arch:
    """The GPU with this name, `gfx942` or `gfx942:sramecc+:xnack-`, or with this product name, `MI300X`.

    `ck` is the API of the CK headers that kernels are compiled with; None is that of the headers in use here. The
    function is called for every kernel, so it looks at one file only: that of TILEWRIGHT_ARCH_PATH, else the shipped
    one.
    """
    if ck is not None:
        require("ck", ck, CkApi)
    if not (isinstance(name, str) and _NAME.fullmatch(name)):  # a name must not lead to another folder
        name = find_gpu_name(name)
    extra = knobs.ARCH_PATH.get()
    for folder in (DATA,) if extra is None else (extra, DATA):
        path = f"{folder}/{name}.toml"
        try:
            changed = os.stat(path).st_mtime_ns  # noqa: PTH116 - a third of the time of a Path
        except (FileNotFoundError, NotADirectoryError):
            continue
        return _load_cached(path, changed, find_current_api() if ck is None else ck)
    raise UnknownValueError("arch", name, arch_names())


def find_gpu_name(text: str) -> str:
    """The name of the GPU that a name or a product name describes: `gfx942` for `MI300X` and `GFX942:xnack-`.

    Another name that starts with gfx is an error that lists the known ones, as is an unknown product.
    """
    names = arch_names()
    if not isinstance(text, str):
        raise UnknownValueError("arch", text, names)
    name = cut_features(text)
    if name in names:
        return name
    if name.startswith("gfx"):
        raise UnknownValueError("arch", text, names)
    return find_gpu_of_product(text, {name: load(name).product for name in names})


def cut_features(text: str) -> str:
    """A GPU's name in lower case and without features: `gfx942` for `GFX942:sramecc+:xnack-`.

    A text with other features is only written in lower case: it is not a name.
    """
    name, colon, _ = text.partition(":")
    return (name if _FEATURES.fullmatch(text, len(name)) or not colon else text).lower()


@functools.cache
def _load_cached(path: str, _changed: int, ck: CkApi) -> Arch:
    file = Path(path)
    is_shipped = file.parent == DATA
    return replace(_build_arch(read_toml(file), file) if is_shipped else load_file(file), ck=ck)
