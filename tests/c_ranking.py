"""Compile rankings with the system's C compiler, call them from Python, and draw random problems for them."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from built_kernels import in_tier_ci
from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.building.pack.library import read_headers
from tilewright.ops import find_op, gemm
from tilewright.ops.cost_model.cost import Facts
from tilewright.ops.grouped_gemm.problem import RAGGED
from tilewright.ops.kernel import Kernel
from tilewright.ops.norm.config import COMMON_FIELDS
from tilewright.ops.op import Op
from tilewright.select.bundle import LOG_RATIO, Bundle
from tilewright.select.c_source import render_rank_sources
from tilewright.select.forest import read_forest

FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
# Ways into the static functions of a ranking: rows of numbers as arrays of doubles.
ENTRIES = """
void estimates(const double* p, int64_t ps, const double* k, int64_t ks, int64_t rows, double* us)
{{
    for(int64_t i = 0; i < rows; ++i)
        us[i] = estimate((const problem_numbers*)(p + i * ps), (const kernel_numbers*)(k + i * ks));
}}
void numbers_in_c(const void* args, int64_t kernel, double* numbers)
{{
    *(problem_numbers*)numbers = numbers_of[kind_of[kernel]](args);
}}
"""
SEEN = """
void features_in_c(const double* p, int64_t ps, const double* k, int64_t ks, int64_t rows, double* out)
{{
    for(int64_t i = 0; i < rows; ++i)
        see((const problem_numbers*)(p + i * ps), (const kernel_numbers*)(k + i * ks), out + i * FEATURES);
}}
void predictions(double* rows, int64_t count, double* out)
{{
    for(int64_t i = 0; i < count; i += RERANKED)
        predict(&bundles[0], (double (*)[FEATURES])(rows + i * FEATURES),
                count - i < RERANKED ? (int)(count - i) : RERANKED, out + i);
}}
"""


# GEMM kernels that support nearly everything, so that there are many to choose from.
PADDED: dict[str, Any] = {
    "variant": "standard",
    "dtype": "fp16",
    "layout": "rcr",
    "block": {"m": [64, 128, 256], "n": [64, 128, 256], "k": [32, 64]},
    "waves": [(2, 2, 1), (4, 1, 1)],
    "mma": [(32, 32, 16), (16, 16, 16)],
    "pipeline": ["compv3", "compv4", "mem"],
    "scheduler": ["intrawave", "interwave"],
    "epilogue": ["cshuffle"],
    **dict.fromkeys(("pad_m", "pad_n", "pad_k"), True),
}


class Ranking:
    """The compiled ranking of kernels of one op."""

    def __init__(self, folder: Path, arch: Arch, kernels: Sequence[Kernel], bundles: Sequence[Bundle] = ()) -> None:
        (name,) = {kernel.op for kernel in kernels}
        self.op, self.kernels = find_op(name), kernels
        source = render_rank_sources(arch, kernels, bundles=bundles)[name]
        entries = (ENTRIES + (SEEN if bundles else "")).format(prefix=f"tw_{name}")
        self.library = compiled(folder, source + entries, [name])
        declared = source.partition("typedef struct kernel_numbers {\n    double ")[2].partition(";")[0]
        self.read = declared.split(", ")  # the numbers of kernels that it holds

    def rank(self, problem: Any, places: Sequence[int]) -> tuple[list[int], list[float]]:
        """Kernels best first, and their times."""
        numbers = np.array(places, np.uint64)
        us = np.zeros(len(places))
        assert self.op.execution is not None
        args = self.op.execution.arguments(problem)
        rank = self.library[f"tw_{self.op.name}_rank"]
        status = rank(ctypes.byref(args), address(numbers), ctypes.c_uint64(len(places)), address(us))
        assert status == 0, f"status {status}"
        return numbers.tolist(), us.tolist()


def compiled(folder: Path, source: str, ops: Sequence[str]) -> ctypes.CDLL:
    """A C source as a loaded library."""
    for path, text in read_headers(ops).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "rank.c").write_text(source)
    words = ["cc", *FLAGS, f"-I{folder}/include", str(folder / "rank.c"), "-o", str(folder / "rank.so"), "-lm"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(folder / "rank.so"))


def address(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def kernels_for(op: Op, gpu: str, most: int = 0) -> list[Kernel]:
    """Kernels of the op, spread over its shipped sets and, where these are few, a space; sorted as in a pack.

    At most `most`, or 500; in CI 200, because the trials of attention's kernels take long to make.
    """
    most = most or (200 if in_tier_ci() else 500)
    found = {kernel for each in op.sets().values() if gpu in each.archs for kernel in each.kernels(gpu)}
    if op.name == "gemm":
        found |= set(gemm.space(**PADDED).iter(gpu))
    listed = sorted(found, key=lambda kernel: kernel.slug)
    return [listed[place * len(listed) // most] for place in range(most)] if len(listed) > most else listed


def _random_rows(op: Op, config: Any, size: Callable[[int, int], int]) -> Any:
    """Rows of a norm, logits of tokens, or the experts of tokens."""
    if op.name == "norm":
        common = {name: getattr(config, name) for name in COMMON_FIELDS}
        return op.problem_type(**common, rows=size(1, 20_000), columns=size(1, 30_000))
    experts = size(1, 512)
    sizes = {"experts": experts, "k": min(size(1, 16), experts)}
    if op.name == "topk":
        return op.problem_type(**sizes, rows=size(1, 20_000), activation=config.activation, dtype=config.dtype)
    flags = {"masked": config.masked, "keep_empty": config.keep_empty}
    return op.problem_type(**sizes, **flags, tokens=size(1, 20_000), unit=size(1, 64))


def random_problem(op: Op, config: Any, random: np.random.Generator) -> Any:
    """A problem of the types and layouts of a config; half of its sizes are round, so that kernels fit."""

    def size(least: int, most: int) -> int:
        value = int(2 ** random.uniform(np.log2(least), np.log2(most)))
        return max(least, value // 64 * 64) if random.random() < 0.6 else value

    if op.name == "fmha":
        return _random_attention(op, config, random)
    if op.name in ("norm", "topk", "moe_sorting"):
        return _random_rows(op, config, size)
    types = {name: getattr(config, name) for name in ("dtype_a", "dtype_b", "dtype_c")}
    if op.name == "gemm_quant":
        sizes = {"m": size(1, 20_000), "n": size(1, 20_000), "k": size(8, 20_000)}
        return op.problem_type(**sizes, **types, quant=config.quant, layout=config.layout)
    if op.name == "grouped_gemm":
        sizes = {"m": size(1, 20_000), "n": size(1, 20_000), "k": size(8, 20_000), "groups": size(1, 64)}
        ragged = RAGGED[int(random.integers(len(RAGGED)))]
        return op.problem_type(**sizes, **types, ragged=ragged, layout=config.layout)
    if op.name == "gemm":
        sizes = {"m": size(1, 20_000), "n": size(1, 20_000), "k": size(8, 20_000)}
        batch = size(1, 64) if config.variant == "batched" else 1
        split = int(random.integers(1, 5)) if config.split_k else 1
        same = {"layout": config.layout, "num_d": config.num_d, "elementwise": config.elementwise}
        return op.problem_type(**sizes, **types, **same, batch=batch, k_batch=split)
    groups = int(random.choice([1, 1, 1, 2, 8]))
    filters = tuple(int(random.choice([1, 3, 5])) for _ in range(config.ndim))
    return op.problem_type(
        direction=config.direction,
        n=size(1, 64),
        g=groups,
        c=groups * size(1, 512),
        k=groups * size(1, 512),
        input_size=tuple(size(5, 80) for _ in range(config.ndim)),
        filter_size=filters,
        stride=tuple(int(random.choice([1, 1, 2, 3])) for _ in range(config.ndim)),
        dilation=tuple(int(random.choice([1, 1, 2])) for _ in range(config.ndim)),
        left_pad=tuple(extent for extent in filters),
        right_pad=tuple(extent // 2 + 2 for extent in filters),
        **types,
        k_batch=int(random.integers(1, 4)) if config.split_k else 1,
    )


def _random_attention(op: Op, config: Any, random: np.random.Generator) -> Any:
    """A trial of the kernel, made larger. Sequences of a group have one length: others C does not see."""
    trials = _trials(op.name, config)
    trial = trials[random.integers(len(trials))]
    batch, heads, rows, keys = (int(random.choice([1, 1, 2, 8, 16])) for _ in range(4))
    sizes = {"batch": trial.batch * batch, "heads": trial.heads * heads, "kv_heads": trial.kv_heads * heads}
    sizes["seqlen_q"] = trial.seqlen_q * (1 if config.max_seqlen_q else rows)
    sizes["seqlen_k"] = trial.seqlen_k * keys
    if trial.mode == "group":
        sizes |= {f"total_{name}": sizes["batch"] * sizes[f"seqlen_{name}"] for name in "qk"}
    return replace(trial, **sizes)


@functools.cache
def _trials(op_name: str, config: Any) -> tuple[Any, ...]:
    execution = find_op(op_name).execution
    assert execution is not None
    return execution.trials(config, archs.load("gfx942"))


def rows_of(
    op: Op, kernels: Sequence[Kernel], gpu: str, count: int, seed: int
) -> tuple[Any, Any, list[str], list[str]]:
    """Numbers of random problems and kernels, a pair in each row, with the names of the columns."""
    assert op.cost is not None
    random = np.random.default_rng(seed)
    arch = archs.load(gpu)
    chosen = random.integers(len(kernels), size=count)
    numbers = [op.cost.kernel_numbers(kernel.config, arch, None) for kernel in kernels]
    problems = [op.cost.problem_numbers(random_problem(op, kernels[place].config, random)) for place in chosen]
    p = np.array([list(problem.values()) for problem in problems], float)
    k = np.array([list(numbers[place].values()) for place in chosen], float)
    return p, k, list(problems[0]), list(numbers[0])


def columns(table: Any, names: Sequence[str]) -> Facts:
    return Facts(**dict(zip(names, table.T, strict=True)))


def random_bundle(op: Op, gpu: str, kernels: Sequence[Kernel], seed: int = 0, **changes: Any) -> Bundle:
    """A bundle whose trees learned noise, of two models: it has an opinion about everything."""
    return replace(_train_bundle(op.name, gpu, tuple(kernels), seed), **changes)


@functools.cache
def _train_bundle(op_name: str, gpu: str, kernels: tuple[Kernel, ...], seed: int) -> Bundle:
    import lightgbm

    op = find_op(op_name)
    assert op.cost is not None
    arch = archs.load(gpu)
    p, k, problem_names, kernel_names = rows_of(op, kernels, gpu, 1_500, seed)
    facts, column = columns(p, problem_names), columns(k, kernel_names)
    features = op.cost.features(facts, column, op.cost.estimate(facts, column, arch), arch)
    names = tuple(features)
    table = np.stack([np.broadcast_to(value, len(p)) for value in features.values()], axis=1)
    forests = []
    for model in range(2):
        wanted = np.random.default_rng(seed + model).normal(size=len(p)) * 0.3
        settings = {"verbose": -1, "num_threads": 1, "num_leaves": 31, "min_data_in_leaf": 2, "seed": seed + model}
        trained = lightgbm.train(settings, lightgbm.Dataset(table, wanted, feature_name=list(names)), 80)
        forests.append(read_forest(trained.model_to_string(), names))
    return Bundle(
        name="noise",
        op=op.name,
        archs=(gpu,),
        where={},
        kernels={},
        features=names,
        features_version=op.cost.features_version,
        transform=LOG_RATIO,
        training={},
        held_out={},
        forests=tuple(forests),
        digest="0" * 32,
    )
