"""The rules of norm kernels, N1xx, and the problems that they compute, S5xx: the same checks as `supports`."""

from __future__ import annotations

import sys

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.norm.config import COMMON_FIELDS, QUANTIZED_DTYPES, Config, count_threads
from tilewright.ops.norm.problem import STRIDES, Problem
from tilewright.ops.rule import Rejection, collect_rules
from tilewright.ops.rule_forms import RuleGroup, divides, equal, examples, one_of, same_fields

MAX_BYTES = 2**32 - 1  # the size of a buffer descriptor has 32 bits (make_wave_buffer_resource)
MAX_INDEX = 2**31 - 1  # CK Tile's index_t is a 32-bit integer
LONGEST_STORE = 8  # elements of more than 8 bits, in core/arch/amd_buffer_addressing_builtins.hpp
MOST_HELD = 64  # of the 256 registers of a lane, for four values of each element
_NORM = RuleGroup()


def count_most_elements(config: Config) -> int:
    """The most elements of a matrix, with the gaps between rows."""
    return min(MAX_INDEX, MAX_BYTES // find_dtype(config.dtype).storage_bytes)


@examples(good={"quant": "dynamic", "dtype_y": "int8"}, bad={"dtype_y": "int8"})
@_NORM.rule("N101", "type-of-y", "tilewright", ("dtype", "dtype_y", "quant"))
def check_type_of_y(config: Config, arch: Arch) -> Rejection | None:
    """Quantised rows are int8 or fp8; others have the type of x.

    Why: an 8-bit y without a scale would lose most of its values.

    Fix: choose dtype_y by quant.
    """
    known = (config.dtype,) if config.quant == "none" else QUANTIZED_DTYPES
    if config.dtype_y in known:
        return None
    return Rejection(
        f"y is {config.dtype_y}, with quant {config.quant} it is {' or '.join(known)}", "dtype_y", known[0]
    )


SMOOTHQUANT = equal(
    "N102",
    "smoothquant-alone",
    "smoothquant has quant smooth, and neither a residual nor saved statistics.",
    {"quant": "smooth", "residual": "none", "save": False},
    "{name} is {value}, {kind} has {wanted}",
    when={"kind": ("smoothquant",)},
    enforced_by="tilewright",
    good={"kind": "smoothquant", "quant": "smooth", "dtype_y": "int8"},
    bad={"kind": "smoothquant", "quant": "smooth", "dtype_y": "int8", "save": True},
    why="CK Tile's kernel multiplies x by the smooth factors and quantises it, nothing else.",
    fix="set quant to smooth, residual to none and save to false.",
)
PASSES = equal(
    "N103",
    "quantised-in-two-passes",
    "RMSNorm and LayerNorm with quantisation take one pass.",
    {"quant": "none"},
    "{kind} with quant {value} takes one pass",
    when={"kind": ("rms", "layer"), "two_pass": (True,)},
    enforced_by="compiler",
    good={"two_pass": True},
    bad={"two_pass": True, "quant": "dynamic", "dtype_y": "int8"},
    why="the scale of a row is known after its last element, so that a third pass would be needed.",
    fix="hold whole rows, with more threads or more columns, or quantise with smoothquant afterwards.",
)
COLUMNS = divides(
    "N111",
    "row-not-divided",
    "threads × vector",
    "columns",
    numbers=lambda config: {"columns": config.columns, "threads × vector": config.threads * config.vector},
    reads=("columns", "threads", "vector"),
    enforced_by="compiler",
    good={"columns": 4096},
    bad={"columns": 1000},
    why="every thread holds the same number of vectors.",
    fix="change columns, threads or vector.",
)
VECTOR = one_of(
    "N114",
    "vector-not-power-of-two",
    "`vector` is a power of two.",
    {"vector": (1, 2, 4, 8, 16)},
    "{name} is {value}, must be one of {allowed}",
    nearest=2,
    enforced_by="compiler",
    good={"vector": 4},
    bad={"columns": 768, "vector": 3},
    why="loads have 1, 2, 4, 8 or 16 bytes.",
    fix="use the next smaller power of two.",
)


@examples(good={"rows": 8}, bad={"rows": 16})
@_NORM.rule("N110", "work-group-too-large", "device", ("rows", "threads"))
def check_threads(config: Config, arch: Arch) -> Rejection | None:
    """A work-group has at most 1024 threads.

    Why: no GPU launches more. A row takes at least one wave.

    Fix: use fewer rows, or fewer threads for each.
    """
    threads, most = count_threads(config, arch), arch.compute.max_block_threads
    if threads <= most:
        return None
    rows = max(1, most * config.rows // threads)
    return Rejection(f"{config.rows} rows take {threads} threads, at most {most}", "rows", rows)


@examples(good={"kind": "layer", "columns": 1536, "threads": 192}, bad={"columns": 1536, "threads": 192})
@_NORM.rule("N112", "waves-of-a-row", "compiler", ("kind", "quant", "threads"))
def check_waves(config: Config, arch: Arch) -> Rejection | None:
    """The threads of a row are a part of a wave, one wave, or several; several are a power of two.

    Why: lanes and waves are combined in pairs. LayerNorm alone combines its waves one after the other.

    Fix: use a power of two of threads.
    """
    threads, wave = config.threads, arch.wave_size
    if wave % threads != 0 and threads % wave != 0:
        return Rejection(f"{threads} threads are neither a part of a wave of {wave} nor whole waves", "threads", wave)
    waves = max(1, threads // wave)
    if waves & (waves - 1) == 0 or (config.kind == "layer" and config.quant == "none"):
        return None
    return Rejection(f"{waves} waves share a row, must be a power of two", "threads", wave)


@examples(good={"rows": 2, "columns": 256, "threads": 32}, bad={"rows": 1, "columns": 256, "threads": 32})
@_NORM.rule("N113", "wave-not-filled", "compiler", ("rows", "threads"))
def check_rows(config: Config, arch: Arch) -> Rejection | None:
    """rows × threads is a multiple of the wave size.

    Why: CK Tile divides the threads of a work-group into waves.

    Fix: use more rows or more threads.
    """
    if config.rows * config.threads % arch.wave_size == 0:
        return None
    rows = max(1, arch.wave_size // config.threads)
    product = f"{config.rows} rows × {config.threads} threads"
    return Rejection(f"{product} is not a multiple of {arch.wave_size}, the wave size", "rows", rows)


@examples(
    good={"dtype": "fp32", "dtype_y": "int8", "quant": "dynamic", "columns": 2048, "vector": 16},
    bad={"columns": 2048, "vector": 16},
)
@_NORM.rule("N115", "vector-too-long", "device", ("dtype", "dtype_y", "residual", "vector"))
def check_vector_length(config: Config, arch: Arch) -> Rejection | None:
    """y, and the sum if it is stored, have vectors of at most 8 elements, or 16 of an 8-bit type.

    Why: `amd_buffer_store_impl` has no code for 16 elements of fp32, fp16 or bf16: the kernel compiles, and writes
    nothing. Longer vectors of x alone are right.

    Fix: use a smaller vector.
    """
    stored = (config.dtype_y, config.dtype) if config.residual == "store" else (config.dtype_y,)
    widest = max(stored, key=lambda name: find_dtype(name).storage_bytes)
    longest = 16 if find_dtype(widest).storage_bytes == 1 else LONGEST_STORE
    if config.vector <= longest:
        return None
    return Rejection(
        f"a vector of {widest} has {config.vector} elements, at most {longest} are stored", "vector", longest
    )


@examples(good={"columns": 8192}, bad={"columns": 16384})
@_NORM.rule("N116", "thread-holds-too-much", "tilewright", ("columns", "threads"))
def check_held(config: Config, arch: Arch) -> Rejection | None:
    """A thread holds at most 64 elements of a row.

    Why: x, weight, bias and the result are in registers, in fp32; more would be moved to memory.

    Fix: use more threads, or two passes.
    """
    most = MOST_HELD * config.threads
    if config.columns <= most:
        return None
    return Rejection(f"{config.threads} threads hold at most {most} elements, not {config.columns}", "columns", most)


SAME_PROBLEM = same_fields(
    "S501",
    "other-problem",
    "Kind, types, residual, quantisation and saved statistics of problem and kernel must be the same.",
    COMMON_FIELDS,
    enforced_by="tilewright",
    good={},
    bad={"problem": {"dtype": "bf16", "dtype_y": "bf16"}},
    why="they are compile-time values of the kernel.",
    fix="choose a kernel with the problem's values.",
)


@examples(good={"columns": 512, "threads": 64, "two_pass": True}, bad={"pad": True, "problem": {"columns": 8192}})
@_NORM.rule("S502", "row-too-long", "supports", ("columns", "two_pass"))
def check_length(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """A kernel of one pass holds a whole row.

    Why: elements beyond `columns` would be ignored.

    Fix: use a kernel with two_pass, or with more columns.
    """
    if config.two_pass or problem.columns <= config.columns:
        return None
    return Rejection(f"a row has {problem.columns} elements, the kernel holds {config.columns}", "two_pass", True)


@examples(good={"pad": True, "problem": {"columns": 1000}}, bad={"problem": {"columns": 1000}})
@_NORM.rule("S503", "columns-not-tiled", "supports", ("columns", "vector", "pad"))
def check_multiple(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Rows are a multiple of `columns`, with pad of the vector.

    Why: without pad the end of a row is not checked; with it, vector by vector.

    Fix: use a kernel with pad, or with a smaller vector.
    """
    step = config.vector if config.pad else config.columns
    if problem.columns % step == 0:
        return None
    return Rejection(f"a row has {problem.columns} elements, must be a multiple of {step}", "pad", True)


@examples(good={"problem": {"stride_x": 1032}}, bad={"problem": {"stride_x": 1030}})
@_NORM.rule("S504", "unsuitable-stride", "supports", ("dtype", "vector"))
def check_strides(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Strides are a multiple of the vector, and no matrix exceeds 2³¹ - 1 elements and 4 GiB.

    Why: every row is loaded and stored in whole vectors, and CK Tile computes offsets with 32 bits.

    Fix: use a kernel with a smaller vector, copy the tensor, or divide the rows among several calls.
    """
    most = count_most_elements(config)
    for name in STRIDES.values():
        stride = getattr(problem, name)
        if stride % config.vector != 0:
            return Rejection(f"{name} is {stride}, must be a multiple of vector {config.vector}", "vector", 1)
        if stride > most // problem.rows:
            return Rejection(f"{problem.rows} rows with {name} {stride} exceed {most} elements")
    return None


_ALL = collect_rules(sys.modules[__name__])
RULES = tuple(each for each in _ALL if each.code.startswith("N"))
FIT_RULES = tuple(each for each in _ALL if each.code.startswith("S"))
