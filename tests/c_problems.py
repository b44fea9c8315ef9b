"""A library of stand-in kernels with the problems, fit rules and rankings of real ones, for C and C++ without a GPU.

Everything is generated and compiled as in a pack; only the kernels' own functions are a few lines of C.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from c_ranking import kernels_for, random_problem
from tilewright import arch as archs
from tilewright.building.flags import HIP_FORWARD
from tilewright.building.pack.library import RankOrder, TunedKernel, read_headers, render_table
from tilewright.building.pack.problems import render_problem_source
from tilewright.ops import find_op
from tilewright.ops.call_struct import WORKSPACE
from tilewright.ops.in_c.problem_struct import MAX_EXTENTS, ProblemStruct
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import is_legal
from tilewright.select.c_source import render_rank_sources

GPU = "gfx942"
OPS = ("fmha", "gemm", "gemm_quant", "grouped_conv", "grouped_gemm", "moe_sorting", "norm", "topk")
UNORDERED = ("gemm", "gemm_quant", "grouped_gemm", "moe_sorting", "topk")
KERNELS = 60  # of each op
SEED = 11  # of the problems that plans are compared for
TUNED = 100  # of them, at most, have measured times
FLAGS = ("-std=c11", "-O0", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")
# Supports everything, and remembers nothing: `run` writes its number to the address in its first tensor.
STUB = """
int {s}_supports(const void* a) {{ (void)a; return 0; }}
int {s}_workspace_size(const void* a, uint64_t* bytes) {{ (void)a; *bytes = {workspace}; return 0; }}
int {s}_run(const void* a, void* stream) {{ return launch({n}, a, stream); }}
const char* {s}_message(void) {{ return "no message"; }}
"""
STUBS = """
#include <stdint.h>
#include <stdio.h>
static int launch(int number, const void* args, void* stream)
{
    FILE* to = stream;
    if(to == NULL)
        return 4;
    fprintf(to, "%d", number);
    for(const uint64_t* word = args; word < (const uint64_t*)args + *(const uint64_t*)args / 8; ++word)
        fprintf(to, " %llx", (unsigned long long)*word);
    fprintf(to, "\\n");
    return 0;
}
"""


def count_workspace_bytes(kernels: Sequence[Kernel], number: int) -> int:
    """The workspace of a stand-in: 0, 100 or 200 bytes, if calls of its op have one."""
    execution = find_op(kernels[number].op).execution
    assert execution is not None and execution.call is not None
    has_workspace = WORKSPACE[0] in execution.call.members
    return number % 3 * 100 if has_workspace else 0


class CExtents(ctypes.Structure):
    """`tw_extents`."""

    _fields_ = (("count", ctypes.c_int64), ("values", ctypes.c_int64 * MAX_EXTENTS))


class CTensor(ctypes.Structure):
    """`tw_tensor`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_uint64),
        ("shape", ctypes.c_int64 * 8),
        ("strides", ctypes.c_int64 * 8),
        ("output", ctypes.c_int32),
        ("updated", ctypes.c_int32),
        ("bytes", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
    )


class CReason(ctypes.Structure):
    """`tw_reason`."""

    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("code", "rule", "field", "advice")),
        ("message", ctypes.c_char * 512),
    )


