"""Triton kernels on every emulated GPU, in strict mode, against NumPy and torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="triton is not installed: pip install 'tilewright[triton]'")

import triton.language as tl  # noqa: E402
import triton_kernels as kernels  # noqa: E402

import tilewright.triton  # noqa: E402
from tilewright.emulator.hardware import EMULATED  # noqa: E402

pytestmark = [
    pytest.mark.compile,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION"),
]
# The numbers of e4m3 with one zero and no infinity on gfx942, those of the OCP elsewhere.
FP8 = {"gfx942": torch.float8_e4m3fnuz, "gfx950": torch.float8_e4m3fn, "gfx1201": torch.float8_e4m3fn}


# One of CDNA and one of RDNA. `test_matrix_instructions` has all.
IN_CI = ("gfx942", "gfx1201")


@pytest.fixture(params=[pytest.param(name, marks=() if name in IN_CI else pytest.mark.deep) for name in EMULATED])
def gpu(request: pytest.FixtureRequest):
    with tilewright.triton.use(request.param, mode="strict") as active:
        yield active


def random(*shape: int, dtype=torch.float32, seed: int = 0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def small_integers(*shape: int, dtype, seed: int = 0):
    """Integers from -4 to 4, whose products and sums are exact in every type."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_add(gpu) -> None:
    x, y = random(1000), random(1000, seed=1)
    out = torch.zeros(1000)
    kernels.add[(4,)](x, y, out, 1000, BLOCK=256)
    assert torch.equal(out, x + y)
    assert gpu.last_launch.kernel == "add"
    assert gpu.last_launch.counters.global_write_bytes == 4000


def test_softmax(gpu) -> None:
    x = random(3, 200, dtype=torch.float16)
    out = torch.zeros(3, 200)
    kernels.softmax[(3,)](x, out, 200, BLOCK=256, num_warps=2)
    torch.testing.assert_close(out, torch.softmax(x.float(), 1), rtol=2e-6, atol=1e-7)


# Products with matrix instructions that Triton does not choose by itself: it exchanges A and B, and so their types.
PRODUCTS = [
    ("gfx90a", "fp16", "fp16", "v_mfma_f32_16x16x16f16"), ("gfx90a", "bf16", "bf16", "v_mfma_f32_16x16x16bf16_1k"),
    ("gfx90a", "fp32", "fp32", "v_mfma_f32_16x16x4f32"), ("gfx942", "fp32", "fp32", "v_mfma_f32_16x16x4_f32"),
    ("gfx942", "fp8", "fp8", "v_mfma_f32_16x16x32_fp8_fp8"), ("gfx942", "bf8", "fp8", "v_mfma_f32_16x16x32_fp8_bf8"),
    ("gfx942", "bf8", "bf8", "v_mfma_f32_16x16x32_bf8_bf8"), ("gfx942", "bf8", "bf8", "v_mfma_f32_32x32x16_bf8_bf8"),
    ("gfx942", "fp8", "bf8", "v_mfma_f32_32x32x16_bf8_fp8"), ("gfx950", "fp16", "fp16", "v_mfma_f32_16x16x32_f16"),
    ("gfx950", "bf16", "bf16", "v_mfma_f32_16x16x32_bf16"), ("gfx1201", "bf8", "bf8", "v_wmma_f32_16x16x16_bf8_bf8"),
    ("gfx1201", "bf8", "fp8", "v_wmma_f32_16x16x16_fp8_bf8"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "a_type", "b_type", "instruction"), PRODUCTS)
def test_matrix_instructions(name: str, a_type: str, b_type: str, instruction: str) -> None:
    types = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp8": FP8.get(name)}
    types["bf8"] = torch.float8_e5m2fnuz if name == "gfx942" else torch.float8_e5m2
    a = small_integers(64, 64, dtype=types[a_type])
    b = small_integers(64, 64, dtype=types[b_type], seed=1)
    out = torch.zeros(64, 64)
    with tilewright.triton.use(name, mode="strict"):
        rows = 32 if "_32x" in instruction else 16
        made = kernels.multiply_tiles[(1,)](a, b, out, SIZE=64, matrix_instr_nonkdim=rows)
    assert f"{instruction} " in made.asm["amdgcn"]
    assert torch.equal(out, a.float() @ b.float())


