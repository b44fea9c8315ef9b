"""The generated texts of a pack: kernel table, export list, headers and the CMake package."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from tilewright.base.digest import to_canonical_json
from tilewright.base.errors import PackError
from tilewright.codegen.render import read_support_files
from tilewright.codegen.templates import load_templates
from tilewright.ops.kernel import DIGEST_LENGTH, Kernel

HEADERS = "include/tilewright"
TABLE_FUNCTION = "tw_pack_table"
# The functions that a kernel with symbol S exports as S_supports, S_run, …: the same for every op.
FUNCTIONS = ("supports", "workspace_size", "run", "message", "name")
# The only printable characters that C strings must escape; "?" could start a trigraph.
_ESCAPED = {ord('"'): '\\"', ord("\\"): "\\\\", ord("?"): "\\?"}
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class _Row:
    """One kernel in the context of the table's template."""

    slug: str
    op: str
    symbol: str
    prefix: str  # of the op's C names: tw_xyz, for tw_xyz_args and TW_XYZ_ABI_VERSION
    config: str
    fields: Sequence[tuple[str, str]]


def library_file(name: str, gpu: str) -> str:
    """The file name of a pack's library for one GPU."""
    return f"lib{name}_{gpu}.so"


def render_table(name: str, gpu: str, kernels: Sequence[Kernel], ranked: Collection[str] = ()) -> str:
    """Render the C source of a library's table. Kernels must be sorted by slug. The library has a ranking function for
    the ops in `ranked`."""
    ops = sorted({kernel.op for kernel in kernels})
    rows = [_make_row(kernel) for kernel in kernels]
    prefixes = sorted({row.prefix for row in rows if row.op in ranked})
    file = library_file(name, gpu)
    return _fill_template(
        "table.c.j2", file=file, name=name, version=get_version(), gpu=gpu, ops=ops, kernels=rows, ranked=prefixes
    )


def render_export_list(kernels: Iterable[Kernel]) -> str:
    """Render a version script for the linker that exports only the table and the kernels' C functions."""
    names = [TABLE_FUNCTION, *(f"{kernel.symbol}_{function}" for kernel in kernels for function in FUNCTIONS)]
    listed = "".join(f"    {name};\n" for name in names)
    return f"{{\n  global:\n{listed}  local:\n    *;\n}};\n"


def read_headers(ops: Iterable[str]) -> Mapping[str, str]:
    """Read the headers of a pack with these ops: path in the pack → text."""
    ours = {f"{HEADERS}/{name}": (_HERE / name).read_text(encoding="utf-8") for name in ("pack.h", "tilewright.hpp")}
    return {**ours, **{f"{HEADERS}/{op}.h": _read_c_header(op) for op in ops}}


def render_cmake_package(name: str, gpus: Sequence[str]) -> Mapping[str, str]:
    """Render the files that `find_package` reads: path in the pack → text."""
    number = get_version()
    major, minor = (int(number) for number in number.split(".")[:2])
    folder = f"lib/cmake/{name}"
    return {
        f"{folder}/{name}Config.cmake": _fill_template("Config.cmake.j2", name=name, version=number, gpus=gpus),
        f"{folder}/{name}ConfigVersion.cmake": _fill_template(
            "ConfigVersion.cmake.j2", version=number, major=major, minor=minor
        ),
    }


def format_c_string(text: str) -> str:
    """Format a text as a C string literal; characters outside printable ASCII become their UTF-8 bytes in octal."""
    plain = (_ESCAPED.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in text.encode())
    return f'"{"".join(plain)}"'


def _make_row(kernel: Kernel) -> _Row:
    config: Mapping[str, Any] = kernel.facts["config"]
    fields = [(name, _format_field(value)) for name, value in sorted(config.items())]
    prefix = kernel.symbol[: -DIGEST_LENGTH - 1]
    return _Row(kernel.slug, kernel.op, kernel.symbol, prefix, to_canonical_json(config), fields)


def _format_field(value: Any) -> str:
    return value if isinstance(value, str) else to_canonical_json(value)


def _read_c_header(op: str) -> str:
    """Read the C interface of an op: its only support file in C."""
    found = {name: text for name, text in read_support_files(op).items() if name.endswith(".h")}
    if len(found) != 1:
        raise PackError(
            f"op {op} has {len(found)} C headers among its support files, a pack needs exactly 1: "
            f"{', '.join(found) or '(none)'}. C++ files must end with .hpp."
        )
    return next(iter(found.values()))


def get_version() -> str:
    """Return the version of Tilewright."""
    from tilewright import __version__  # noqa: PLC0415  (the package imports its parts, not the other way round)

    return __version__


def _fill_template(template: str, **context: Any) -> str:
    return _get_environment().get_template(template).render(context)


@functools.cache
def _get_environment() -> jinja2.Environment:
    environment = load_templates(_HERE)
    environment.filters["c_string"] = format_c_string
    return environment
