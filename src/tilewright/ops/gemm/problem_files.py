"""Problems from files of other tools: aiter's tables, TunableOp of PyTorch, and commands of hipblaslt-bench.

BLAS libraries are column-major, so that a product of row-major matrices is computed transposed: their A is our B.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from tilewright.base.document_values import parse_digits
from tilewright.base.documents import read_text
from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.aiter_table import TableFamily
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_list import read_each

TORCH_TYPES = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}
_TORCH_NAMES = {name: called for called, name in TORCH_TYPES.items()}
BIAS: Mapping[str, Any] = {"num_d": 1, "num_row_d": 1, "elementwise": "MultiDAdd"}


def _read_flag(cells: Mapping[str, str], name: str) -> bool:
    return choose(f"value of {name}", cells[name], ("False", "True")) == "True"


def _read_row(cells: Mapping[str, str]) -> Problem:
    """The problem of a row: x (M×K) times weights (N×K), both row-major."""
    if _read_flag(cells, "scaleAB"):
        raise InvalidValueError("scaleAB is True: this op does not compute products with scales")
    _read_flag(cells, "bpreshuffle")  # a property of the kernel, not of the problem
    m, n, k = (parse_digits(name, cells[name]) for name in ("M", "N", "K"))
    given, stored = (TORCH_TYPES[choose(name, cells[name], TORCH_TYPES)] for name in ("dtype", "outdtype"))
    bias = BIAS if _read_flag(cells, "bias") else {}
    return Problem(m=m, n=n, k=k, dtype_a=given, dtype_b=given, dtype_c=stored, layout="rcr", **bias)


def _write_row(problem: Problem) -> dict[str, str]:
    bias = {name: getattr(problem, name) for name in BIAS}
    same: dict[str, Any] = {name: getattr(problem, name) for name in ("m", "n", "k", "dtype_a", "dtype_b", "dtype_c")}
    plain = Problem(**same, layout="rcr", **(BIAS if bias == BIAS else {}))
    if problem.dtype_a != problem.dtype_b or problem != plain:
        raise InvalidValueError(
            "a row of aiter's table is one packed product with layout rcr, one type of A and B, and at most a bias: "
            f"{problem} is not"
        )
    return {
        **{"M": str(problem.m), "N": str(problem.n), "K": str(problem.k), "bias": str(bias == BIAS)},
        "dtype": _TORCH_NAMES[choose("type of a row", problem.dtype_a, _TORCH_NAMES)],
        "outdtype": _TORCH_NAMES[choose("type of a row", problem.dtype_c, _TORCH_NAMES)],
        **{"scaleAB": "False", "bpreshuffle": "False"},
    }


def _describe_winner(kernel: Kernel, problem: Problem) -> dict[str, str]:
    config: Any = kernel.config
    shuffled = {"bpreshuffle": "True"} if config.variant == "preshuffle" else {}
    return {"solidx": "0", "splitK": str(problem.k_batch), "err_ratio": "0.0", **shuffled}


# aiter's bf16 GEMM: aiter/configs/bf16_tuned_gemm.csv and those of models. Older lists have no bpreshuffle.
AITER_TABLES = TableFamily(
    columns=("M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle"),
    results=("libtype", "solidx", "splitK", "us", "kernelName", "err_ratio", "tflops", "bw"),
    file_words=("bf16", "gemm"),
    read=_read_row,
    write=_write_row,
    describe=_describe_winner,
    defaults={"bpreshuffle": "False"},
)


def _transpose(sizes: Mapping[str, int], trans_a: str, trans_b: str, types: Mapping[str, Any], batch: int) -> Problem:
    """The problem of a column-major product D (m×n) = op(A) · op(B), as its row-major transposed."""
    layout = ("c" if trans_b == "t" else "r") + ("c" if trans_a == "t" else "r") + "r"
    strides = {"stride_a": sizes["ldb"], "stride_b": sizes["lda"], "stride_c": sizes["ldc"]}
    fields: dict[str, Any] = {**strides, **types, "batch": batch, "layout": layout}
    return Problem(m=sizes["n"], n=sizes["m"], k=sizes["k"], **fields)


_TUNABLE = re.compile(
    r"(?P<trans>[nt][nt])_(?P<m>\d+)_(?P<n>\d+)_(?P<k>\d+)(?:_B_(?P<batch>\d+))?"
    r"_ld_(?P<lda>\d+)_(?P<ldb>\d+)_(?P<ldc>\d+)(?P<bias>_bias_\w+)?"
)
TUNABLE_OPS = ("GemmTunableOp", "GemmStridedBatchedTunableOp", "GemmAndBiasTunableOp")
TUNABLE_TYPES = {"BFloat16": "bf16", "Half": "fp16", "float": "fp32"}


def read_tunableop(path: Path) -> list[Any]:
    """Read the results or the untuned problems of PyTorch's TunableOp. Lines with a validator are skipped."""
    lines = [(f"line {number}", line) for number, line in enumerate(read_text(path).splitlines(), 1)]
    kept = [(where, line) for where, line in lines if line.strip() and not line.startswith("Validator,")]
    return list(dict.fromkeys(read_each(path, kept, lambda line: [_read_tunable_line(line)])))


