"""Measure the compile time of a kernel, step by step from the plain translation unit to ours.

The plain unit is like those of CK's own generators: umbrella headers, host and device pass, and all variants in one,
atomic ones included. Ours is the unit of the build engine. Each step between the two is measured, and the code objects
at both ends are compared instruction by instruction.

    python tools/bench_compile.py                 # a table
    python tools/bench_compile.py --ends          # only the plain unit and ours
    python tools/bench_compile.py --parallel      # the engine with 1 and 2 workers, and bare ninja
    python tools/bench_compile.py --out docs/bench-compile.md    # both, as a page

Times are CPU seconds, the lowest of all rounds. Rounds are interleaved, so other load disturbs all steps equally.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deep_tests import describe_run
from tilewright import arch as archs
from tilewright.building.builder import build_kernels
from tilewright.building.code_object import disassemble
from tilewright.building.compile import unit_flag
from tilewright.building.compile_job import CODE_OBJECT, HOST_OBJECT, LIBRARY, CompileJob, make_compile_job
from tilewright.building.graph import GRAPH, NinjaJob, write_graph
from tilewright.building.header_set import write_headers
from tilewright.building.ninja_run import find_ninja
from tilewright.building.precompiled_headers import prepare_header_set
from tilewright.building.process import find_fast_allocator
from tilewright.building.store.local import Store
from tilewright.building.store.tiers import Tiers
from tilewright.building.toolchain import Toolchain, find_toolchain
from tilewright.codegen.render import render_unchecked
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

ARCH = "gfx942"
# The headers that CK's own generators and examples include for any kernel of an op.
_ALWAYS = ("ck_tile/core.hpp", "ck_tile/host.hpp", "ck_tile/ops/epilogue.hpp")
UMBRELLA = {
    "gemm": (*_ALWAYS, "ck_tile/ops/gemm.hpp"),
    "grouped_conv": (*_ALWAYS, "ck_tile/ops/gemm.hpp", "ck_tile/ops/grouped_convolution.hpp"),
    # CK's example is compiled with the macros of this header of ours.
    "fmha": ("tilewright_fmha_settings.hpp", *_ALWAYS, "ck_tile/ops/fmha.hpp"),
}
# Kernels of one family with different tiles, as in tuning.
BLOCKS = ((128, 128, 32), (128, 64, 32), (64, 128, 64), (128, 256, 32), (256, 128, 32), (64, 64, 64), (64, 64, 32))


PRECOMPILED = "+ precompiled headers"


@dataclass(frozen=True)
class Step:
    """A way to compile a kernel. Its name says how it differs from the previous step."""

    name: str
    run: Callable[[CompileJob, Path], None]


def make_kernels(count: int, op_name: str = "gemm") -> list[Kernel]:
    op = find_op(op_name)
    if op_name != "gemm":
        return [op.make_kernel(op.make_example({}), ARCH)]
    return [op.make_kernel(op.make_example({"block": block}), ARCH) for block in BLOCKS[:count]]


def measure_cpu_seconds(work: Callable[[], None]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_command(command: Sequence[str], folder: Path, preload: Path | None = None) -> None:
    environment = {**os.environ, **({"LD_PRELOAD": str(preload)} if preload else {})}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)[:300]} failed:\n{done.stderr[:3000]}")


def render_all_variants(unit: CompileJob) -> str:
    """Render the source of a GEMM with every variant: those that store C and those that add to it."""
    declared: Any = unit.kernel.config
    if unit.kernel.op != "gemm":
        return unit.source.text
    config = replace(declared, split_k=True)
    return render_unchecked(Kernel(unit.kernel.op, config, unit.kernel.arch)).text


def render_plain_unit(unit: CompileJob) -> str:
    """Render the kernel as a unit that includes the umbrella headers."""
    return "".join(f'#include "{name}"\n' for name in UMBRELLA[unit.kernel.op]) + render_all_variants(unit)


def make_plain_flags(flags: Sequence[str]) -> list[str]:
    """Return the flags without those that Tilewright adds to save time."""
    return [flag for flag in flags if flag != "-w"] + ["-DTILEWRIGHT_NO_SHORTCUTS", "-DTILEWRIGHT_WHOLE_HOST"]


def make_steps(toolchain: Toolchain, store: Store) -> list[Step]:
    """Make the steps from the plain unit to ours."""
    arch = archs.load(ARCH)
    cxx = str(toolchain.cxx)
    device, host = toolchain.device_flags(arch), toolchain.host_flags()

    def both(
        text: Callable[[CompileJob], str], change: Callable[[Sequence[str]], list[str]], include: str = "-I"
    ) -> Callable[[CompileJob, Path], None]:
        def run(unit: CompileJob, folder: Path) -> None:
            (folder / "unit.hip").write_text(text(unit))
            # With -I, CK's own headers are found before the edited copies of them.
            own = [f"{include}{unit.device_headers.folder(store)}", unit_flag(unit.source.text)]
            run_command([cxx, *change(device), *own, "-o", CODE_OBJECT, "unit.hip"], folder)
            run_command([cxx, *change(host), *own, "-c", "-o", HOST_OBJECT, "unit.hip"], folder)
            run_command(unit.link_command(), folder)

        return run

    def without(*flags: str) -> Callable[[Sequence[str]], list[str]]:
        return lambda given: [*given, *flags]

    def ours(preload: Path | None) -> Callable[[CompileJob, Path], None]:
        def run(unit: CompileJob, folder: Path) -> None:
            run_command(unit.device_command(prepare_header_set(unit.device_headers, store)), folder, preload)
            run_command(unit.host_command(prepare_header_set(unit.host_headers, store)), folder, preload)
            run_command(unit.link_command(), folder)

        return run

    allocator = find_fast_allocator()
    listed = [
        Step(
            "plain: umbrella headers, all variants, all host code in both passes",
            both(render_plain_unit, make_plain_flags),
        ),
        Step("+ only the headers that are used", both(render_all_variants, make_plain_flags)),
        Step("+ only the variants that were asked for", both(lambda unit: unit.source.text, make_plain_flags)),
        Step(
            "+ no analysis for warnings",
            both(lambda unit: unit.source.text, without("-DTILEWRIGHT_NO_SHORTCUTS", "-DTILEWRIGHT_WHOLE_HOST")),
        ),
        Step(
            "+ device pass without host code",
            both(lambda unit: unit.source.text, without("-DTILEWRIGHT_NO_SHORTCUTS")),
        ),
        Step("+ shortcuts for CK's metafunctions", both(lambda unit: unit.source.text, without())),
        Step("+ edited copies of CK's headers", both(lambda unit: unit.source.text, without(), "-iquote")),
        Step(PRECOMPILED, ours(None)),
    ]
    if allocator is not None:
        listed.append(Step(f"+ {allocator.name.split('.')[0]} = ours", ours(allocator)))
    return listed


def read_code(path: Path, toolchain: Toolchain) -> dict[str, list[str]]:
    """Read the instructions of every function in a code object."""
    return {name: [i.text for i in body] for name, body in disassemble(path, archs.load(ARCH), toolchain).items()}


def measure(rounds: int, count: int, *, ends: bool = False, op: str = "gemm") -> dict[str, Any]:
    toolchain = find_toolchain()
    with tempfile.TemporaryDirectory(prefix="bench-compile-") as scratch:
        store = Store(Path(scratch) / "store")
        units = [make_compile_job(kernel, toolchain) for kernel in make_kernels(count, op)]
        for unit in units:
            write_headers(unit.device_headers, store)
        warming = measure_cpu_seconds(lambda: _precompile_headers(units[0], store))
        listed = make_steps(toolchain, store)
        listed = [listed[0], listed[-1]] if ends else listed
        best: dict[tuple[int, int], float] = {}
        same = True
        for _ in range(rounds):
            for number, unit in enumerate(units):
                for index, step in enumerate(listed):
                    folder = Path(scratch) / f"{number}-{index}"
                    shutil.rmtree(folder, ignore_errors=True)
                    folder.mkdir()
                    for name, text in unit.texts().items():
                        (folder / name).write_text(text)
                    took = measure_cpu_seconds(lambda step=step, unit=unit, folder=folder: step.run(unit, folder))  # type: ignore[misc]
                    best[number, index] = min(best.get((number, index), took), took)
                    print(f"  {unit.kernel.slug[:70]:70s} {took:6.1f} s  {step.name}", file=sys.stderr)
        differing = []
        for number, unit in enumerate(units):
            first, last = (Path(scratch) / f"{number}-{index}" / CODE_OBJECT for index in (0, len(listed) - 1))
            plain, ours = (_select_op_kernels(read_code(path, toolchain)) for path in (first, last))
            if not ours or any(plain.get(name) != body for name, body in ours.items()):
                same = False
                differing.append(unit.kernel.slug)
    return _summarize([step.name for step in listed], units, best, warming, same, differing)


def _select_op_kernels(functions: dict[str, list[str]]) -> dict[str, list[str]]:
    """Select the op's kernels. The umbrella headers define others, such as one that flushes caches."""
    return {name: body for name, body in functions.items() if "kentry" in name}


