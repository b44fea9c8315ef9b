from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tilewright import arch as archs
from tilewright.base.errors import CompileError
from tilewright.building.inspect import inspect_source
from tilewright.building.instruction_mix import CLASSES
from tilewright.building.toolchain import Toolchain

KERNELS = """\
#include <hip/hip_runtime.h>
extern "C" __global__ void nothing() {}
extern "C" __global__ void __launch_bounds__(256) reverse(float* x, int n)
{
    __shared__ float s[LDS];
    int i = threadIdx.x;
    s[i] = x[i];
    __syncthreads();
    if(i < n) x[i] = s[LDS - 1 - i] * 2.0f;
}
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
typedef float acc_t __attribute__((ext_vector_type(4)));
typedef _Float16 in_t __attribute__((ext_vector_type(4)));
#define MULTIPLY(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0)
#elif defined(__GFX12__)
typedef float acc_t __attribute__((ext_vector_type(8)));
typedef _Float16 in_t __attribute__((ext_vector_type(8)));
#define MULTIPLY(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c)
#else
typedef float acc_t __attribute__((ext_vector_type(8)));
typedef _Float16 in_t __attribute__((ext_vector_type(16)));
#define MULTIPLY(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c)
#endif
extern "C" __global__ void __launch_bounds__(64) multiply(in_t* a, in_t* b, acc_t* c)
{
    acc_t sum = c[threadIdx.x];
    sum = MULTIPLY(a[threadIdx.x], b[threadIdx.x], sum);
    c[threadIdx.x] = MULTIPLY(a[threadIdx.x + 64], b[threadIdx.x + 64], sum);
}
"""


@dataclass(frozen=True)
class Source:
    name: str = "tiny"
    text: str = '#include "lds.h"\n' + KERNELS
    files: dict[str, str] = field(default_factory=lambda: {"lds.h": "#define LDS 256\n"})


@pytest.mark.compile
@pytest.mark.parametrize(
    ("name", "wave_size", "matrix"),
    [
        ("gfx90a", 64, "v_mfma_f32_16x16x16f16"),
        ("gfx942", 64, "v_mfma_f32_16x16x16_f16"),
        pytest.param("gfx950", 64, "v_mfma_f32_16x16x16_f16", marks=pytest.mark.deep),
        ("gfx1100", 32, "v_wmma_f32_16x16x16_f16"),
        pytest.param("gfx1201", 32, "v_wmma_f32_16x16x16_f16", marks=pytest.mark.deep),
    ],
)
def test_a_tiny_source_on_every_family(
    name: str, wave_size: int, matrix: str, toolchain: Toolchain, tmp_path: Path
) -> None:
    found = inspect_source(Source(), archs.load(name), toolchain, keep=tmp_path / "tiny.co")
    assert (found.name, found.arch) == ("tiny", name)
    assert found.object_bytes == (tmp_path / "tiny.co").stat().st_size
    kernels = {kernel.name: kernel for kernel in found.kernels}
    assert set(kernels) == {"nothing", "reverse", "multiply"}
    assert {kernel.name for kernel in found.op_kernels} == {"reverse", "multiply"}

    reverse = kernels["reverse"]
    resources = reverse.resources
    assert (resources.lds_bytes, resources.max_block_threads) == (1024, 256)
    assert (resources.kernarg_bytes, resources.wave_size) == (12, wave_size)
    assert (resources.scratch_bytes, resources.vgpr_spills, resources.agprs) == (0, 0, 0)
    assert 0 < resources.vgprs < 32
    assert 0 < resources.sgprs < 32
    assert reverse.occupancy.waves_per_simd > 0
    assert set(reverse.mix) == set(CLASSES)
    assert (reverse.mix["lds"], reverse.mix["matrix"], reverse.matrix) == (2, 0, {})
    assert all(reverse.mix[kind] >= 1 for kind in ("global", "smem", "wait", "barrier", "branch"))
    assert 64 < reverse.code_bytes < 1024

    assert kernels["multiply"].mix["matrix"] == 2
    assert list(kernels["multiply"].matrix.values()) == [2]
    assert next(iter(kernels["multiply"].matrix)).startswith(matrix)
    assert kernels["nothing"].resources.lds_bytes == 0

    values = json.loads(json.dumps(found.to_json()))
    assert [kernel["name"] for kernel in values["kernels"]] == [k.name for k in found.kernels]
    assert {kernel["is_op"] for kernel in values["kernels"]} == {True, False}


@pytest.mark.compile
def test_a_refused_source_carries_its_log(toolchain: Toolchain) -> None:
    with pytest.raises(CompileError, match="tiny does not compile for gfx942: use of undeclared") as raised:
        inspect_source(Source(files={"lds.h": ""}), archs.load("gfx942"), toolchain)
    assert "kernel.hip:" in raised.value.log


@pytest.mark.compile
def test_too_much_lds_is_named(toolchain: Toolchain) -> None:
    source = Source(files={"lds.h": "#define LDS 65536\n"})
    with pytest.raises(CompileError, match="local memory"):
        inspect_source(source, archs.load("gfx942"), toolchain)