def _read_tunable_line(line: str) -> Problem:
    called, _, rest = line.partition(",")
    op, kind, _ = (*called.split("_", 2), "", "")[:3]
    choose("operator of TunableOp", op, TUNABLE_OPS)
    dtype = TUNABLE_TYPES[choose("type of TunableOp", kind, TUNABLE_TYPES)]
    signature = rest.partition(",")[0]
    found = _TUNABLE.fullmatch(signature)
    if found is None:
        example = "tn_512_64_4096_ld_4096_4096_512"
        raise InvalidValueError(f"{signature!r} is not the signature of a product, such as {example}")
    sizes = {name: int(found[name]) for name in ("m", "n", "k", "lda", "ldb", "ldc")}
    bias = BIAS if op == "GemmAndBiasTunableOp" else {}
    trans = found["trans"]
    return _transpose(sizes, trans[0], trans[1], {"dtype": dtype, **bias}, int(found["batch"] or 1))


BENCH = "hipblaslt-bench"
BENCH_TYPES = {
    **{"bf16_r": "bf16", "f16_r": "fp16", "f32_r": "fp32"},
    **{"f8_r": "fp8", "bf8_r": "bf8", "f8_fnuz_r": "fp8", "bf8_fnuz_r": "bf8", "i8_r": "int8", "i32_r": "int32"},
}
_SIZES = {"-m": "m", "-n": "n", "-k": "k", "--lda": "lda", "--ldb": "ldb", "--ldc": "ldc"}
# Options that request something else than a plain product, unless they have these values.
_PLAIN = {"--scaleA": "0", "--scaleB": "0", "--activation_type": "none"}


def read_hipblaslt_bench(path: Path) -> list[Any]:
    """Read commands of hipblaslt-bench, as typed or as logged with HIPBLASLT_LOG_MASK=32. Other lines are skipped."""
    lines = enumerate(read_text(path).splitlines(), 1)
    kept = [(f"line {number}", line[line.index(BENCH) :]) for number, line in lines if BENCH in line]
    return list(dict.fromkeys(read_each(path, kept, lambda line: [_read_bench_line(line)])))


def _read_bench_line(line: str) -> Problem:
    program, *words = shlex.split(line)
    choose("program", PurePath(program).name, (BENCH,))
    options = _read_options(words)
    for name, plain in _PLAIN.items():
        if options.get(name, plain) != plain:
            raise InvalidValueError(f"{name} is {options[name]}, only {plain} is a problem of this op")
    needed = ("-m", "-n", "-k")
    missing = [name for name in needed if name not in options]
    if missing:
        raise InvalidValueError(f"has no {', '.join(missing)}")
    trans_a, trans_b = (options.get(name, "N").lower() for name in ("--transA", "--transB"))
    m, n, k = (parse_digits(name, options[name]) for name in needed)
    packed = {"lda": k if trans_a == "t" else m, "ldb": n if trans_b == "t" else k, "ldc": m}
    given = {short: parse_digits(name, options[name]) for name, short in _SIZES.items() if name in options}
    types = {
        ours: BENCH_TYPES[choose(name, options.get(name, "f32_r"), BENCH_TYPES)]
        for ours, name in (("dtype_a", "--b_type"), ("dtype_b", "--a_type"), ("dtype_c", "--d_type"))
    }
    bias = BIAS if "--bias_vector" in options else {}
    batch = parse_digits("--batch_count", options.get("--batch_count", "1"))
    return _transpose({**packed, **given}, trans_a, trans_b, {**types, **bias}, batch)


def _read_options(words: Sequence[str]) -> dict[str, str]:
    """Options by name; one without a value is a flag. A negative number is a value."""
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("-") and not re.fullmatch(r"-[\d.]+", word):
            name = word
            found[name] = ""
        elif name:
            found[name] = word
            name = ""
    return found