def _precompile_headers(unit: CompileJob, store: Store) -> None:
    prepare_header_set(unit.device_headers, store)
    prepare_header_set(unit.host_headers, store)


def _summarize(
    names: Sequence[str],
    units: Sequence[CompileJob],
    best: dict[tuple[int, int], float],
    warming: float,
    same: bool,
    differing: Sequence[str],
) -> dict[str, Any]:
    totals = [sum(best[number, index] for number in range(len(units))) for index in range(len(names))]
    plain, ours = totals[0] / len(units), totals[-1] / len(units)
    return {
        "kernels": [unit.kernel.slug for unit in units],
        "steps": [
            {"name": name, "cpu_s": round(total / len(units), 2), "ratio": round(total / totals[0], 3)}
            for name, total in zip(names, totals, strict=True)
        ],
        "ratio": round(ours / plain, 3),
        "ratios": [round(best[n, len(names) - 1] / best[n, 0], 3) for n in range(len(units))],
        "warming_cpu_s": round(warming, 2),
        "kernels_to_pay_for_warming": round(warming / max(_measure_saving(totals, names) / len(units), 1e-9), 2),
        "same_code": same,
        "differing": list(differing),
    }


def _measure_saving(totals: Sequence[float], names: Sequence[str]) -> float:
    """Return the saving by precompiled headers, or the whole saving if that step was not measured."""
    if PRECOMPILED not in names:
        return totals[0] - totals[-1]
    index = names.index(PRECOMPILED)
    return totals[index - 1] - totals[index]


