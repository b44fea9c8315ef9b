"""Your own element-wise operations of multi_d kernels: C++ for the kernel, a Python function for the reference.

TILEWRIGHT_ELEMENTWISE is a folder of files, one for each operation:

    name = "HardSwish"
    cpp = "return x * fminf(fmaxf(x + 3.f, 0.f), 6.f) / 6.f;"  # the body of a function float → float of x
    reference = "my_package:hard_swish"  # the same function of a float64 array
    slope = 1.5  # the largest slope for the values of x that you have
    error_ulps = 3.0  # the largest error of the C++ code, in ulps of fp32

A kernel computes cpp(A·B + D0 + D1 + …). The C++ code is part of the kernel's source, so a change of it is a new build.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base import knobs
from tilewright.base.document_values import check_keys, expect_text
from tilewright.base.documents import convert_read_errors, read_toml
from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError, KnobError, choose
from tilewright.ops.fields import ChoiceType

KEYS = ("name", "cpp", "reference", "slope", "error_ulps")
# A part of kernel names and of C++ comments. It begins with a capital letter, as CK Tile's own operations do.
_NAME = re.compile(r"[A-Z][A-Za-z0-9]{0,30}")
_REFERENCE = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class OwnOperation:
    """One operation. `slope` and `error_ulps` bound the errors of correct kernels."""

    name: str
    cpp: str
    reference: str
    slope: float
    error_ulps: float

    def import_reference(self) -> Callable[[Any], Any]:
        """The Python function."""
        module, _, function = self.reference.partition(":")
        try:
            found: Callable[[Any], Any] = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise InvalidValueError(
                f"the reference {self.reference} of the operation {self.name} cannot be imported: {error}"
            ) from error
        return found


@dataclass(frozen=True)
class OperationType(ChoiceType):
    """One of CK Tile's operations, or one of yours. `values`, the meaning of "*", has CK Tile's only."""

    def read(self, name: str, value: object) -> str:
        own = () if value in self.values else tuple(load_own_operations(self.values))
        return choose(name, value, (*self.values, *own))


def load_own_operations(taken: tuple[str, ...] = ()) -> Mapping[str, OwnOperation]:
    """The operations of TILEWRIGHT_ELEMENTWISE by name; none if it is not set. They must not have `taken` names."""
    folder = knobs.ELEMENTWISE_PATH.get()
    if folder is None:
        return {}
    if not folder.is_dir():
        raise KnobError(
            f"{knobs.ELEMENTWISE_PATH.name}={str(folder)!r} cannot be used: the folder does not exist. "
            "Set it to a folder of operations (*.toml), or unset it."
        )
    files = tuple((path, path.stat().st_mtime_ns) for path in sorted(folder.glob("*.toml")))
    found = _load_files(files)
    for name in found:
        if name in taken:
            raise KnobError(f"{folder} has an operation {name}, which CK Tile has, too: give yours another name")
    return found


@functools.lru_cache(maxsize=8)
def _load_files(files: tuple[tuple[Path, int], ...]) -> Mapping[str, OwnOperation]:
    found: dict[str, OwnOperation] = {}
    for path, _ in files:
        with convert_read_errors(path):
            operation = _read_operation(read_toml(path))
        if operation.name in found:
            raise FileFormatError(path, [FileProblem("name", f"another file has an operation {operation.name}, too")])
        found[operation.name] = operation
    return found


def _read_operation(raw: Mapping[str, Any]) -> OwnOperation:
    check_keys("an operation", dict(raw), KEYS)
    name, cpp, reference = (expect_text(key, raw[key]) for key in KEYS[:3])
    if not _NAME.fullmatch(name):
        raise InvalidValueError(f"name must be letters and digits after a capital letter, got {name!r}")
    if "return" not in cpp:
        raise InvalidValueError(f"cpp must be the body of a function of x that returns a float, got {cpp!r}")
    if not _REFERENCE.fullmatch(reference):
        raise InvalidValueError(f"reference must look like my_package:my_function, got {reference!r}")
    return OwnOperation(name, cpp, reference, _expect_bound("slope", raw), _expect_bound("error_ulps", raw))


def _expect_bound(key: str, raw: Mapping[str, Any]) -> float:
    value = raw[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise InvalidValueError(f"{key} must be a number of at least 0, got {value!r}")
    return float(value)
