"""Every direction in every number of dimensions and every common type, run and checked on the emulated device.

Each kernel computes problems that between them have several groups, strides and dilations of 2, pads that differ
between the sides, filters of 1, 3 and 7 taps, and channels that no vector but one of a single element divides.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from on_device import device_of

import tilewright as tw
from built_kernels import built, tiered
from tilewright import arch as archs
from tilewright.building.compile_job import CODE_OBJECT
from tilewright.building.inspect import inspect_object
from tilewright.building.toolchain import find_toolchain
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.grouped_conv import Problem, config
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, DIRECTIONS, FORWARD, NDIMS
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile

CONV = find_op("grouped_conv")
EXECUTION = get_execution("grouped_conv")
DTYPES = ("fp16", "bf16", "fp32")
MMA = {"fp16": (16, 16, 16), "bf16": (16, 16, 16), "fp32": (16, 16, 4)}
# RDNA has waves of 32 lanes, and CK Tile work-groups of 8 of them there.
WAVES = {"gfx1100": (2, 4, 1), "gfx1201": (2, 4, 1)}
PIPELINES = {1: "mem", 2: "compv3", 3: "compv3"}
OTHER_GPUS = ("gfx90a", "gfx950", "gfx1100", "gfx1201")


def kernel(gpu: str, direction: str, ndim: int, dtype: str) -> Kernel:
    """A kernel that compiles quickly. A forward one takes any channels in one dimension: its vectors are 1."""
    whole = 4 if dtype == "fp32" else 8  # elements of 16 bytes
    options: dict[str, Any] = {"vector": (whole, whole, whole)}
    if direction == FORWARD:
        options["vector"] = (1, 1, 1) if ndim == 1 else (whole, whole, 4)
    if direction == BACKWARD_DATA:
        options["vector"] = (4, whole, whole)
    if direction == BACKWARD_WEIGHT:
        options["split_k"] = True
        if ndim == 2:
            # Input channels go by 8, output channels by 4: a thread's share of a narrower tile.
            options |= {"block": (32, 64, 32), "vector": (4, whole, whole)}
        if dtype == "bf16":  # parts of a sum would be rounded to bf16 one by one
            options |= {"two_stage": True, "vector": (*options["vector"][:2], 4)}
    made = config(
        **{
            "direction": direction,
            "ndim": ndim,
            "dtype": dtype,
            "block": (64, 64, 32),
            "waves": WAVES.get(gpu, (2, 2, 1)),
            "mma": MMA[dtype],
            "pipeline": PIPELINES[ndim],
            "scheduler": "intrawave",
            "epilogue": "cshuffle",
            **options,
        }
    )
    return CONV.make_kernel(made, gpu)


KERNELS = [
    *(kernel("gfx942", *each) for each in itertools.product(DIRECTIONS, NDIMS, DTYPES)),
    *(kernel(gpu, direction, 2, "fp16") for gpu, direction in itertools.product(OTHER_GPUS, DIRECTIONS)),
]


def problem(made: Kernel, **values: Any) -> Problem:
    """A problem of a kernel's types. Extents are given for three dimensions, outermost first."""
    fields: Any = made.config
    extents = {name: value[-fields.ndim :] for name, value in values.items() if isinstance(value, tuple)}
    types = {name: getattr(fields, name) for name in ("direction", "dtype_a", "dtype_b", "dtype_c")}
    return Problem(**types, **{**values, **extents})


def problems(made: Kernel) -> list[Problem]:
    fields: Any = made.config
    any_channels = fields.vector == (1, 1, 1)
    strided = problem(
        made, n=2, g=2, c=2 * (5 if any_channels else 16), k=2 * (7 if any_channels else 24),
        input_size=(4, 7, 10), filter_size=(2, 3, 3), stride=(1, 2, 2), left_pad=(1, 1, 0), right_pad=(0, 0, 2),
    )  # fmt: skip
    dilated = problem(
        made, n=1, g=3, c=24, k=48,
        input_size=(3, 8, 9), filter_size=(2, 3, 3), dilation=(2, 2, 2), left_pad=(0, 2, 1), right_pad=(1, 1, 2),
    )  # fmt: skip
    wide = problem(
        made, n=2, c=8, k=72,
        input_size=(2, 9, 12), filter_size=(1, 7, 7), stride=(1, 2, 2), left_pad=(0, 3, 2), right_pad=(0, 2, 3),
    )  # fmt: skip
    point = problem(made, n=3, g=2, c=48, k=16, input_size=(2, 5, 7), filter_size=(1, 1, 1))
    listed = [strided, dilated, wide, point]
    if fields.split_k:
        listed += [replace(strided, k_batch=2), replace(point, k_batch=3)]
    return listed