def measure_parallel(counts: Sequence[int], workers: Sequence[int], rounds: int) -> dict[str, Any]:
    """Measure the engine with several kernels and workers, and bare ninja with clang on the same units.

    Rounds are interleaved, and the lowest time counts.
    """
    toolchain = find_toolchain()
    best: dict[tuple[str, int, int], float] = {}

    def keep(name: str, count: int, jobs: int, seconds: float) -> None:
        best[name, count, jobs] = min(best.get((name, count, jobs), seconds), seconds)
        print(f"  {name}: {count} kernels, {jobs} workers: {seconds:.1f} s", file=sys.stderr)

    with tempfile.TemporaryDirectory(prefix="bench-parallel-") as scratch:
        store = Store(Path(scratch) / "store")
        _precompile_headers(make_compile_job(make_kernels(1)[0], toolchain), store)
        for number in range(rounds):
            for count in counts:
                for jobs in workers:
                    keep("engine", count, jobs, _measure_engine(count, jobs, store, toolchain))
            bare = Path(scratch) / f"bare-{number}"
            seconds = measure_bare_ninja(make_kernels(counts[-1]), workers[-1], store, toolchain, bare)
            keep("ninja", counts[-1], workers[-1], seconds)
    rows = [{"kernels": n, **{f"workers_{jobs}": best["engine", n, jobs] for jobs in workers}} for n in counts]
    engine, ninja = best["engine", counts[-1], workers[-1]], best["ninja", counts[-1], workers[-1]]
    return {"rows": rows, "bare_ninja_s": ninja, "engine_s": engine, "overhead": engine / ninja - 1}


def _measure_engine(count: int, jobs: int, store: Store, toolchain: Toolchain) -> float:
    listed = make_kernels(count)
    for kernel in listed:
        store.remove(make_compile_job(kernel, toolchain).key)
    started = time.monotonic()
    built = build_kernels(listed, jobs=jobs, tiers=Tiers(store))
    took = time.monotonic() - started
    if built.failures or built.compiled != count:
        sys.exit(f"{built.compiled} of {count} kernels were compiled: {built.failures}")
    return took


