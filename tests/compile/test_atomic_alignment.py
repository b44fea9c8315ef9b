"""What atomic adds want of the result's strides and address: refused before the launch, a fault without the check."""

from __future__ import annotations

from typing import Any

import pytest
from on_device import call_of, device_of

import tilewright as tw
from built_kernels import built, built_unchecked
from tilewright.base.errors import DeviceError, UnsupportedError
from tilewright.building.store.artifact import Artifact
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.block_gemm.types import expand_dtype
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile

GEMM = find_op("gemm")
CONV = find_op("grouped_conv")
# Bytes of an atomic add of fp16, which is an instruction for pairs, and of bf16, which is a compare-and-swap of 8.
BYTES = {"fp16": 4, "bf16": 8}
SHIFTS = (0, 2, 4, 6, 8)


def split_k_kernel(name: str) -> Kernel:
    return GEMM.make_kernel(GEMM.make_example({**expand_dtype(name), "split_k": True}), "gfx942")


def problem_of(name: str, **fields: Any) -> Any:
    return tw.gemm.Problem(**{"m": 128, "n": 128, "k": 64, "k_batch": 2, "dtype": name, "layout": "rcr", **fields})


def run_shifted(kernel: Kernel, artifact: Artifact, problem: Any, shift: int) -> None:
    """Launch with a result that begins `shift` bytes into its memory."""
    device, execution = device_of(kernel), get_execution(kernel.op)
    call = call_of(kernel, artifact, problem)
    tensors = execution.tensors(problem)
    spans = [1 + sum((extent - 1) * stride for extent, stride in zip(t.shape, t.strides, strict=True)) for t in tensors]
    buffers = [device.allocate(2 * span + 64, t.name) for span, t in zip(spans, tensors, strict=True)]
    for buffer in buffers:
        buffer.fill(0)
    addresses = [b.address + (shift if t.output else 0) for b, t in zip(buffers, tensors, strict=True)]
    with device.make_current(), device.emulating(mode=Mode.FAST):
        call(addresses, None)
        device.synchronize()


@pytest.mark.parametrize("name", BYTES)
def test_strides_of_c(name: str) -> None:
    """What the rules take runs and is right; what they refuse is refused by the kernel, too."""
    kernel = split_k_kernel(name)
    artifact = built([kernel])[0]
    problems = [problem_of(name, stride_c=stride) for stride in range(128, 137)]
    fitting = [problem for problem in problems if not tw.fits(kernel.config, problem, kernel.arch)]
    assert [p.stride_c for p in fitting] == list(range(128, 137, BYTES[name] // 2))
    found = verify(kernel, artifact, device_of(kernel), fitting, mode=Mode.FAST)
    assert [(check.problem, check.message) for check in found if not check.ok] == []
    for problem in problems:
        if problem not in fitting:
            with pytest.raises(UnsupportedError, match=f"stride_c is {problem.stride_c}, it must be a multiple of"):
                call_of(kernel, artifact, problem)


@pytest.mark.parametrize("name", BYTES)
def test_the_address_of_c(name: str) -> None:
    kernel = split_k_kernel(name)
    artifact = built([kernel])[0]
    for shift in SHIFTS:
        run_shifted(kernel, artifact, problem_of(name, k_batch=1), shift)
        if shift % BYTES[name] == 0:
            run_shifted(kernel, artifact, problem_of(name), shift)
            continue
        with pytest.raises(UnsupportedError, match=f"{shift % BYTES[name]} bytes past a multiple of the {BYTES[name]}"):
            run_shifted(kernel, artifact, problem_of(name), shift)


@pytest.mark.deep
@pytest.mark.parametrize("name", BYTES)
def test_without_the_check_the_device_stops(name: str) -> None:
    """For each address and stride that is refused."""
    kernel = split_k_kernel(name)
    artifact = built_unchecked(kernel, f"add_of_{BYTES[name]}_bytes")
    for shift in SHIFTS:
        if shift % BYTES[name]:
            with pytest.raises(DeviceError, match="misaligned-access"):
                run_shifted(kernel, artifact, problem_of(name), shift)
        elif shift:
            run_shifted(kernel, artifact, problem_of(name), shift)
    for stride in range(129, 128 + BYTES[name] // 2):
        with pytest.raises(DeviceError, match="misaligned-access"):
            run_shifted(kernel, artifact, problem_of(name, stride_c=stride), 0)


def test_the_address_of_a_gradient_of_weights() -> None:
    """Its strides are whole vectors, so that only its address counts."""
    fields = {"direction": "backward_weight", "vector": (8, 8, 8), "split_k": True, **expand_dtype("bf16")}
    fields |= {"specialization": "filter1x1_stride1_pad0", "explicit_gemm": True}
    kernel = CONV.make_kernel(CONV.make_example(fields), "gfx942")
    sizes = {"n": 1, "c": 128, "k": 128, "input_size": (8, 8), "filter_size": 1, "k_batch": 2}
    problem = CONV.problem_type(direction="backward_weight", dtype="bf16", **sizes)
    artifact = built([kernel])[0]
    run_shifted(kernel, artifact, problem, 8)
    with pytest.raises(UnsupportedError, match="4 bytes past a multiple of the 8"):
        run_shifted(kernel, artifact, problem, 4)
