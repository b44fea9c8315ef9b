"""K no multiple of 16 is no fault of CK Tile's forward kernels; weights that were padded along the wrong axis are.

In public measurements of such kernels up to 94 % of the outputs are zero where K is no multiple of 16. Here kernels of
their kind run on the emulated device in strict mode. They write and compute every output; with weights padded along Y
instead of K they give the published shares of zeros (tests/ops/test_public_conv_measurements.py compares those).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from on_device import call_of, device_of

import tilewright as tw
from built_kernels import built_unchecked, tiered
from padded_weights import K_AXIS, UNIT, expected_non_zero, padded_weights
from tilewright import arch as archs
from tilewright.arch.number_formats import to_numpy_dtype
from tilewright.base.errors import UnsupportedError
from tilewright.building.store.artifact import Artifact
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.grouped_conv import config
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile

ARCH = "gfx950"
CONV = find_op("grouped_conv")
EXECUTION = get_execution(CONV.name)
PUBLISHED = (4, 8, 8)


def kernel(pipeline: str = "compv3", vector: Sequence[int] = PUBLISHED) -> Kernel:
    made = config(
        direction="forward",
        ndim=2,
        dtype="bf16",
        block=(64, 64, 64),
        waves=(2, 2, 1),
        mma=(32, 32, 16),
        pipeline=pipeline,
        scheduler="intrawave",
        epilogue="cshuffle",
        vector=tuple(vector),
    )
    return CONV.make_kernel(made, ARCH)


@functools.cache
def artifact_of(made: Kernel) -> Artifact:
    return built_unchecked(made)


def problem(k: int, c: int = 16, size: int = 9, filter_size: int = 3, n: int = 2, **more: Any) -> Problem:
    """A small forward problem; a filter of 3×3 has pads."""
    extents: dict[str, Any] = {"input_size": size, "filter_size": filter_size, "pad": filter_size // 2}
    pairs = {name: (value, value) for name, value in extents.items()}
    return Problem(**{"direction": "forward", "n": n, "c": c, "k": k, "dtype": "bf16", **pairs, **more})


@pytest.mark.parametrize(
    ("pipeline", "vector_c", "channels"),
    tiered(
        [
            ("compv3", 8, (8, 24, 72, 136)),
            ("compv4", 8, (8, 24, 72, 136)),
            ("compv3", 4, (4, 20, 60, 156)),
            ("compv3", 1, (3, 27, 61, 107)),
        ],
        lambda case: [kernel(case[0], (4, 8, case[1]))],
    ),
)
def test_every_output_is_written_and_right(pipeline: str, vector_c: int, channels: Sequence[int]) -> None:
    """No K here is a multiple of 16. `verify` poisons the output: what is not written is seen."""
    made = kernel(pipeline, (4, 8, vector_c))
    problems = [problem(k, filter_size=size) for k, size in itertools.product(channels, (1, 3))]
    checks = verify(made, artifact_of(made), device_of(made), problems, mode=Mode.STRICT)
    assert len(checks) == 8
    assert [(check.problem, check.verdict, check.message) for check in checks if not check.ok] == []


# Problems of the public file where they are small, else the same channels and filters on smaller images.
WRONGLY_PADDED = {
    "K 72, 1x1": problem(72, c=8, size=1, filter_size=1, n=4),
    "K 27, 1x1": problem(27, c=640, size=1, filter_size=1, n=4),
    "K 40, 1x1": problem(40, c=200, size=14, filter_size=1, n=1),
    "K 20, 1x1": problem(20, c=8, size=7, filter_size=1, n=4),
    "K 8, 3x3": problem(8, c=8, size=14, n=1),
    "K 3, 3x3": problem(3, c=128, size=8, n=1),
    "K 52, 3x3, stride 2": problem(52, c=56, size=14, n=1, stride=(2, 2)),
    "K 60, 3x3, stride 2": problem(60, c=64, size=16, n=1, stride=(2, 2)),
}


@pytest.mark.parametrize("pipeline", tiered(["compv3", "compv4"], lambda pipeline: [kernel(pipeline)]))
@pytest.mark.parametrize("asked", WRONGLY_PADDED.values(), ids=WRONGLY_PADDED.keys())
def test_weights_padded_along_y_give_the_published_zeros(asked: Problem, pipeline: str) -> None:
    image, weight = normal_inputs(asked)
    wrongly = wanted_channels(asked, pipeline, image, padded_weights(weight[0]))
    assert np.count_nonzero(wrongly) == expected_non_zero(asked) < wrongly.size


def test_the_same_weights_padded_along_k_give_every_output() -> None:
    asked = WRONGLY_PADDED["K 72, 1x1"]
    image, weight = normal_inputs(asked)
    rightly = wanted_channels(asked, "compv3", image, padded_weights(weight[0], axis=K_AXIS))
    assert np.count_nonzero(rightly) == rightly.size
    assert within_tolerance(kernel(), asked, image, weight, rightly).all()


def test_a_vector_that_does_not_divide_k_is_refused() -> None:
    made, asked = kernel(), problem(20)
    (fault,) = tw.fits(made.config, asked, ARCH)
    assert fault.code == "S505"
    assert "the 20 output channels of a group are not a multiple of vector c = 8" in str(fault)
    (rule,) = [rule for rule in CONV.fit_rules if rule.code == "S505"]
    assert "complete vectors" in rule.why and "pads" in rule.fix
    with pytest.raises(UnsupportedError, match="IsSupportedArgument refuses"):
        call_of(made, artifact_of(made), asked)([0, 0, 0], None)
    assert tw.fits(kernel(vector=(4, 8, 4)).config, asked, ARCH) == []


@pytest.mark.deep
def test_made_to_take_it_the_kernel_overwrites_the_next_pixel() -> None:
    """The last vector of a pixel has 4 channels too many: zeros, stored onto the first 4 of the next pixel.

    So this is what a kernel without its check would give, and not what was published: a tenth of the outputs.
    """
    made, asked = kernel(), problem(20, filter_size=1)
    image, weight = normal_inputs(asked)
    tampered = built_unchecked(made, "supported")
    found = launched(made, tampered, asked, image, weight)
    right = within_tolerance(made, asked, image, weight, found)
    assert right[..., 4:].all() and not right[..., :4].all()
    assert (found[~right] == 0).all()
    assert np.count_nonzero(found) > 0.9 * found.size > 8 * expected_non_zero(asked)


@pytest.mark.parametrize(("g", "weight_text", "output_text"), [(1, "1×20×3×3×16", "1×24"), (2, "2×20×3×3×16", "2×24")])
def test_a_plan_pads_k_of_every_group_and_says_so(g: int, weight_text: str, output_text: str) -> None:
    made, asked = kernel(), problem(20 * g, c=16 * g, g=g)
    registry, gpu = tw.Registry((made,), {made: artifact_of(made)}), device_of(made)
    with pytest.raises(UnsupportedError, match="pass pad=True"):
        registry.plan(asked, gpu)
    said = str(registry.plan(asked, gpu, pad=True))
    assert f"weight padded from {weight_text} to {weight_text.replace('20', '24')} with zeros" in said
    assert f"output cut from 2×9×9×{output_text} to 2×9×9×{output_text.replace('24', '20')}" in said
    image, weight = normal_inputs(asked)
    found = registry.run(asked, image, weight, device=gpu, pad=True)
    assert np.count_nonzero(found) == found.size
    assert within_tolerance(made, asked, image, weight, found).all()


def normal_inputs(asked: Problem) -> tuple[NDArray[Any], NDArray[Any]]:
    """Normally distributed numbers, none of which is zero: zeros in the output are the padding's."""
    inputs = EXECUTION.inputs(asked, 1, archs.load(ARCH))
    image, weight = inputs["input"], inputs["weight"]
    assert np.count_nonzero(image) == image.size and np.count_nonzero(weight) == weight.size
    return image, weight


