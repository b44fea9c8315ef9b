"""The page docs/parity.md: one row for each config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.proof.parity.comparing import Comparison
from tests.proof.parity.unit import Unit

INTRODUCTION = """\
# Our kernels compared with those of CK's generators

Written by `make parity`. A deep test compares a sample again.

Each config was given to Tilewright and to CK's own generator: tile_engine's builders for GEMM, `generate.py` of the
example 01_fmha for attention, and the invokers of the example 20_grouped_convolution for convolution. The generators
are from the package whose headers both sides include. One compiler compiled the device code of both, with
Tilewright's flags; CK's own build files also have flags for denormal numbers and alias analysis. The compiler was
{compiler}.

Two device kernels are equal if all of their instructions are equal word by word, which includes registers, constants
and branch distances, and if they use the same registers, scratch and LDS. Only the distance to constants outside of a
kernel is left out, because it follows from the other kernels in the code object. A config has several device kernels
if the form of its loop is chosen on the host. Nothing here was run on a GPU.
"""
SAME_WORK = "the same loads, stores, matrix and float instructions; registers and integer arithmetic differ"


@dataclass(frozen=True)
class Row:
    """The result for one config."""

    unit: Unit
    result: Comparison

    @property
    def is_explained(self) -> bool:
        """Whether the code is equal, or differs for a known reason."""
        return self.result.is_equal or self.result.same_work or bool(self.unit.reason)

    @property
    def verdict(self) -> str:
        result = self.result
        if result.is_equal:
            return "equal"
        reason = self.unit.reason or (SAME_WORK if result.same_work else result.first_difference)
        return f"{result.ours - result.equal} of {result.ours} differ: {reason}"


def format_page(rows: Sequence[Row], listed: int, compiler: str) -> str:
    """Format the page: a summary, then a table for each op. `listed` is the number of configs that there are."""
    ops = dict.fromkeys(row.unit.kernel.op for row in rows)
    lines = [INTRODUCTION.format(compiler=compiler)]
    if len(rows) < listed:
        lines += [f"{len(rows)} of {listed} configs have been compared so far.", ""]
    lines += ["| op | configs | equal | device kernels | instructions |"]
    lines.append("|---|---:|---:|---:|---:|")
    lines += [_format_sum(op, [row for row in rows if row.unit.kernel.op == op]) for op in ops]
    lines.append(_format_sum("all", rows))
    for op in ops:
        lines += ["", f"## {op}", "", "| GPU | config | device kernels | instructions | result |"]
        lines += ["|---|---|---:|---:|---|"]
        lines += [_format_row(row) for row in rows if row.unit.kernel.op == op]
    return "\n".join(lines) + "\n"


def _format_sum(name: str, rows: Sequence[Row]) -> str:
    equal = sum(row.result.is_equal for row in rows)
    kernels, instructions = sum(row.result.ours for row in rows), sum(row.result.instructions for row in rows)
    return f"| {name} | {len(rows)} | {equal} | {kernels} | {instructions:,} |"


def _format_row(row: Row) -> str:
    kernel, result = row.unit.kernel, row.result
    name = kernel.slug.removeprefix(f"{kernel.op}-{kernel.arch}-").rpartition("-")[0]
    verdict = row.verdict if result.is_equal else f"{row.verdict} ({result.mix})"
    cells = (kernel.arch, f"`{name}`", str(result.ours), f"{result.instructions:,}", verdict)
    return f"| {' | '.join(cells)} |"
