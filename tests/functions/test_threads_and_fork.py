"""All functions of `tw` in many threads at once, and in children of a process that uses them.

Each result must be the one that a single thread gets for the same arguments, bit for bit.
"""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from built_kernels import built
from tests.building.stores import exit_code, forked
from tests.functions.attention_kernels import get_kernels
from tests.functions.grouped_kernels import ROWS
from tests.functions.kernels import ARCH, PRODUCTS
from tests.functions.norm_kernels import LAYER, RMS
from tests.functions.routing_kernels import SOFTMAX, SORTING
from tests.functions.scaled_kernels import TENSOR
from tests.functions.test_conv import POOLS

pytestmark = pytest.mark.compile

SEED = 36_2026
THREADS, CHILDREN = 16, 3
VARIANTS = 3  # arguments of each function
SIGMOID = tw.parse_kernel("topk-gfx942-sigmoid-bf16-e32-m4-t256-v1-4301c4df6c0e")
QUANTIZER = tw.parse_kernel("norm-gfx942-smoothquant-fp16-int8-m1-n1024-t128-v8-quant_smooth-pad-3cc394971ef9")
ATTENTION = get_kernels("masked", "append", "dot_do_o", "gradients", "convert_dq")
POOL = (
    *(PRODUCTS[1], TENSOR, ROWS, RMS, LAYER, QUANTIZER, SOFTMAX, SIGMOID, SORTING),
    *(*POOLS[ARCH], *ATTENTION),
)
CONFIG: Any = PRODUCTS[1].config
PROBLEM = tw.gemm.Problem(m=64, n=64, k=64, dtype="fp32", layout="rrr")
# Functions that are not called here, and why.
LEFT_OUT = {
    **dict.fromkeys(("inspect_kernel", "pack", "warm"), "compile something that CI does not build"),
    **dict.fromkeys(("measure", "sweep", "time_plan", "tune"), "start processes: tests/bench"),
    "set_options": "changes the options of the whole process",
}


def draw(variant: int, *shape: int, dtype: Any = "float16") -> Any:
    return np.random.default_rng([SEED, variant, *shape]).standard_normal(shape).astype(dtype)


def append(variant: int) -> Any:
    q, k, v = draw(variant, 2, 3, 4, 64), draw(variant, 2, 3, 2, 64), draw(variant + 9, 2, 3, 2, 64)
    caches = draw(variant, 2, 128, 2, 64), draw(variant + 9, 2, 128, 2, 64)
    angles = np.arange(160)[:, None] * 0.3 ** np.arange(32)
    turns = {"rotary_cos": np.cos(angles).astype("float16"), "rotary_sin": np.sin(angles).astype("float16")}
    tw.append_to_cache(q, *caches, k, v, seqlens_k=np.asarray([70, variant], "int32"), causal=True, **turns)
    return caches


def differentiate_attention(variant: int) -> Any:
    q, k, v = (draw(variant + n, 1, 20, 2, 64) for n in (0, 9, 18))
    return tw.attention_gradient(draw(variant, 1, 20, 2, 64), q, k, v, q, np.zeros((1, 2, 20), "float32"))