_TYPES = {"int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "double": ctypes.c_double, "tw_extents": CExtents}


@functools.cache
def struct_of(op: str) -> ProblemStruct:
    return ProblemStruct(find_op(op).problem_type)


@functools.cache
def c_type_of(op: str) -> Any:
    """The ctypes class of an op's problems."""
    members = struct_of(op).members.values()
    return type(f"tw_{op}_problem", (ctypes.Structure,), {"_fields_": [(m.name, _TYPES[m.c_type]) for m in members]})


def to_c(op: str, values: Mapping[str, Any]) -> Any:
    """The struct of a problem with these fields, and the defaults of the others."""
    made = c_type_of(op)()
    for member in struct_of(op).members.values():
        value = values.get(member.name, member.default)
        if member.is_extents:
            extents = getattr(made, member.name)
            extents.count = len(value)
            extents.values[: len(value)] = value
        elif isinstance(value, str):
            setattr(made, member.name, member.names.index(value) + 1)
        else:
            setattr(made, member.name, value)
    return made


def whole_fields(problem: Any) -> dict[str, Any]:
    return {field.name: getattr(problem, field.name) for field in dataclasses.fields(problem)}


@dataclass(frozen=True)
class StandIns:
    """The compiled library: its kernels in the order of its table."""

    folder: Path
    file: Path
    kernels: tuple[Kernel, ...]
    order: RankOrder
    library: ctypes.CDLL

    def call(self, op: str, name: str, *arguments: Any) -> int:
        status: int = self.library[f"tw_{op}_problem_{name}"](*arguments)
        return status

    def complete(self, op: str, values: Mapping[str, Any]) -> tuple[Any, str]:
        """The completed struct of a problem, or the message that rejects it."""
        return self.complete_struct(op, to_c(op, values))

    def complete_struct(self, op: str, made: Any) -> tuple[Any, str]:
        message = ctypes.create_string_buffer(512)
        status = self.call(op, "complete", ctypes.byref(made), message, ctypes.c_uint64(512))
        assert (status == 0) == (message.value == b""), (status, message.value)
        return made, message.value.decode()

    def own(self, op: str) -> list[int]:
        return [number for number, kernel in enumerate(self.kernels) if kernel.op == op]


def list_kernels() -> list[Kernel]:
    found = [kernel for op in OPS for kernel in kernels_for(find_op(op), GPU, KERNELS)]
    return sorted(found, key=lambda kernel: kernel.slug)


def build_stand_ins(folder: Path) -> StandIns:
    kernels = list_kernels()
    arch = archs.load(GPU)
    for path, text in read_headers(OPS).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    order = make_order(kernels)
    sources = {"table": render_table("stand_ins", GPU, kernels, OPS, order)}
    sources["stubs"] = STUBS + "".join(
        STUB.format(s=kernel.symbol, n=n, workspace=count_workspace_bytes(kernels, n))
        for n, kernel in enumerate(kernels)
    )
    ranks = render_rank_sources(arch, kernels, bundles=())
    for op in OPS:
        own = [kernel for kernel in kernels if kernel.op == op]
        sources[f"problem_{op}"] = render_problem_source(op, GPU, own, kernels.index(own[0]))
        sources[f"rank_{op}"] = ranks[op]
    for name, text in sources.items():
        (folder / f"{name}.c").write_text(text)
    files = [str(folder / f"{name}.c") for name in sources]
    library = folder / "libstand_ins_gfx942.so"
    words = ("cc", *FLAGS, f"-I{folder}/include", "-shared", *files, str(HIP_FORWARD), "-o", str(library))
    done = subprocess.run([*words, "-lm", "-ldl", "-lpthread"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return StandIns(folder, library, tuple(kernels), order, ctypes.CDLL(str(library)))


def make_order(kernels: Sequence[Kernel]) -> RankOrder:
    """Priorities for some kernels of most ops, and measured times for some of the first problems of each op.

    Of the kernels of the others, nearly all support every problem, so that one with a priority would always be first.
    """
    arch = archs.load(GPU)
    priorities = {kernel: 1 for kernel in kernels[::7] if kernel.op not in UNORDERED}
    tuned = []
    for op in map(find_op, OPS):
        own = [kernel for kernel in kernels if kernel.op == op.name]
        assert op.execution is not None
        for problem in random_problems(op.name, kernels, TUNED, SEED):
            stage = op.execution.next_stage(problem, ())
            able = [kernel for kernel in own if is_legal(op.fit_rules, kernel.config, stage, arch)]
            if able:
                tuned.append(TunedKernel(able[-1], stage, 1.25))
    return RankOrder(priorities, tuned)


def random_problems(op: str, kernels: Sequence[Kernel], count: int, seed: int) -> Iterator[Any]:
    """Problems for kernels of an op, also whole ones that take several kernels."""
    random = np.random.default_rng(seed)
    own = [kernel for kernel in kernels if kernel.op == op]
    # Attention's kernels for stages, and the problems that they are a part of.
    wholes = {"dq_dk_dv": "backward", "splitkv": "forward", "pagedkv": "forward"}
    staged = [kernel for kernel in own if getattr(kernel.config, "family", "") in wholes]
    for _ in range(count):
        drawn = staged if staged and random.random() < 0.4 else own
        problem = random_problem(find_op(op), drawn[random.integers(len(drawn))].config, random)
        if drawn is staged and random.random() < 0.9:
            changes: dict[str, Any] = {"family": wholes[problem.family], "dq_parts": 1}
            problem = dataclasses.replace(problem, **changes)
        yield problem