@pytest.mark.parametrize("name", ["fp16", "bf16", "int8", "fp32", "fp8"])
def test_matmul(gpu, name: str) -> None:
    if name == "fp8" and gpu.name not in FP8:
        pytest.skip(f"{gpu.name} has no fp8 matrix instruction")
    types = {"fp16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int8, "fp32": torch.float32}
    dtype = FP8[gpu.name] if name == "fp8" else types[name]
    a, b = small_integers(40, 50, dtype=dtype), small_integers(50, 36, dtype=dtype, seed=1)
    c = torch.zeros(40, 36, dtype=torch.int32 if name == "int8" else torch.float32)
    accumulator = tl.int32 if name == "int8" else tl.float32
    kernels.matmul[(2, 2)](a, b, c, 40, 36, 50, BM=32, BN=32, BK=32, ACC=accumulator, num_warps=2)
    assert torch.equal(c.double(), a.double() @ b.double())
    if name != "fp32" or gpu.name.startswith("gfx9"):  # RDNA multiplies fp32 in vector instructions
        assert gpu.last_launch.counters.matrix_flops > 0


def test_layer_norm(gpu) -> None:
    x, weight, bias = random(2, 200, dtype=torch.float16), random(200, seed=1), random(200, seed=2)
    out, mean = torch.zeros(2, 200), torch.zeros(2)
    kernels.layer_norm[(2,)](x, out, weight, bias, mean, 200, 1e-5, BLOCK=256, num_warps=2)
    torch.testing.assert_close(
        out, torch.nn.functional.layer_norm(x.float(), (200,), weight, bias), rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(mean, x.float().mean(1), rtol=1e-5, atol=1e-6)


def test_attention(gpu) -> None:
    q, k, v = (random(64, 32, dtype=torch.float16, seed=seed) for seed in range(3))
    out = torch.zeros(64, 32, dtype=torch.float16)
    kernels.attention[(2,)](q, k, v, out, 1 / math.sqrt(32), 64, D=32, BM=32, BN=32, num_warps=2)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(each.float()[None] for each in (q, k, v)), is_causal=True
    )[0]
    torch.testing.assert_close(out.float(), expected, rtol=4e-3, atol=2e-3)


def test_atomics(gpu) -> None:
    x = torch.arange(300, dtype=torch.int32) % 37 - 18
    sums, maxima = torch.zeros(8), torch.full((8,), -100, dtype=torch.int32)
    lock, count = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    kernels.atomics[(3,)](x, sums, maxima, lock, count, 300, BLOCK=128, num_warps=2)
    padded = torch.nn.functional.pad(x, (0, 4), value=-100).view(38, 8)
    assert torch.equal(maxima, padded.amax(0))
    assert torch.equal(sums, torch.where(padded == -100, 0, padded).sum(0).float())
    assert count.item() == 3
    assert lock.item() == 0


def test_scans(gpu) -> None:
    x = torch.arange(256, dtype=torch.int32) * 37 % 101
    sums, maxima = torch.zeros_like(x), torch.zeros_like(x)
    kernels.scans[(1,)](x, sums, maxima, N=256)
    assert torch.equal(sums, x.flip(0).cumsum(0).flip(0).int())
    assert torch.equal(maxima, x.cummax(0).values)


def test_sort(gpu) -> None:
    x = random(128)
    out = torch.zeros_like(x)
    kernels.sort[(1,)](x, out, N=128, num_warps=2)
    assert torch.equal(out, x.sort(descending=True).values)


def test_histogram(gpu) -> None:
    x = torch.arange(256, dtype=torch.int32) ** 2 % 64
    out, largest = torch.zeros(64, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    kernels.histogram[(1,)](x, out, largest, N=256, BINS=64)
    assert torch.equal(out, torch.bincount(x, minlength=64).int())
    assert largest.item() == x.argmax().item()


def philox(seed: int, offsets: np.ndarray) -> np.ndarray:
    """Philox 4x32 with 10 rounds, as tl.rand uses it: numbers from 0 to 1, of the first of four words."""
    c = [offsets.astype(np.uint64), *(np.zeros(len(offsets), np.uint64) for _ in range(3))]
    low = np.uint64(0xFFFFFFFF)
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    for _ in range(10):
        first, second = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        shift = np.uint64(32)
        c = [(second >> shift) ^ c[1] ^ key[0], second & low, (first >> shift) ^ c[3] ^ key[1], first & low]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    word = c[0].astype(np.uint32).view(np.int32)
    return np.where(word < 0, -word - 1, word) * np.float32(4.6566127342e-10)


def test_dropout(gpu) -> None:
    x = random(500)
    out = torch.zeros(500)
    kernels.dropout[(2,)](x, out, 500, 0.25, 123, BLOCK=256)
    kept = torch.from_numpy(philox(123, np.arange(500)) > 0.25)
    assert torch.equal(out != 0, kept)
    torch.testing.assert_close(out[kept], x[kept] / 0.75)


def test_math_functions(gpu) -> None:
    x = torch.linspace(0.01, 3, 128)
    out = torch.zeros(128)
    kernels.math_functions[(1,)](x, out, BLOCK=128, num_warps=2)
    exact = x.double()
    expected = torch.erf(exact) + torch.log1p(exact) + exact**1.5 + torch.tanh(exact)
    torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=0)