def wanted_channels(asked: Problem, pipeline: str, image: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
    """What a harness gets that pads K: the first channels of a launch with more of them, with these weights' memory."""
    made, larger = kernel(pipeline), replace(asked, k=-(-asked.k // UNIT) * UNIT)
    return launched(made, artifact_of(made), larger, image, weight)[..., : asked.k]


def launched(
    made: Kernel, artifact: Artifact, asked: Problem, image: NDArray[Any], weight: NDArray[Any]
) -> NDArray[Any]:
    """The output of a launch with any memory as weights; what is not written is NaN, which is not zero."""
    ours, call = device_of(made), call_of(made, artifact, asked)
    output = np.full(EXECUTION.tensors(asked)[-1].shape, np.nan, to_numpy_dtype("bf16", archs.load(ARCH)))
    arrays = [np.ascontiguousarray(array).view(np.uint8).ravel() for array in (image, weight, output)]
    with ExitStack() as freed:
        buffers = [freed.enter_context(ours.allocate(array.nbytes)) for array in arrays]
        for buffer, array in zip(buffers, arrays, strict=True):
            buffer.copy_from(array)
        with ours.make_current(), ours.emulating(mode=Mode.STRICT):
            call([buffer.address for buffer in buffers], None)
            ours.synchronize()
        buffers[-1].copy_to(arrays[-1])
    return output


def within_tolerance(
    made: Kernel, asked: Problem, image: NDArray[Any], weight: NDArray[Any], found: NDArray[Any]
) -> NDArray[np.bool_]:
    """Which outputs are right."""
    arch, inputs = archs.load(ARCH), {"input": image, "weight": weight}
    expected = EXECUTION.reference(asked, inputs, arch)
    allowed = EXECUTION.tolerance(made.config, asked, inputs, expected, arch)["output"].limit
    right: NDArray[np.bool_] = np.abs(found.astype(np.float64) - expected["output"]) <= allowed
    return right
