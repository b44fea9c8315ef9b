"""Compile a kernel of both generators, and compare the instructions of their device kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from tests.proof.parity.unit import Unit, join_folders, join_sources
from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.base.errors import ToolchainError
from tilewright.building.code_object import (
    KernelResources,
    read_disassembly,
    read_functions,
    read_resources,
    select_op_kernels,
)
from tilewright.building.compile import CompileOutcome, compile_device
from tilewright.building.compile_job import CODE_OBJECT, make_compile_job
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.toolchain import Toolchain
from tilewright.ops.kernel import Kernel

_WORK = re.compile(r"buffer_|global_|flat_|scratch_|ds_|s_load_|v_.*(mfma|wmma|_f16|_bf16|_f32|_f64|_fp8|_bf8|_i8)")
Instructions = tuple[tuple[str, tuple[int, ...]], ...]  # text and words of each


@dataclass(frozen=True)
class DeviceKernel:
    """One device kernel: its code, and its registers and LDS."""

    symbol: str
    code: Instructions
    resources: tuple[int, ...]


@dataclass(frozen=True)
class Comparison:
    """The device kernels of one config by both generators."""

    ours: int  # device kernels
    theirs: int
    equal: int  # of ours, with the same instructions, registers and LDS as one of theirs
    same_symbol: int  # of the equal ones, with the same C++ type
    instructions: int  # in all of ours
    first_difference: str  # `ours / theirs`; empty if all are equal
    mix: str  # the instructions that differ in number
    same_work: bool = True  # whether they load, store and compute with as many instructions of each name

    @property
    def is_equal(self) -> bool:
        """Whether every device kernel of ours is one of theirs."""
        return self.equal == self.ours


def compare(units: Sequence[Unit], toolchain: Toolchain, store: Store, work: Path) -> list[Comparison]:
    """Compile the kernels of a group by both generators, and compare every device kernel of ours with the
    closest of theirs. CK's kernels are compiled together, which costs the compiler least."""
    arch = archs.load(units[0].kernel.arch)
    include = tuple(flag for folder in join_folders(units) for flag in ("-I", str(folder)))
    flags = (*include, *units[0].flags)
    outcome = compile_device(join_sources(units), arch, toolchain, work / "theirs.co", extra_flags=flags)
    theirs = read_device_kernels(_require(outcome, units[0].name), arch, toolchain)
    ours = find_device_kernels([unit.kernel for unit in units], arch, toolchain, store, work)
    return [compare_code(kernels, theirs) for kernels in ours]


def find_device_kernels(
    kernels: Sequence[Kernel], arch: Arch, toolchain: Toolchain, store: Store, work: Path
) -> list[list[DeviceKernel]]:
    """The device kernels of each of our kernels: from a store, else all others are compiled together if each of them
    has one device kernel, which are then in their order. A single kernel may have several."""
    jobs = [make_compile_job(kernel, toolchain) for kernel in kernels]
    built = {job.key: entry for job in jobs if isinstance(entry := store.get(job.key), Artifact)}
    found = {key: read_device_kernels(entry.verify_file(CODE_OBJECT), arch, toolchain) for key, entry in built.items()}
    rest = [job for job in jobs if job.key not in found]
    if rest:
        files = {name: text for job in rest for name, text in job.source.files.items()}
        text = "\n".join(job.source.text for job in rest)
        outcome = compile_device(text, arch, toolchain, work / "ours.co", files=files)
        made = read_device_kernels(_require(outcome, rest[0].kernel.slug), arch, toolchain)
        if len(rest) > 1 and len(made) != len(rest):
            raise ToolchainError(f"{len(rest)} kernels have {len(made)} device kernels: build them first, one by one")
        parts = [made] if len(rest) == 1 else [[device] for device in made]
        found |= {job.key: part for job, part in zip(rest, parts, strict=True)}
    return [found[job.key] for job in jobs]


def _require(outcome: CompileOutcome, name: str) -> Path:
    if outcome.path is None:
        raise ToolchainError(f"{name} does not compile: {'; '.join(outcome.errors[:3]) or outcome.log[-2000:]}")
    return outcome.path