def name(made: Kernel) -> str:
    fields: Any = made.config
    return f"{made.arch}-{fields.direction}-{fields.ndim}d-{fields.dtype_a}"


def test_the_problems_have_what_convolutions_have() -> None:
    pairs = [(made, each) for made in KERNELS for each in problems(made)]
    assert len(pairs) >= 150
    for direction, ndim in itertools.product(DIRECTIONS, NDIMS):
        mine = [each for _, each in pairs if (each.direction, each.ndim) == (direction, ndim)]
        assert any(each.g > 1 for each in mine)
        assert any(2 in each.stride for each in mine)
        assert any(2 in each.dilation for each in mine)
        assert any(each.left_pad != each.right_pad for each in mine)
        assert {each.filter_size[-1] for each in mine} == {1, 3, 7}
        assert {each.k_batch for each in mine} == ({1, 2, 3} if direction == BACKWARD_WEIGHT else {1})
    assert any(each.c // each.g == 5 for _, each in pairs)


@pytest.mark.parametrize("made", tiered(KERNELS, lambda made: [made]), ids=name)
def test_a_kernel_computes_what_it_should(made: Kernel) -> None:
    (artifact,) = built([made])
    listed = problems(made)
    checks = verify(made, artifact, device_of(made), listed, mode=Mode.STRICT)
    assert len(checks) == len(listed)
    assert [f"{check.problem}: {check.verdict}: {check.message}" for check in checks if not check.ok] == []


@pytest.mark.parametrize("direction", tiered(DIRECTIONS, lambda direction: [kernel("gfx942", direction, 1, "fp16")]))
def test_every_form_of_mem(direction: str) -> None:
    """It prefetches 4 steps of this tile: sums of 1 to 8 steps have every tail, with a loop before it and without."""
    made = kernel("gfx942", direction, 1, "fp16")
    (artifact,) = built([made])
    sizes = {"n": 1, "c": 8, "k": 8, "input_size": 64, "filter_size": 1}
    summed = {FORWARD: "c", BACKWARD_DATA: "k", BACKWARD_WEIGHT: "input_size"}[direction]
    listed = [problem(made, **{**sizes, summed: 32 * steps}) for steps in range(1, 9)]
    checks = verify(made, artifact, device_of(made), listed, mode=Mode.STRICT)
    assert [f"{check.problem}: {check.verdict}: {check.message}" for check in checks if not check.ok] == []


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_plan_pads_channels_that_no_vector_divides(direction: str) -> None:
    """Of every group, 3 input channels become 8 and 10 output channels become 12."""
    made = kernel("gfx942", direction, 2, "fp16")
    (artifact,) = built([made])
    asked = problem(
        made, n=2, g=2, c=6, k=20, input_size=(1, 7, 8), filter_size=(1, 3, 3), stride=(1, 2, 1),
        left_pad=(0, 1, 0), right_pad=(0, 0, 1),
    )  # fmt: skip
    assert {violation.code for violation in tw.fits(made.config, asked, made.arch)} == {"S505"}
    registry, gpu = tw.Registry((made,), {made: artifact}), device_of(made)
    plan = registry.plan(asked, gpu, pad=True)
    (stage,) = plan.stages
    assert (stage.problem.c, stage.problem.k) == (2 * 8, 2 * 12)
    assert "padded from" in str(plan) and "cut from" in str(plan)
    inputs = EXECUTION.inputs(asked, 1, gpu.arch)
    expected = EXECUTION.reference(asked, inputs, gpu.arch)
    with gpu.emulating(mode=Mode.STRICT):
        found = registry.run(asked, *inputs.values(), device=gpu, pad=True)
    (result,) = [tensor.name for tensor in EXECUTION.tensors(asked) if tensor.output]
    allowed = EXECUTION.tolerance(made.config, asked, inputs, expected, gpu.arch)[result].limit
    assert found.shape == expected[result].shape
    assert (np.abs(found.astype(np.float64) - expected[result]) <= allowed).all()


@pytest.mark.deep
def test_the_kernel_of_the_second_stage_is_not_taken_for_one_of_the_op() -> None:
    """It has no matrix instruction, and need not: every kernel that computes the sums must."""
    made = kernel("gfx942", BACKWARD_WEIGHT, 2, "bf16")
    (artifact,) = built([made])
    found = inspect_object(artifact.verify_file(CODE_OBJECT), archs.load(made.arch), find_toolchain())
    assert {each.is_op for each in found if "convert" in each.name} == {False}
    sums = [each for each in found if "GroupedConvolutionBackwardWeightKernel" in each.name]
    assert len(sums) > 0 and all(each.is_op and each.matrix for each in sums)
