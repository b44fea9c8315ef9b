"""`tilewright inspect`: resource usage and instructions of a compiled kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.atomic_write import write_text
from tilewright.cli.command import Command
from tilewright.cli.inspection_report import find_differences, print_inspection
from tilewright.cli.named_kernels import add_subject_options, resolve_kernel
from tilewright.cli.output import add_json_option, print_json
from tilewright.cli.output_paths import STDOUT, OutputFile
from tilewright.cli.progress import report_progress

if TYPE_CHECKING:
    from tilewright.building.inspect import Inspection
    from tilewright.codegen.render import KernelSource


@click.command(
    cls=Command,
    examples=(
        "tilewright inspect gemm-gfx942-standard-…-9a6900b412ca",
        "tilewright inspect gemm --gpu gfx942 -s variant=standard -s dtype=fp16 -s layout=rcr \\",
        "    -s block=128x128x32 -s waves=2x2x1 -s mma=32x32x16 -s pipeline=compv3 \\",
        "    -s scheduler=intrawave -s epilogue=cshuffle --disassembly kernel.s",
    ),
)
@add_subject_options
@click.option(
    "--disassembly",
    type=OutputFile(stdout=True),
    metavar="FILE",
    help="Write the instructions to a file, or to stdout with '-'.",
)
@click.option("--source", "source_only", is_flag=True, help="Print the source and compile nothing.")
@add_json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    subject: str,
    arch: str | None,
    settings: tuple[str, ...],
    disassembly: Path | None,
    source_only: bool,
    as_json: bool,
) -> None:
    """Show resource usage and instructions of a compiled kernel.

    Shows registers, LDS, occupancy and instructions. A kernel that is in the store is read from
    there; any other is built and stored. Give an op with a GPU and its fields, or a kernel by its
    name or digest (then -s changes single fields). One source compiles to several device kernels: for
    long and short loops, and for each way the loop can end.

    The exit code is 1 if the matrix instruction or the LDS size differs from the prediction.
    """
    from tilewright.codegen.render import render

    source = render(resolve_kernel(subject, arch, settings))
    if source_only:
        _print_source(source, as_json)
        return
    with report_progress(as_json=as_json, steps=True):
        compiled = _compile_kernel(source, wanted=disassembly is not None)
    findings = find_differences(source.kernel, compiled.inspection)
    printed = str(disassembly) == STDOUT
    if disassembly is not None and not printed:
        write_text(disassembly, compiled.code)
    if as_json:
        code = {"disassembly": compiled.code} if printed else {}
        print_json({**compiled.inspection.to_json(), "checks": findings.to_json(), **code})
    elif printed:
        click.echo(compiled.code, nl=False)
    else:
        print_inspection(compiled.inspection, findings)
    ctx.exit(0 if findings.ok else 1)


@dataclass(frozen=True)
class CompiledKernel:
    """The inspection of a kernel's code, and the disassembly if it was requested."""

    inspection: Inspection
    code: str


def _compile_kernel(source: KernelSource, *, wanted: bool) -> CompiledKernel:
    from tilewright import arch as gpus
    from tilewright.building.code_object import disassemble
    from tilewright.building.inspect import inspect_built
    from tilewright.building.toolchain import find_toolchain

    toolchain = find_toolchain()
    found = inspect_built(source, toolchain)
    functions = disassemble(found.code_object, gpus.load(source.kernel.arch), toolchain) if wanted else {}
    return CompiledKernel(found.inspection, "\n".join(_format_listing(n, code) for n, code in functions.items()))


def _format_listing(name: str, code: Any) -> str:
    lines = "".join(f"  {i.offset:06x}  {i.text}\n" for i in code)
    return f"{name}:\n{lines}"


def _print_source(source: KernelSource, as_json: bool) -> None:
    from tilewright.codegen.render import file_name

    if as_json:
        print_json(
            {
                "name": source.name,
                "file": file_name(source.kernel),
                "text": source.text,
                "includes": dict(source.files),
            }
        )
    else:
        click.echo(source.text, nl=False)
