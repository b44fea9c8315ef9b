"""Render the source text of a kernel: it writes no files.

The text depends on the kernel and on the API of CK Tile's headers alone, which is that of the headers in use here if
the caller does not give another.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from tilewright import arch as archs
from tilewright.arch.ck_api import DEFAULT_API, CkApi, find_current_api
from tilewright.base.errors import IllegalConfigError, InvalidValueError, require
from tilewright.codegen.templates import load_templates
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.rule import find_violations


@dataclass(frozen=True)
class KernelSource:
    """The source text of one kernel, and our own files that it includes."""

    kernel: Kernel
    text: str
    files: Mapping[str, str]
    ck: CkApi = DEFAULT_API  # of the headers that it is for

    @property
    def name(self) -> str:
        """The kernel's slug."""
        return self.kernel.slug


def file_name(kernel: Kernel) -> str:
    """The name of a kernel's source file in a folder of generated kernels."""
    return f"{kernel.slug}.hpp"


_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# The macros of a CK tree's API, for our files that kernels include.
CK_API_HEADER = "tilewright_ck_api.hpp"


def render(kernel: Kernel, ck: CkApi | None = None) -> KernelSource:
    """Render the source of a legal kernel. Raises `IllegalConfigError` with every broken rule.

    `ck` is the API of the CK headers that it is for; None is that of the headers in use here.
    """
    require("the kernel", kernel, Kernel)
    op = find_op(kernel.op)
    spec = archs.load(kernel.arch, ck)
    if spec.name != kernel.arch:
        raise InvalidValueError(f"the GPU of a kernel must be named {spec.name}, got {kernel.arch}")
    broken = find_violations(op.rules, kernel.config, spec)
    if broken:
        lines = "\n".join(f"  {violation}" for violation in broken)
        raise IllegalConfigError(f"{kernel.slug} breaks {len(broken)} rule(s):\n{lines}")
    return render_unchecked(kernel, spec.ck)


def render_unchecked(kernel: Kernel, ck: CkApi | None = None) -> KernelSource:
    """Render the source of any kernel, legal or not, for comparing the rules with the compiler."""
    api = find_current_api() if ck is None else ck
    text = render_text(kernel, api)
    # Others are not part of its key, so it is not rebuilt when they change: some are for other generations of CK Tile.
    files = choose_reachable(_INCLUDE.findall(text), read_included_files(kernel, api))
    return KernelSource(kernel, text, files, api)


def render_text(kernel: Kernel, ck: CkApi) -> str:
    """Render the source text of any kernel, without the files that it includes."""
    op = find_op(kernel.op)
    return _load_template(op.template).render(
        op.kind(kernel.config).context(kernel), headers=list_headers(kernel), ck=ck.list_forms(op.ck_probes)
    )


def choose_reachable(names: Iterable[str], files: Mapping[str, str]) -> Mapping[str, str]:
    """Choose those of some files that are named, or that one of these includes, directly or not."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in files and name not in found:
            found.add(name)
            waiting += _list_includes(files[name])
    return {name: text for name, text in files.items() if name in found}


@functools.lru_cache(maxsize=256)
def _list_includes(text: str) -> tuple[str, ...]:
    return tuple(_INCLUDE.findall(text))


def list_headers(kernel: Kernel) -> tuple[str, ...]:
    """List the headers that a kernel includes, in order: those of its op, then the launchers of its kind."""
    op = find_op(kernel.op)
    return (*op.headers, *op.kind(kernel.config).launchers)


def read_included_files(kernel: Kernel, ck: CkApi | None = None) -> Mapping[str, str]:
    """Read our own files that a kernel includes: its C interface and its launcher."""
    op = find_op(kernel.op)
    launchers = {name: op.launchers[name] for name in op.kind(kernel.config).launchers}
    return {**_render_ck_header(op, ck), **_read_texts({**op.support, **launchers})}


def read_support_files(op_name: str, ck: CkApi | None = None) -> Mapping[str, str]:
    """Read our own files that the kernels of an op include."""
    op = find_op(op_name)
    return {**_render_ck_header(op, ck), **_read_texts({**op.support, **op.launchers})}


def _render_ck_header(op: Op, ck: CkApi | None) -> Mapping[str, str]:
    """The header with a macro for each form of the op's probes; none for an op without probes."""
    if not op.ck_probes:
        return {}
    api = find_current_api() if ck is None else ck
    words = (f"{probe}_{form}".upper() for probe, form in api.list_forms(op.ck_probes).items())
    lines = ["// The API of the CK Tile headers that these sources are for.", "#pragma once"]
    return {CK_API_HEADER: "\n".join([*lines, *(f"#define TILEWRIGHT_CK_{word} 1" for word in words), ""])}


def _read_texts(files: Mapping[str, Path | str]) -> Mapping[str, str]:
    return {name: _read_text(path) for name, path in files.items()}


@functools.cache
def _load_template(path: Path) -> jinja2.Template:
    return load_templates(path.parent).get_template(path.name)


@functools.cache
def _read_text(path_or_text: Path | str) -> str:
    return path_or_text if isinstance(path_or_text, str) else path_or_text.read_text(encoding="utf-8")
