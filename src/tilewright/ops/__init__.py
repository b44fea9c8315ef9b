"""Ops: one folder each, the only places that know an op."""

from __future__ import annotations

from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops import gemm
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op

OPS: tuple[Op, ...] = (gemm.OP,)


def op_named(name: str) -> Op:
    """The op of that name; `UnknownValueError` lists them all."""
    known = {op.name: op for op in OPS}
    return known[choose("op", name, known)]


def parse_kernel(slug: str) -> Kernel:
    """The kernel that a slug names: the inverse of `Kernel.slug`."""
    parts = slug.split("-")
    if len(parts) < 4:
        raise InvalidValueError(f"{slug!r} is not a kernel name: it must have op, arch, fields and digest")
    return op_named(parts[0]).parse_tokens(parts[1], parts[2:-1], parts[-1])
