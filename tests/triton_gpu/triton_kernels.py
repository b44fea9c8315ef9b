"""Triton kernels that tests run on emulated GPUs: small, because each is compiled for every GPU."""

# ruff: noqa: N803 - constants of kernels are in upper case, as in Triton's own examples

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x + y, mask=at < n)


@triton.jit
def scale_without_mask(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, x * factor, mask=at < n)


@triton.jit
def softmax(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * columns + at, e / tl.sum(e, 0), mask=at < columns)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), dtype=ACC)
    for start in range(0, k, BK):
        a_mask = (rows[:, None] < m) & (start + inner[None, :] < k)
        b_mask = (start + inner[:, None] < k) & (columns[None, :] < n)
        a = tl.load(a_ptr + rows[:, None] * k + start + inner[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + (start + inner[:, None]) * n + columns[None, :], mask=b_mask, other=0.0)
        sums = tl.dot(a, b, sums, out_dtype=ACC)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], sums, mask=mask)


@triton.jit
def multiply_tiles(a_ptr, b_ptr, out_ptr, SIZE: tl.constexpr):
    row, column = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    a, b = tl.load(a_ptr + row * SIZE + column), tl.load(b_ptr + row * SIZE + column)
    tl.store(out_ptr + row * SIZE + column, tl.dot(a, b, input_precision="ieee"))


@triton.jit
def layer_norm(x_ptr, out_ptr, weight_ptr, bias_ptr, mean_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, 0) / columns + eps)
    weight = tl.load(weight_ptr + at, mask=mask)
    bias = tl.load(bias_ptr + at, mask=mask)
    tl.store(out_ptr + row * columns + at, centred * rstd * weight + bias, mask=mask)
    tl.store(mean_ptr + row, mean)


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, scale, length, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Causal attention of one head, with the running maximum and sum of flash attention."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    channels = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + channels[None, :])
    largest = tl.full((BM,), -1.0e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, D), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BM, BN):
        keys = start + tl.arange(0, BN)
        k = tl.load(k_ptr + keys[None, :] * D + channels[:, None])
        scores = tl.where(rows[:, None] >= keys[None, :], tl.dot(q, k) * scale, -1.0e30)
        new = tl.maximum(largest, tl.max(scores, 1))
        p = tl.exp(scores - new[:, None])
        correction = tl.exp(largest - new)
        v = tl.load(v_ptr + keys[:, None] * D + channels[None, :])
        out = tl.dot(p.to(v.dtype), v, out * correction[:, None])
        total = total * correction + tl.sum(p, 1)
        largest = new
    tl.store(out_ptr + rows[:, None] * D + channels[None, :], (out / total[:, None]).to(tl.float16))


@triton.jit
def atomics(x_ptr, sum_ptr, max_ptr, lock_ptr, count_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.atomic_add(sum_ptr + at % 8, x.to(tl.float32), mask=at < n)
    tl.atomic_max(max_ptr + at % 8, x, mask=at < n)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(count_ptr, tl.load(count_ptr) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def combine(a, b):
    return tl.maximum(a, b)


@triton.jit
def scans(x_ptr, sums_ptr, maxima_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(sums_ptr + at, tl.cumsum(x, 0, reverse=True))
    tl.store(maxima_ptr + at, tl.associative_scan(x, 0, combine))


@triton.jit
def sort(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.sort(tl.load(x_ptr + at), descending=True))


@triton.jit
def histogram(x_ptr, out_ptr, largest_ptr, N: tl.constexpr, BINS: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, BINS), tl.histogram(x, BINS))
    tl.store(largest_ptr, tl.argmax(x, 0))


@triton.jit
def dropout(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, tl.where(tl.rand(seed, at) > p, x / (1 - p), 0.0), mask=at < n)


@triton.jit
def math_functions(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, libdevice.erf(x) + libdevice.log1p(x) + libdevice.pow(x, 1.5) + libdevice.tanh(x))


@triton.jit
def add_through_address(address: tl.int64, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(address.to(tl.pointer_type(tl.float32)) + at)
    tl.store(out_ptr + at, x + 1)


@triton.jit(debug=True)
def assert_small(x_ptr, BLOCK: tl.constexpr):
    tl.device_assert(tl.load(x_ptr + tl.arange(0, BLOCK)) < 8, "too large")


@triton.jit
def print_values(x_ptr, BLOCK: tl.constexpr):
    tl.device_print("half", tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)))


@triton.jit
def add_tuple(pair, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(pair[0] + at) + pair[1])


@triton.jit
def copy_block(source, out_ptr, M: tl.constexpr, N: tl.constexpr):
    block = source.load([M, 0])
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out_ptr + at, block)
