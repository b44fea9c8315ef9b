"""Check that a Parquet file has the expected kind, version and columns."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tilewright.base.errors import FileFormatError, FileProblem


def check_version(path: Path | str, found: Any, key: str, wanted: str, what: str) -> None:
    """Raise an error unless the schema's metadata has this version under the key. Other versions have other columns."""
    version = (found.metadata or {}).get(key.encode())
    if version is None:
        raise FileFormatError(path, [FileProblem("", f"has no key {key!r} in its metadata: it is not {what}")])
    if version != wanted.encode():
        said = f"has schema {version.decode(errors='replace')!r}, this version of Tilewright reads {wanted!r}"
        raise FileFormatError(path, [FileProblem("", said)])


def check_columns(path: Path | str, found: Any, wanted: Any, known: Iterable[str]) -> None:
    """Raise an error that names all columns that are missing, unknown, or of another type than wanted."""
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
