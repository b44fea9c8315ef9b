"""Compare code objects of the toolchain from PyPI with those of distribution packages, instruction by instruction.

    python tools/compare_toolchains.py --kernels 30        # a table in Markdown

Both toolchains must be installed (tools/install-toolchain, tilewright toolchain install). The sample takes preselected
kernels of every op and GPU in turn. Times are CPU seconds of one device pass without precompiled headers; both
toolchains compile a kernel one after the other, so other load disturbs both.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

from tilewright import arch as archs
from tilewright.base import knobs
from tilewright.building.code_object import read_disassembly
from tilewright.building.compile import unit_flag
from tilewright.building.compile_job import CODE_OBJECT, CompileJob, make_compile_job, write_texts
from tilewright.building.process import format_env_removals
from tilewright.building.toolchain import Toolchain, find_toolchain
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

OPS = ("gemm", "grouped_conv", "fmha", "norm", "gemm_quant", "grouped_gemm", "topk", "moe_sorting")
GPUS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
MOST_PER_SET = 40  # kernels of a set to choose from


@dataclass(frozen=True)
class Comparison:
    """The code of one kernel by both toolchains."""

    kernel: Kernel
    instructions: int
    first_difference: str  # empty if the code is equal
    pypi_s: float
    other_s: float


def find_kind(kind: str) -> Toolchain:
    """Find the toolchain of one kind."""
    knobs.set_variables({knobs.TOOLCHAIN.name: kind})
    return find_toolchain()


def list_sample(count: int) -> list[Kernel]:
    """List kernels of every op and GPU in turn, spread over the op's preselected sets."""
    columns = [list(_list_kernels(op, gpu)) for gpu in GPUS for op in OPS]
    rows = zip_longest(*columns)
    return list(islice((kernel for row in rows for kernel in row if kernel is not None), count))


def _list_kernels(op: str, gpu: str) -> Iterator[Kernel]:
    sets = [each for each in find_op(op).sets().values() if gpu in each.archs]
    listed = [list(islice(each.kernels(gpu), MOST_PER_SET)) for each in sets]
    # From the middle of each set: its first kernels are often alike.
    rows = zip_longest(*(kernels[len(kernels) // 2 :] for kernels in listed if kernels))
    distinct = {kernel.slug: kernel for row in rows for kernel in row if kernel is not None}
    return iter(distinct.values())


def compile_kernel(job: CompileJob, folder: Path) -> float:
    """Compile the device code of a kernel; return the CPU seconds."""
    write_texts({**job.texts(), **job.source.files, **job.toolchain.compat_files()}, folder)
    arch = archs.load(job.kernel.arch)
    command = (str(job.toolchain.cxx), *job.toolchain.device_flags(arch), "-I.", unit_flag(job.source.text))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = ["/usr/bin/env", *format_env_removals(), *command, "-o", CODE_OBJECT, "kernel.hip"]
    subprocess.run(words, cwd=folder, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(kernel: Kernel, pypi: Toolchain, other: Toolchain) -> Comparison:
    """Compile a kernel with both toolchains, and compare the instructions."""
    arch = archs.load(kernel.arch)
    with tempfile.TemporaryDirectory() as private:
        folders = (Path(private, "pypi"), Path(private, "other"))
        times = [
            compile_kernel(make_compile_job(kernel, each), folder)
            for each, folder in zip((pypi, other), folders, strict=True)
        ]
        ours, theirs = (read_disassembly(folder / CODE_OBJECT, arch, other.objdump) for folder in folders)
    pairs = zip_longest(
        ([line.text, line.words] for line in ours), ([line.text, line.words] for line in theirs), fillvalue=["end", ()]
    )
    different = next((f"{a[0]} / {b[0]}" for a, b in pairs if a != b), "")
    return Comparison(kernel, len(theirs), different, *times)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernels", type=int, default=30, help="number of kernels (30)")
    count = parser.parse_args().kernels
    other, pypi = find_kind(knobs.GPU_LESS), find_kind(knobs.PYPI)
    print("| GPU | kernel | instructions | difference | PyPI, CPU s | distribution, CPU s |\n|---|---|---|---|---|---|")
    rows = []
    for kernel in list_sample(count):
        row = compare(kernel, pypi, other)
        rows.append(row)
        name = kernel.slug.removeprefix(f"{kernel.op}-{kernel.arch}-")
        facts = (kernel.arch, f"{kernel.op} `{name}`", f"{row.instructions:,}", row.first_difference or "none")
        print(f"| {' | '.join(facts)} | {row.pypi_s:.1f} | {row.other_s:.1f} |", flush=True)
    equal = sum(not row.first_difference for row in rows)
    ratio = statistics.median(row.pypi_s / row.other_s for row in rows)
    print(
        f"\nEqual: {equal} of {len(rows)} kernels. Compile time: {ratio:.2f} times that of the distribution's packages."
    )
    return 0 if equal == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
