"""A compiled kernel as tables: resources, instructions, and whether they match the prediction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli.output import format_count, mark_bad, mark_good, print_facts, print_table

if TYPE_CHECKING:
    from tilewright.building.inspect import Inspection, KernelInspection
    from tilewright.ops.kernel import Kernel

# A literal in a mangled template argument list: an enumerator, or a bool.
LITERAL = re.compile(r"L(?:NS_\d+(?P<enum>[A-Za-z_]+)E|b)(?P<value>\d+)E")


@dataclass(frozen=True)
class InspectionChecks:
    """Predicted and actual matrix instructions and LDS, over all kernels of the op."""

    expected_matrix: tuple[str, ...]  # sorted, each once
    matrix: tuple[str, ...]
    predicted_lds: int
    lds: tuple[int, ...]

    @property
    def matrix_ok(self) -> bool:
        """Whether the code has exactly the predicted matrix instructions."""
        return self.matrix == self.expected_matrix

    @property
    def lds_ok(self) -> bool:
        """Whether every kernel has exactly the predicted LDS."""
        return self.lds == (self.predicted_lds,)

    @property
    def ok(self) -> bool:
        return self.matrix_ok and self.lds_ok

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "matrix_instructions": {
                "ok": self.matrix_ok,
                "expected": list(self.expected_matrix),
                "found": list(self.matrix),
            },
            "lds_bytes": {
                "ok": self.lds_ok,
                "expected": self.predicted_lds,
                "found": list(self.lds),
            },
        }


def find_differences(kernel: Kernel, inspection: Inspection) -> InspectionChecks:
    """Compare the code with the op's prediction for the config."""
    from tilewright import arch as gpus
    from tilewright.ops import find_op

    op, spec = find_op(kernel.op), gpus.load(kernel.arch)
    own = inspection.op_kernels
    return InspectionChecks(
        expected_matrix=tuple(sorted(set(op.kind(kernel.config).matrix_instructions(kernel.config, spec)))),
        matrix=tuple(sorted({name for k in own for name in k.matrix})),
        predicted_lds=op.kind(kernel.config).lds_bytes(kernel.config, spec),
        lds=tuple(sorted({k.resources.lds_bytes for k in own})),
    )


def print_inspection(inspection: Inspection, findings: InspectionChecks) -> None:
    """Print the whole report."""
    own = inspection.op_kernels
    others = len(inspection.kernels) - len(own)
    click.echo(f"{inspection.name}\n")
    rest = f", and {others} from CK's headers that are not shown" if others else ""
    print_facts(
        [
            ("compiler", inspection.compiler),
            ("time", _format_time(inspection)),
            ("code object", f"{inspection.object_bytes:,} bytes"),
            ("kernels", f"{len(own)}{rest}"),
        ]
    )
    _print_resources(own)
    _print_mix(own)
    click.echo()
    _print_checks(findings, own)


def _format_time(inspection: Inspection) -> str:
    if inspection.from_store:
        return f"{inspection.wall_s:.1f} s, from the store; building it took {inspection.cpu_s:.1f} s of CPU"
    return f"{inspection.wall_s:.1f} s, {inspection.cpu_s:.1f} s of CPU"


def _print_resources(kernels: Sequence[KernelInspection]) -> None:
    headings = (
        "#",
        "variant",
        "VGPR",
        "AGPR",
        "SGPR",
        "spills",
        "scratch",
        "LDS",
        "waves",
        "limit",
    )
    rows = []
    for index, (kernel, variant) in enumerate(zip(kernels, _describe_variants(kernels), strict=True), 1):
        used = kernel.resources
        rows.append(
            (
                str(index),
                variant,
                str(used.vgprs),
                str(used.agprs),
                str(used.sgprs),
                _mark_nonzero(used.vgpr_spills + used.sgpr_spills),
                _mark_nonzero(used.scratch_bytes),
                f"{used.lds_bytes:,}",
                str(kernel.occupancy.waves_per_simd),
                kernel.occupancy.limited_by,
            )
        )
    title = "Resources, and occupancy in waves per SIMD with its limiting resource"
    print_table(headings, rows, numbers=(*headings[2:9], "#"), title=title)


def _mark_nonzero(count: int) -> Any:
    from rich.text import Text

    return Text(f"{count:,}", style="bold red" if count else "")


def _print_mix(kernels: Sequence[KernelInspection]) -> None:
    classes = list(kernels[0].mix) if kernels else []
    rows = [
        (str(index), *(f"{kernel.mix[name]:,}" for name in classes), f"{kernel.code_bytes:,}")
        for index, kernel in enumerate(kernels, 1)
    ]
    headings = ("#", *classes, "bytes")
    print_table(headings, rows, numbers=headings, title="Instructions in the code")


def _print_checks(findings: InspectionChecks, kernels: Sequence[KernelInspection]) -> None:
    found = ", ".join(findings.matrix) or "none"
    if findings.matrix_ok:
        counts = ", ".join(str(sum(kernel.matrix.values())) for kernel in kernels)
        click.echo(f"{mark_good('✓')} matrix instruction {found}, as the config names ({counts})")
    else:
        named = ", ".join(findings.expected_matrix) or "none"
        click.echo(f"{mark_bad('✗')} matrix instruction {found}; the config names {named}")
    lds = ", ".join(f"{count:,}" for count in findings.lds) or "no"
    if findings.lds_ok:
        click.echo(f"{mark_good('✓')} {lds} bytes of LDS, as predicted")
    else:
        click.echo(f"{mark_bad('✗')} {lds} bytes of LDS; {findings.predicted_lds:,} were predicted")
    spilling = sum(1 for k in kernels if k.resources.vgpr_spills + k.resources.sgpr_spills > 0)
    if spilling:
        click.echo(f"{mark_bad('!')} {format_count(spilling, 'kernel')} spill registers to memory")


def _describe_variants(kernels: Sequence[KernelInspection]) -> list[str]:
    """The template literals in which the kernels' symbols differ."""
    literals = [_find_literals(kernel.name) for kernel in kernels]
    if len({len(found) for found in literals}) != 1:
        return [""] * len(kernels)
    columns = list(zip(*literals, strict=True))
    differing = [column for column in columns if len(set(column)) > 1]
    return [", ".join(column[i] for column in differing) for i in range(len(kernels))]


def _find_literals(symbol: str) -> list[str]:
    return [
        f"{m['enum']} {m['value']}" if m["enum"] else ("true" if m["value"] == "1" else "false")
        for m in LITERAL.finditer(symbol)
    ]
