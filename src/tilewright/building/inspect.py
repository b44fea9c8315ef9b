"""Inspect a kernel without running it: resources, occupancy, instructions and code size."""

from __future__ import annotations

import dataclasses
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tilewright import arch as archs
from tilewright.arch.occupancy import Occupancy, compute_occupancy
from tilewright.arch.spec import Arch
from tilewright.base.errors import CompileError, ToolchainError, require
from tilewright.building.builder import build_compile_jobs
from tilewright.building.ck_tree import require_api
from tilewright.building.code_object import (
    KernelResources,
    disassemble,
    read_functions,
    read_resources,
    select_op_kernels,
)
from tilewright.building.compile import compile_device
from tilewright.building.compile_job import CODE_OBJECT, CompileJob, make_compile_job
from tilewright.building.disassembled import DisassembledInstruction, FunctionSymbol
from tilewright.building.instruction_mix import count_by_class, count_matrix_instructions
from tilewright.building.store.artifact import Failure
from tilewright.building.toolchain import Toolchain, find_toolchain
from tilewright.codegen.render import KernelSource
from tilewright.ops.kernel import Kernel

# LLVM forms the address of a function from the program counter and a distance added to its lower half. gfx12 uses
# another mnemonic for the addition.
_GETPC = re.compile(r"s_getpc_b64 s\[(\d+):\d+\]")
_DISTANCE = re.compile(r"s_add(?:_co)?_u32 s(\d+), s\1, (?:lit\()?(0x[0-9a-f]+|-?\d+)\)?")
_GETPC_BYTES = 4  # it returns the address of the next instruction


def find_reachable(
    name: str, code: Mapping[str, Sequence[DisassembledInstruction]], functions: Mapping[str, FunctionSymbol]
) -> tuple[str, ...]:
    """Return a kernel and all functions that it calls directly or indirectly, each once."""
    starts = {symbol.address: other for other, symbol in functions.items() if other in code}
    found = [name]
    for function in found:  # grows while it is read
        targets = _find_addresses(code[function], functions[function].address)
        found += dict.fromkeys(starts[at] for at in targets if at in starts and starts[at] not in found)
    return tuple(found)


def _find_addresses(code: Sequence[DisassembledInstruction], start: int) -> Iterator[int]:
    """Yield the addresses that a function forms relative to its own: called functions and constants."""
    counters: dict[str, int] = {}
    for instruction in code:
        if counter := _GETPC.match(instruction.text):
            counters[counter[1]] = start + instruction.offset + _GETPC_BYTES
        elif (distance := _DISTANCE.match(instruction.text)) and distance[1] in counters:
            yield counters.pop(distance[1]) + _to_signed(int(distance[2], 0))


def _to_signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


class SourceLike(Protocol):
    """A rendered kernel: its translation unit and the files that it includes by relative name."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def files(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class KernelInspection:
    """One device kernel of a source, with the functions that it calls. Occupancy is for its largest work-group."""

    resources: KernelResources
    occupancy: Occupancy
    mix: Mapping[str, int]
    matrix: Mapping[str, int]
    code_bytes: int
    is_op: bool  # computes the op; False for helpers: kernels from CK's headers, or kernels that convert a result

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        return self.resources.name

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            **dataclasses.asdict(self.resources),
            "occupancy": {
                "waves_per_simd": self.occupancy.waves_per_simd,
                "blocks_per_unit": self.occupancy.blocks_per_unit,
                "limited_by": self.occupancy.limited_by,
                "limits": dict(self.occupancy.limits),
            },
            "mix": dict(self.mix),
            "matrix": dict(self.matrix),
            "code_bytes": self.code_bytes,
            "is_op": self.is_op,
        }


@dataclass(frozen=True, slots=True)
class Inspection:
    """A compiled source with all its device kernels: loop, tail and store variants, CK's own."""

    name: str
    arch: str
    compiler: str
    cpu_s: float
    wall_s: float
    object_bytes: int
    kernels: tuple[KernelInspection, ...]
    from_store: bool = False  # not compiled now: cpu_s is the original compile cost, wall_s the time to read it

    @property
    def op_kernels(self) -> tuple[KernelInspection, ...]:
        """The op's own kernels."""
        return tuple(kernel for kernel in self.kernels if kernel.is_op)

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "arch": self.arch,
            "compiler": self.compiler,
            "cpu_s": self.cpu_s,
            "wall_s": self.wall_s,
            "object_bytes": self.object_bytes,
            "from_store": self.from_store,
            "kernels": [kernel.to_json() for kernel in self.kernels],
        }