def measure_bare_ninja(kernels: Sequence[Kernel], jobs: int, store: Store, toolchain: Toolchain, folder: Path) -> float:
    """Measure the same commands in a ninja file without our steps around them."""
    folder.mkdir()
    works = []
    for kernel in kernels:
        unit = make_compile_job(kernel, toolchain)
        works.append(
            NinjaJob(unit, prepare_header_set(unit.device_headers, store), prepare_header_set(unit.host_headers, store))
        )
    write_graph(works, folder, preload=find_fast_allocator(), limit_s=1800)
    graph = (folder / GRAPH).read_text()
    bare = re.sub(r"command = sh .* \$step \$folder \$how", "command = cd $folder && $how", graph)
    (folder / GRAPH).write_text(bare)
    started = time.monotonic()
    run_command([str(find_ninja()), "-C", str(folder), "-k", "0", "-j", str(jobs)], folder)
    took = time.monotonic() - started
    made = sum((folder / work.unit.key / LIBRARY).is_file() for work in works)
    if made != len(kernels):
        sys.exit(f"bare ninja made {made} of {len(kernels)} libraries")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kernels", type=int, default=2)
    parser.add_argument("--ends", action="store_true", help="only the plain unit and ours")
    parser.add_argument("--op", choices=sorted(UMBRELLA), default="gemm", help="other ops than gemm: as with --ends")
    parser.add_argument("--parallel", action="store_true", help="the engine with 1 and 2 workers")
    parser.add_argument("--out", type=Path, help="measure everything and write a page")
    options = parser.parse_args()
    found = (
        {}
        if options.parallel
        else measure(options.rounds, options.kernels, ends=options.ends or options.op != "gemm", op=options.op)
    )
    at_once = measure_parallel((1, 2, 4, 6), (1, 2), options.rounds) if options.parallel or options.out else {}
    if options.out:
        others = [measure(options.rounds, 1, ends=True, op=op) for op in UMBRELLA if op != "gemm"]
        options.out.write_text(_format_page(found, others, at_once))
    print(
        "\n\n".join(
            [*([_format_table(found)] if found else []), *([_format_parallel_table(at_once)] if at_once else [])]
        )
    )


def _format_table(found: dict[str, Any]) -> str:
    counted = f"mean of {len(found['kernels'])} kernels" if len(found["kernels"]) > 1 else "one kernel"
    lines = [f"CPU seconds per kernel, {counted} on {ARCH}, least of all rounds:"]
    lines += [f"  {step['cpu_s']:7.2f} s  {step['ratio']:.2f}x  {step['name']}" for step in found["steps"]]
    paid = f"paid for by {found['kernels_to_pay_for_warming']} kernels"
    lines.append(f"Precompiling headers: {found['warming_cpu_s']:.1f} s once, {paid}.")
    lines.append(f"Next kernel of a warm family: {found['ratio']:.2f}x of the plain unit ({found['ratios']}).")
    lines.append(
        "Code: the same, instruction by instruction." if found["same_code"] else f"CODE DIFFERS: {found['differing']}"
    )
    return "\n".join(lines)


def _format_parallel_table(found: dict[str, Any]) -> str:
    lines = ["Wall seconds of the engine, headers precompiled before:", "  kernels   1 worker  2 workers   faster"]
    for row in found["rows"]:
        one, two = row["workers_1"], row["workers_2"]
        lines.append(f"  {row['kernels']:7d} {one:8.1f} s {two:8.1f} s   {one / two:.2f}x")
    lines.append(
        f"Bare ninja on the same units: {found['bare_ninja_s']:.1f} s, the engine {found['engine_s']:.1f} s: "
        f"{100 * found['overhead']:+.1f} %."
    )
    return "\n".join(lines)


def _format_page(found: dict[str, Any], others: Sequence[dict[str, Any]], at_once: dict[str, Any]) -> str:
    names = "\n".join(f"- `{slug}`" for slug in found["kernels"])
    tables = "\n\n".join(f"`{other['kernels'][0]}`\n\n```text\n{_format_table(other)}\n```" for other in others)
    return f"""# Compile times

One run of `make bench-compile` on one machine. Trust the ratios; other load on your machine slows everything down.
{describe_run()} [Building](building.md) explains the steps.

```text
{_format_table(found)}
```

The plain unit is the same as from CK's own generators: umbrella headers, host and device pass, all variants in one.
"Ours" is the marginal cost if you add one more kernel, with the headers precompiled. The kernels:

{names}

## Other ops

{tables}

## Several at once

```text
{_format_parallel_table(at_once)}
```
"""


if __name__ == "__main__":
    main()
