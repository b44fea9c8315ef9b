"""Reading GPU files. All problems of a file are reported at once, each with its path.

A key that is not known is a problem. `schema.py` says what a file looks like.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from tilewright.arch.schema import TRIPLES, ArchFile, Draft, contradictions, parse_shape
from tilewright.arch.spec import Arch, Compute, Lds, Memory, Numbers, Registers
from tilewright.base import knobs
from tilewright.base.errors import (
    FileFormatError,
    FileProblem,
    KnobError,
    UnknownValueError,
    nearest_name,
)

DATA = Path(__file__).parent / "data"


def load_file(path: Path) -> Arch:
    """Read one GPU file. Raises `FileFormatError` with every problem in it."""
    raw = _read_toml(path)
    problems: list[FileProblem] = []
    parsed: ArchFile | None = None
    try:
        parsed = ArchFile.model_validate(raw)
    except ValidationError as error:
        problems += problems_of(error, ArchFile)
    broken = {problem.where for problem in problems}
    problems += contradictions(Draft(raw, path, broken))
    if problems or parsed is None:
        raise FileFormatError(path, problems)
    return _arch(parsed, path)


def _read_toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    # ValueError covers bad TOML, bad UTF-8 and integers too long to convert.
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, [FileProblem("", f"not valid TOML: {error}")]) from error


def _arch(parsed: ArchFile, path: Path) -> Arch:
    return Arch(
        name=parsed.name,
        family=parsed.family,
        product=parsed.product,
        wave_size=parsed.wave_size,
        matrix=parsed.matrix,
        compute=Compute(**parsed.compute.model_dump()),
        registers=Registers(**parsed.registers.model_dump()),
        lds=Lds(**parsed.lds.model_dump()),
        memory=Memory(**parsed.memory.model_dump()),
        numbers=Numbers(**parsed.numbers.model_dump()),
        peak_tflops=parsed.peak_tflops,
        matrix_share=parsed.matrix_share,
        waves=tuple(parse_shape(text) for text in parsed.waves),
        mma={
            TRIPLES[key]: {parse_shape(shape): name for shape, name in table.items()}
            for key, table in parsed.mma.items()
        },
        op_tables=parsed.op,
        source=str(path),
    )


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[FileProblem]:
    """Pydantic's findings as ours; an unknown key names its nearest known neighbour."""
    problems = []
    for item in error.errors():
        # For a key of a table that is wrong itself, pydantic adds the marker "[key]".
        loc = tuple(part for part in item["loc"] if part != "[key]")
        where = ".".join(str(part) for part in loc)
        what = item["msg"]
        if item["type"] == "extra_forbidden":
            known = _known_keys(model, loc[:-1])
            nearest = nearest_name(str(loc[-1]), known)
            hint = f" Did you mean '{nearest}'?" if nearest else ""
            what = f"unknown key.{hint} Known: {', '.join(known)}."
        elif item["type"] == "missing":
            what = "missing"
        elif not isinstance(item["input"], dict):
            what = f"{what}, got {item['input']!r}"
        problems.append(FileProblem(where, what))
    return problems


def _known_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    for part in loc:
        field = model.model_fields.get(str(part))
        annotation = field.annotation if field else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return sorted(model.model_fields)


def arch_files() -> dict[str, Path]:
    """Name → file of every known GPU: the shipped ones and those in TILEWRIGHT_ARCH_PATH.

    A file of that folder takes the place of a shipped one of the same name; `Arch.source` tells.
    """
    folders = [DATA]
    extra = knobs.ARCH_PATH.get()
    if extra is not None:
        if not extra.is_dir():
            raise KnobError(
                f"{knobs.ARCH_PATH.name}={str(extra)!r} cannot be used: there is no such folder. "
                "Name a folder of gfx*.toml files, or unset it."
            )
        folders.append(extra)
    return {path.stem: path for folder in folders for path in sorted(folder.glob("gfx*.toml"))}


def arch_names() -> tuple[str, ...]:
    """Names of all known GPUs, in the order gfx908, gfx90a, …, gfx1201."""
    return tuple(sorted(arch_files(), key=lambda name: (len(name), name)))


def load(name: str) -> Arch:
    """The GPU of that name. Accepts exactly the bare name: `gfx942`, not `gfx942:sramecc+`.

    Called for every kernel, so it looks at the one file only: that of TILEWRIGHT_ARCH_PATH, else the shipped one.
    """
    extra = knobs.ARCH_PATH.get()
    for folder in (DATA,) if extra is None else (extra, DATA):
        path = folder / f"{name}.toml"
        try:
            return _load_cached(path, path.stat().st_mtime_ns)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            continue
    raise UnknownValueError("arch", name, arch_names())


@functools.cache
def _load_cached(path: Path, _changed: int) -> Arch:
    return load_file(path)
