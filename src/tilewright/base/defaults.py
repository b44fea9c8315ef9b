"""Defaults of a project: the file `tilewright.toml`, or the table `[tool.tilewright]` in `pyproject.toml`.

The nearest file counts, from a folder upward; values of several files are not merged. Only the command line uses these
defaults: a program passes its values itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.base.document_values import format_value
from tilewright.base.documents import FileProblems, read_text, read_toml
from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError, choose

OWN_FILE = "tilewright.toml"
PROJECT_FILE = "pyproject.toml"
TABLE = "tool.tilewright"

# Key → its meaning.
KEYS = {
    "gpu": "The GPU of commands that take --gpu.",
    "device": "The device of commands that run kernels. TILEWRIGHT_DEVICE overrides it.",
    "jobs": "The number of parallel processes. TILEWRIGHT_JOBS overrides it.",
    "dtype": "The data type of kernels and problems that you leave open.",
    "layout": "The layout of kernels and problems that you leave open.",
}


@dataclass(frozen=True)
class Defaults:
    """The values of a file. `unused` is a second file in the same folder, which is not read."""

    values: Mapping[str, str | int] = field(default_factory=dict)
    path: Path | None = None
    unused: Path | None = None


def find_defaults(folder: Path) -> Defaults:
    """Read the nearest defaults, from `folder` upward. Without a file, no values are set.

    If a folder has both files, `tilewright.toml` wins. A `pyproject.toml` without the table is skipped.
    """
    for parent in (folder, *folder.parents):
        own, project = parent / OWN_FILE, parent / PROJECT_FILE
        table = _read_table(project)
        if own.is_file():
            return Defaults(_read_values(own, read_toml(own)), own, None if table is None else project)
        if table is not None:
            return Defaults(_read_values(project, table, f"{TABLE}."), project)
    return Defaults()


def _read_table(path: Path) -> Any:
    """The table in a `pyproject.toml`; None if the file lacks it."""
    # A file that does not name Tilewright belongs to other tools. It is not parsed, so its errors are not reported.
    if not path.is_file() or "tilewright" not in read_text(path):
        return None
    tools = read_toml(path).get("tool")
    return tools.get("tilewright") if isinstance(tools, dict) else None


def _read_values(path: Path, table: Any, prefix: str = "") -> dict[str, str | int]:
    if not isinstance(table, dict):
        raise FileFormatError(path, [FileProblem(TABLE, f"must be a table, got {format_value(table)}")])
    problems = FileProblems()
    for key, value in table.items():
        problems.try_call(f"{prefix}{key}", _check_value, key, value)
    problems.raise_any(path)
    return dict(table)


def _check_value(key: str, value: Any) -> None:
    choose("key", key, KEYS)
    if key == "jobs":
        if type(value) is not int or value < 1:
            raise InvalidValueError(f"must be an integer of at least 1, got {format_value(value)}")
    elif not isinstance(value, str) or not value:
        raise InvalidValueError(f"must be a text, got {format_value(value)}")
