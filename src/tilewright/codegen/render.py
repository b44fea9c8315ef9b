"""Render the source text of a kernel. Pure: writes no files, and the text does not depend on the machine."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from tilewright import arch as archs
from tilewright.base.errors import IllegalConfigError
from tilewright.codegen.templates import load_templates
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import find_violations


@dataclass(frozen=True)
class KernelSource:
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


def render(kernel: Kernel) -> KernelSource:
    """Render the source of a legal kernel. Raises `IllegalConfigError` with every broken rule."""
    op = find_op(kernel.op)
    spec = archs.load(kernel.arch)
    broken = find_violations(op.rules, kernel.config, spec)
    if broken:
        lines = "\n".join(f"  {violation}" for violation in broken)
        raise IllegalConfigError(f"{kernel.slug} breaks {len(broken)} rule(s):\n{lines}")
    return render_unchecked(kernel)


def render_unchecked(kernel: Kernel) -> KernelSource:
    """Render the source of any kernel, legal or not, for comparing the rules with the compiler."""
    op = find_op(kernel.op)
    text = _load_template(op.template).render(op.kind(kernel.config).context(kernel), headers=list_headers(kernel))
    return KernelSource(kernel, text, read_included_files(kernel))


def list_headers(kernel: Kernel) -> tuple[str, ...]:
    """List the headers that a kernel includes, in order. They can be precompiled: kernels of a kind share them."""
    op = find_op(kernel.op)
    return (*op.headers, *op.kind(kernel.config).launchers)


def read_included_files(kernel: Kernel) -> Mapping[str, str]:
    """Read our own files that a kernel includes: its C interface and its launcher."""
    op = find_op(kernel.op)
    launchers = {name: op.launchers[name] for name in op.kind(kernel.config).launchers}
    return {name: _read_text(path) for name, path in {**op.support, **launchers}.items()}


def read_support_files(op_name: str) -> Mapping[str, str]:
    """Read our own files that the kernels of an op include."""
    op = find_op(op_name)
    return {name: _read_text(path) for name, path in {**op.support, **op.launchers}.items()}


@functools.cache
def _load_template(path: Path) -> jinja2.Template:
    return load_templates(path.parent).get_template(path.name)


@functools.cache
def _read_text(path_or_text: Path | str) -> str:
    return path_or_text if isinstance(path_or_text, str) else path_or_text.read_text(encoding="utf-8")
