"""Whether a Parquet file is of the kind and the version that is wanted, and has the columns of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tilewright.base.errors import FileFormatError, FileProblem


def check_version(path: Path | str, found: Any, key: str, wanted: str, what: str) -> None:
    """An error unless the metadata of a schema has the version under a key. With another one, columns say nothing."""
    version = (found.metadata or {}).get(key.encode())
    if version is None:
        raise FileFormatError(path, [FileProblem("", f"has no key {key!r} in its metadata: it is not {what}")])
    if version != wanted.encode():
        said = f"has schema {version.decode(errors='replace')!r}, this version of Tilewright reads {wanted!r}"
        raise FileFormatError(path, [FileProblem("", said)])


def check_columns(path: Path | str, found: Any, wanted: Any, known: Iterable[str]) -> None:
    """An error that names all columns that a schema lacks, has too many, or has with another type than wanted."""
    types = {field.name: field.type for field in wanted}
    own = {field.name: field.type for field in found}
    names = ", ".join(known)
    problems = [FileProblem(f"column {name}", "is missing") for name in types if name not in own]
    problems += [FileProblem(f"column {name}", f"is unknown. Known: {names}.") for name in own if name not in types]
    problems += [
        FileProblem(f"column {name}", f"holds {own[name]}, must hold {kind}")
        for name, kind in types.items()
        if name in own and own[name] != kind
    ]
    if problems:
        raise FileFormatError(path, problems)
