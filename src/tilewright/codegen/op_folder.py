"""Write the folder of a new op: a package outside of Tilewright whose kernels build, run and verify from the start.

The files in `new_op` have the op's name as `OP_NAME`, and the suffix `.in`. Their first content is y = factor · x.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from pathlib import Path

from tilewright.base.atomic_write import write_folder
from tilewright.base.errors import InvalidValueError
from tilewright.ops import list_ops

TEMPLATES = Path(__file__).with_name("new_op")
_SUFFIX = ".in"
_PLACEHOLDER = "OP_NAME"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
# Longer names would make lines of the files longer than 120 characters, which linters report.
LONGEST_NAME = 24


def render_op_folder(name: str) -> Mapping[str, str]:
    """The files of a new op, by path. The name must be a Python identifier that no op has."""
    _check_name(name)
    return {
        path.relative_to(TEMPLATES).as_posix().removesuffix(_SUFFIX).replace(_PLACEHOLDER, name): path.read_text(
            encoding="utf-8"
        ).replace(_PLACEHOLDER, name)
        for path in sorted(TEMPLATES.rglob(f"*{_SUFFIX}"))
    }


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise InvalidValueError(
            f"{name!r} cannot be the name of an op: use a Python identifier of lower-case letters, digits and '_', "
            "such as rms_norm"
        )
    if len(name) > LONGEST_NAME:
        raise InvalidValueError(f"{name!r} has {len(name)} characters, at most {LONGEST_NAME}: use a shorter name")
    if name in (known := [op.name for op in list_ops()]):
        raise InvalidValueError(f"there is an op {name} already. Use a name other than {', '.join(known)}")


def write_op_folder(name: str, folder: Path) -> Mapping[str, str]:
    """Write the files of a new op into a folder that does not exist, or is empty. Returns them by path."""
    files = render_op_folder(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidValueError(f"{folder} exists already, and is not an empty folder: use another one")
    write_folder(folder, files)
    return files
