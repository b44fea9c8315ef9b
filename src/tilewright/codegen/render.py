"""Rendering: a kernel in, its source text out. Pure: no files are written, nothing of the machine enters."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from tilewright import arch as archs
from tilewright.base.errors import IllegalConfigError
from tilewright.codegen.templates import templates_in
from tilewright.ops import op_named
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import violations


@dataclass(frozen=True)
class Source:
    """The text of one kernel, and the files it includes that are ours."""

    kernel: Kernel
    text: str
    files: Mapping[str, str]

    @property
    def name(self) -> str:
        """The kernel's slug."""
        return self.kernel.slug


def file_name(kernel: Kernel) -> str:
    """What a kernel's source is called in a folder of generated kernels."""
    return f"{kernel.slug}.hpp"


def render(kernel: Kernel) -> Source:
    """The source of a legal kernel. Raises `IllegalConfigError` that names every broken rule."""
    op = op_named(kernel.op)
    spec = archs.load(kernel.arch)
    broken = violations(op.rules, kernel.config, spec)
    if broken:
        lines = "\n".join(f"  {violation}" for violation in broken)
        raise IllegalConfigError(f"{kernel.slug} breaks {len(broken)} rule(s):\n{lines}")
    return render_unchecked(kernel)


def render_unchecked(kernel: Kernel) -> Source:
    """The source of any kernel, legal or not: what the comparison of rules and compiler needs."""
    op = op_named(kernel.op)
    text = _template(op.template).render(op.context(kernel), headers=headers(kernel))
    return Source(kernel, text, included_files(kernel))


def headers(kernel: Kernel) -> tuple[str, ...]:
    """What the source of a kernel includes, in order. Kernels of a kind include the same: it can be precompiled."""
    op = op_named(kernel.op)
    return (*op.headers, *op.launchers_of(kernel.config))


def included_files(kernel: Kernel) -> Mapping[str, str]:
    """Our own files that the source of a kernel includes: its C interface and its launcher."""
    op = op_named(kernel.op)
    launchers = {name: op.launchers[name] for name in op.launchers_of(kernel.config)}
    return {name: _text(path) for name, path in {**op.support, **launchers}.items()}


def support_files(op_name: str) -> Mapping[str, str]:
    """Our own files that any source of an op includes."""
    op = op_named(op_name)
    return {name: _text(path) for name, path in {**op.support, **op.launchers}.items()}


@functools.cache
def _template(path: Path) -> jinja2.Template:
    return templates_in(path.parent).get_template(path.name)


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