def generate(variant: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        tw.generate(POOL[variant : variant + 2], Path(folder) / "sources", jobs=1)
        tw.wrap(Path(folder) / "sources", Path(folder) / "wrapped", jobs=1)
        return [path.name for path in sorted(Path(folder).rglob("*.hpp"))]


def read_files(variant: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "list.csv").write_text(f"m,n,k,dtype,layout\n{variant + 1},64,64,fp16,rcr\n", encoding="utf-8")
        return tw.read_problems("gemm", Path(folder) / "list.csv")


def load_set(variant: int) -> Any:
    folder = Path(tw.__file__).parent / "ops" / "gemm" / "preselected"
    return list(tw.load_kernel_set(sorted(folder.glob("*.toml"))[variant]).kernels(ARCH))[:3]


def view(variant: int) -> Any:
    buffer = tw.Device(f"emulated:{ARCH}").allocate(4 * 64 * 64)
    buffer.copy_from(draw(variant, 64, 64, dtype="float32"))
    result = tw.matmul(tw.view_on(buffer, (64, 64), "fp32"), tw.view_on(buffer, (64, 64), "fp32"))
    found = np.empty((64, 64), "float32")
    result.owner.copy_to(found)
    return found


def change_options(variant: int) -> Any:
    with tw.options(build=("never", "auto")[variant % 2]) as options:
        return options.build


def multiply_scaled(variant: int) -> Any:
    a = draw(variant, 37, 144, dtype="float32").astype(ml_dtypes.float8_e4m3fnuz)
    scale = np.asarray([0.5 + variant], "float32")
    return tw.scaled_matmul(a, a[:32].T, scale, scale)


def sort(variant: int) -> Any:
    ids = np.random.default_rng(variant).permuted(np.tile(np.arange(8, dtype="int32"), (17, 1)), axis=1)[:, :2]
    entries, weights, owners, totals = tw.sort_by_expert(np.ascontiguousarray(ids), np.ones((17, 2), "float32"), 8, 4)
    count = int(totals[0])  # the rest is not written
    return entries[:count], weights[:count], owners[: count // 4], totals


ENDS = np.asarray([5, 5, 20, 33], "int32")
CALLS: Mapping[str, Callable[[int], Any]] = {
    "append_to_cache": append,
    "arch_names": lambda _: tw.arch_names(),
    "attention": lambda n: tw.attention(*(draw(n + i, 1, 40, 2, 32) for i in (0, 9, 18)), causal=True, return_lse=True),
    "attention_gradient": differentiate_attention,
    "build": lambda n: tw.build(POOL[n : n + 2], jobs=1).artifacts.keys(),
    "conv": lambda n: tw.conv(draw(n, 1, 8, 6, 5), draw(n, 16, 8, 3, 3), padding=1),
    "conv_input_gradient": lambda n: tw.conv_input_gradient(draw(n, 1, 8, 4, 4), draw(n, 8, 8, 3, 3), (6, 6)),
    "conv_weight_gradient": lambda n: tw.conv_weight_gradient(draw(n, 1, 8, 6, 6), draw(n, 1, 8, 4, 4), 3),
    "devices": lambda _: tw.devices(),
    "explain": lambda _: tw.explain(CONFIG, ARCH),
    "fits": lambda _: tw.fits(CONFIG, PROBLEM, ARCH),
    "generate": generate,
    "grouped_matmul": lambda n: tw.grouped_matmul(
        draw(n, 33, 48, dtype=ml_dtypes.bfloat16), draw(n, 4, 40, 48, dtype=ml_dtypes.bfloat16).swapaxes(1, 2), ENDS
    ),
    "kernel_of": lambda _: tw.kernel_of(CONFIG, ARCH),
    "kernels": lambda _: list(tw.kernels("norm", ARCH))[:3],
    "layer_norm": lambda n: tw.layer_norm(draw(n, 7, 48, dtype="float32"), draw(n, 48, dtype="float32")),
    "list_used_kernels": lambda _: len(tw.list_used_kernels()) <= len(POOL),
    "load": lambda n: tw.load(tw.arch_names()[n]),
    "load_kernel_set": load_set,
    "matmul": lambda n: tw.matmul(draw(n, 40, 24, dtype="float32"), draw(n, 24, 36, dtype="float32")),
    "options": change_options,
    "parse_kernel": lambda n: tw.parse_kernel(POOL[n].slug),
    "read_problems": read_files,
    "render": lambda n: tw.render(POOL[n]).text,
    "rms_norm": lambda n: tw.rms_norm(draw(n, 5, 24, dtype="float32"), draw(n, 24, dtype="float32")),
    "scaled_matmul": multiply_scaled,
    "select_kernel": lambda _: tw.select_kernel(PROBLEM, ARCH).best,
    "sets": lambda _: list(tw.sets("norm")),
    "smooth_quantize": lambda n: tw.smooth_quantize(draw(n, 5, 64), np.ones(64, "float32")),
    "sort_by_expert": sort,
    "suggest": lambda _: tw.suggest(CONFIG, ARCH),
    "topk_sigmoid": lambda n: tw.topk_sigmoid(draw(n, 9, 32, dtype=ml_dtypes.bfloat16), 4),
    "topk_softmax": lambda n: tw.topk_softmax(draw(n, 9, 60, dtype="float32"), 4),
    "verify": lambda n: [each.verdict for each in tw.verify(PRODUCTS[1], _artifact(), _device(), [PROBLEM], seed=n)],
    "view_on": view,
    "wrap": generate,
}


def _device() -> tw.Device:
    return tw.Device(f"emulated:{ARCH}")


def _artifact() -> Any:
    return tw.build(PRODUCTS[1], jobs=1).artifact(PRODUCTS[1])


@pytest.fixture
def results() -> Iterator[Mapping[tuple[str, int], Any]]:
    """The results of a single thread."""
    built(POOL)
    with tw.options(pool=POOL, device=f"emulated:{ARCH}", build="never"):
        yield {(name, n): to_comparable(call(n)) for n in range(VARIANTS) for name, call in CALLS.items()}


def to_comparable(value: Any) -> Any:
    """Bytes of arrays, and the text of everything else."""
    if isinstance(value, tuple) and all(isinstance(each, np.ndarray) for each in value):
        return [each.tobytes() for each in value]
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value)


def test_every_function_is_called_or_left_out_for_a_reason() -> None:
    functions = {name for name in tw.__all__ if callable(getattr(tw, name)) and name[0].islower()}
    assert functions == CALLS.keys() | LEFT_OUT.keys()


def call_some(random: Random, results: Mapping[tuple[str, int], Any], calls: int) -> list[str]:
    """Call random functions; the names of those with another result, and errors."""
    wrong = []
    for _ in range(calls):
        name, n = random.choice(sorted(results))
        with tw.options(pool=POOL, device=f"emulated:{ARCH}", build="never"):
            try:
                same = to_comparable(CALLS[name](n)) == results[name, n]
            except Exception as error:
                wrong.append(f"{name}: {error!r}")
            else:
                wrong += [] if same else [f"{name}: another result"]
    return wrong


@pytest.mark.parametrize("calls", [12, pytest.param(300, marks=pytest.mark.deep)])
def test_threads_and_children_get_the_results_of_a_single_thread(
    results: Mapping[tuple[str, int], Any], calls: int
) -> None:
    wrong: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: wrong.extend(call_some(Random(f"{SEED} {n}"), results, calls)), daemon=True)
        for n in range(THREADS)
    ]
    for thread in threads:
        thread.start()

    def work(number: int) -> bool:
        signal.alarm(600)  # ends a child that waits for a lock of the parent's threads
        found = call_some(Random(f"{SEED} child {number}"), results, calls // 4)
        print(*found, sep="\n")
        return found == []

    children = [forked(lambda n=n: work(n)) for n in range(CHILDREN)]  # type: ignore[misc]
    codes = [exit_code(child) for child in children]
    for thread in threads:
        thread.join(600)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    assert wrong == []
    assert codes == [0] * CHILDREN
