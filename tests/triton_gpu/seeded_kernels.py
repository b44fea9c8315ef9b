"""Triton kernels with one bug each, which `FIXED` corrects. The lines of a bug end with its name."""

# ruff: noqa: N803 - constants of kernels are in upper case, as in Triton's own examples

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def reverse_in_place(x_ptr, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + BLOCK - 1 - at)  # race: reverse
    if FIXED:
        tl.debug_barrier()
    tl.store(x_ptr + at, x)  # race: reverse


@triton.jit
def add_up(x_ptr, total_ptr, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    part = tl.sum(x, 0)
    if FIXED:
        tl.atomic_add(total_ptr, part)
    else:
        tl.store(total_ptr, tl.load(total_ptr) + part)  # race: total


@triton.jit
def overlap(out_ptr, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    step = BLOCK if FIXED else BLOCK - 1
    at = tl.program_id(0) * step + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.program_id(0))  # race: overlap


@triton.jit
def count(x_ptr, bins_ptr, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    if FIXED:
        tl.atomic_add(bins_ptr + x, 1)
    else:
        old = tl.load(bins_ptr + x)  # race: bins
        tl.store(bins_ptr + x, old + 1)  # race: bins


@triton.jit
def shift(x_ptr, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if FIXED:
        tl.store(x_ptr + at, tl.load(x_ptr + at) + 1)
    else:
        tl.store(x_ptr + at, tl.load(x_ptr + at + 1) + 1)  # race: shift


@triton.jit
def copy_masked(x_ptr, out_ptr, n, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n if FIXED else at <= n
    x = tl.load(x_ptr + at, mask=inside)  # bounds: load
    tl.store(out_ptr + at, x, mask=at < n)


@triton.jit
def fill_masked(out_ptr, n, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n if FIXED else at <= n
    tl.store(out_ptr + at, at, mask=inside)  # bounds: store


@triton.jit
def shift_left(x_ptr, out_ptr, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    after = tl.load(x_ptr + at + 1, mask=at < (BLOCK - 1 if FIXED else BLOCK), other=0)  # bounds: next
    tl.store(out_ptr + at, after)


@triton.jit
def count_masked(bins_ptr, n, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n if FIXED else at <= n
    tl.atomic_add(bins_ptr + at, 1, mask=inside)  # bounds: atomic


@triton.jit
def copy_rows(x_ptr, out_ptr, columns, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    stride = columns if FIXED else columns + 1
    x = tl.load(x_ptr + tl.program_id(0) * stride + at)  # bounds: stride
    tl.store(out_ptr + tl.program_id(0) * columns + at, x)


@triton.jit
def double(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at))  # unwritten: double


@triton.jit
def accumulate(x_ptr, total_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.atomic_add(total_ptr + tl.arange(0, BLOCK), x)  # unwritten: accumulate


@triton.jit
def fill_part(out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, at.to(tl.float16), mask=at < n)