def read_device_kernels(path: Path, arch: Arch, toolchain: Toolchain) -> list[DeviceKernel]:
    """Read the kernels of a code object that compute the op."""
    functions = read_functions(path, toolchain)
    lines = read_disassembly(path, arch, toolchain.objdump)
    found = []
    for kernel in select_op_kernels(read_resources(path, arch, toolchain)):
        function = functions[kernel.name]
        inside = range(function.address, function.address + function.size)
        code = tuple((line.text, line.words) for line in lines if line.address in inside)
        found.append(DeviceKernel(kernel.name, _drop_distances(code), _list_resources(kernel)))
    return found


def _drop_distances(code: Instructions) -> Instructions:
    """Leave out how far constants are away: after s_getpc_b64, a distance is added that follows from other kernels."""
    kept = list(code)
    for place, (text, _) in enumerate(code):
        if text.startswith("s_getpc_b64"):
            for number in range(place + 1, min(place + 3, len(code))):
                mnemonic = code[number][0].split()[0]
                if mnemonic in ("s_add_u32", "s_addc_u32"):
                    kept[number] = (f"{mnemonic} distance", code[number][1][:1])
    return tuple(kept)


def _list_resources(kernel: KernelResources) -> tuple[int, ...]:
    return kernel.vgprs, kernel.agprs, kernel.sgprs, kernel.scratch_bytes, kernel.lds_bytes, kernel.max_block_threads


def compare_code(ours: Sequence[DeviceKernel], theirs: Sequence[DeviceKernel]) -> Comparison:
    """Compare the device kernels of both. Words decide: they contain registers, constants and branch distances."""
    known = {(kernel.code, kernel.resources) for kernel in theirs}
    symbols = {kernel.symbol: kernel for kernel in theirs}
    equal = [kernel for kernel in ours if (kernel.code, kernel.resources) in known]
    different = [kernel for kernel in ours if (kernel.code, kernel.resources) not in known]
    others = [
        symbols.get(kernel.symbol) or min(theirs, key=lambda each: _count_differences(kernel.code, each.code))
        for kernel in different
    ]
    first, mix = "", ""
    if different:
        first, mix = find_first_difference(different[0], others[0]), describe_mix(different[0].code, others[0].code)
    return Comparison(
        ours=len(ours),
        theirs=len(theirs),
        equal=len(equal),
        same_symbol=sum(kernel.symbol in symbols and symbols[kernel.symbol].code == kernel.code for kernel in equal),
        instructions=sum(len(kernel.code) for kernel in ours),
        first_difference=first,
        mix=mix,
        same_work=all(count_work(a.code) == count_work(b.code) for a, b in zip(different, others, strict=True)),
    )


def _count_mnemonics(code: Instructions) -> Counter[str]:
    return Counter(text.split()[0] for text, _ in code)


def count_work(code: Instructions) -> Counter[str]:
    """Count the instructions that access memory or compute with floats and matrices, without integers and moves."""
    return Counter({name: count for name, count in _count_mnemonics(code).items() if _WORK.match(name)})


def _count_differences(ours: Instructions, theirs: Instructions) -> int:
    a, b = _count_mnemonics(ours), _count_mnemonics(theirs)
    return sum((a - b).values()) + sum((b - a).values())


def find_first_difference(ours: DeviceKernel, theirs: DeviceKernel) -> str:
    """The first instruction that differs, or the registers and LDS if no instruction does."""
    pairs = zip_longest(ours.code, theirs.code, fillvalue=("the end", ()))
    different = next((f"{a[0]} / {b[0]}" for a, b in pairs if a != b), "")
    return different or f"registers and LDS {ours.resources} / {theirs.resources}"


def describe_mix(ours: Instructions, theirs: Instructions, most: int = 4) -> str:
    """`buffer_store_dword +4, v_add_u32 -2`: the largest differences in the number of an instruction."""
    a, b = _count_mnemonics(ours), _count_mnemonics(theirs)
    numbers = {name: a[name] - b[name] for name in a | b if a[name] != b[name]}
    ordered = sorted(numbers.items(), key=lambda item: (-abs(item[1]), item[0]))[:most]
    return ", ".join(f"{name} {number:+d}" for name, number in ordered) or "the same instructions in another order"