def inspect_source(
    source: SourceLike,
    arch: Arch,
    toolchain: Toolchain,
    keep: Path | None = None,
    *,
    extra_flags: Sequence[str] = (),
    timeout_s: float = 600,
) -> Inspection:
    """Compile any source, optionally with extra flags, and read its code object, which is written to `keep` if given.

    `inspect_built` inspects kernels as they are in the store.

    Raises `CompileError` with the compiler's log if the source does not compile.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-") as private:
        out = keep if keep is not None else Path(private) / "kernel.co"
        outcome = compile_device(
            source.text,
            arch,
            toolchain,
            out,
            files=source.files,
            extra_flags=extra_flags,
            timeout_s=timeout_s,
        )
        if not outcome.ok:
            raise _make_compile_error(source.name, arch, outcome.errors, outcome.log)
        kernels = inspect_object(out, arch, toolchain)
        object_bytes = out.stat().st_size
    return Inspection(
        name=source.name,
        arch=arch.name,
        compiler=toolchain.compiler,
        cpu_s=outcome.cpu_s,
        wall_s=outcome.wall_s,
        object_bytes=object_bytes,
        kernels=kernels,
    )


def inspect_kernel(kernel: Kernel) -> Inspection:
    """Inspect a legal kernel with the toolchain of this machine. Builds it if it is not in the store."""
    require("the kernel", kernel, Kernel)
    toolchain = find_toolchain()
    return inspect_built(make_compile_job(kernel, toolchain).source, toolchain).inspection


@dataclass(frozen=True, slots=True)
class InspectedBuild:
    """An inspection and its code object in the store."""

    inspection: Inspection
    code_object: Path


def inspect_built(source: KernelSource, toolchain: Toolchain) -> InspectedBuild:
    """Inspect a kernel in the store; build it first if it is missing.

    Raises `CompileError` with the compiler's log if the kernel does not compile.
    """
    started = time.monotonic()
    arch = archs.load(source.kernel.arch)
    require_api(source.kernel.op, toolchain.ck_include)
    built = build_compile_jobs([CompileJob(source, toolchain)])
    entry = built.results[source.kernel]
    if isinstance(entry, Failure):
        known = "" if built.spans else ". The store has this failure; `tilewright build` with --retry compiles again."
        raise _make_compile_error(source.name, arch, tuple(entry.facts.get("errors", ())), entry.log, known)
    path = entry.verify_file(CODE_OBJECT)
    kernels = inspect_object(path, arch, toolchain)
    inspection = Inspection(
        name=source.name,
        arch=arch.name,
        compiler=str(entry.facts["compiler"]),
        cpu_s=float(entry.facts["cost"]["cpu_s"]),
        wall_s=time.monotonic() - started,
        object_bytes=path.stat().st_size,
        kernels=kernels,
        from_store=not built.spans,
    )
    return InspectedBuild(inspection, path)


def inspect_object(path: Path, arch: Arch, toolchain: Toolchain) -> tuple[KernelInspection, ...]:
    """Inspect the kernels of an existing code object."""
    functions = read_functions(path, toolchain)
    code = disassemble(path, arch, toolchain)
    listed = read_resources(path, arch, toolchain)
    of_op = {each.name for each in select_op_kernels(listed)}
    found = []
    for resources in listed:
        if resources.name not in code:
            raise ToolchainError(f"{path} describes kernel {resources.name} but has no code for it")
        parts = find_reachable(resources.name, code, functions)
        instructions = [instruction for part in parts for instruction in code[part]]
        size = sum(functions[part].size for part in parts)
        found.append(_inspect_device_kernel(resources, instructions, size, arch, is_op=resources.name in of_op))
    return tuple(found)


def _inspect_device_kernel(
    resources: KernelResources, code: Sequence[DisassembledInstruction], code_bytes: int, arch: Arch, *, is_op: bool
) -> KernelInspection:
    matrix = count_matrix_instructions(code)
    return KernelInspection(
        resources=resources,
        occupancy=compute_occupancy(
            arch,
            vgprs=resources.vgprs,
            agprs=resources.agprs,
            sgprs=resources.sgprs,
            lds_bytes=resources.lds_bytes,
            block_threads=resources.max_block_threads,
        ),
        mix=count_by_class(code),
        matrix=matrix,
        code_bytes=code_bytes,
        is_op=bool(matrix) or is_op,
    )


def _make_compile_error(name: str, arch: Arch, errors: Sequence[str], log: str, advice: str = "") -> CompileError:
    first = errors[0] if errors else "the compiler printed no error"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return CompileError(f"{name} does not compile for {arch.name}: {first}{more}{advice}", log)
