"""Render the source text of a kernel. Pure: writes no files, and the text does not depend on the machine."""

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
    """The source text of one kernel, and our own files that it includes."""

    kernel: Kernel
    text: str
    files: Mapping[str, str]

    @property
    def name(self) -> str:
        """The kernel's slug."""
        return self.kernel.slug


def file_name(kernel: Kernel) -> str:
    """The name of a kernel's source file in a folder of generated kernels."""
    return f"{kernel.slug}.hpp"


def render(kernel: Kernel) -> Source:
    """Render the source of a legal kernel. Raises `IllegalConfigError` with every broken rule."""
    op = op_named(kernel.op)
    spec = archs.load(kernel.arch)
    broken = violations(op.rules, kernel.config, spec)
    if broken:
        lines = "\n".join(f"  {violation}" for violation in broken)
        raise IllegalConfigError(f"{kernel.slug} breaks {len(broken)} rule(s):\n{lines}")
    return render_unchecked(kernel)


def render_unchecked(kernel: Kernel) -> Source:
    """Render the source of any kernel, legal or not, for comparing the rules with the compiler."""
    op = op_named(kernel.op)
    text = _template(op.template).render(op.context(kernel), headers=headers(kernel))
    return Source(kernel, text, included_files(kernel))


def headers(kernel: Kernel) -> tuple[str, ...]:
    """List the headers that a kernel includes, in order. They can be precompiled: kernels of a kind share them."""
    op = op_named(kernel.op)
    return (*op.headers, *op.launchers_of(kernel.config))


def included_files(kernel: Kernel) -> Mapping[str, str]:
    """Read our own files that a kernel includes: its C interface and its launcher."""
    op = op_named(kernel.op)
    launchers = {name: op.launchers[name] for name in op.launchers_of(kernel.config)}
    return {name: _text(path) for name, path in {**op.support, **launchers}.items()}


def support_files(op_name: str) -> Mapping[str, str]:
    """Read our own files that the kernels of an op include."""
    op = op_named(op_name)
    return {name: _text(path) for name, path in {**op.support, **op.launchers}.items()}


@functools.cache
def _template(path: Path) -> jinja2.Template:
    return templates_in(path.parent).get_template(path.name)


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
