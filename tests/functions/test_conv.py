"""`conv` and its gradients on the emulated device, compared with torch on the CPU.

Inputs are small integers, so that all sums and results are exact in every type, and results must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import tilewright as tw
from built_kernels import built
from tilewright.base.errors import TensorError, UnsupportedError
from tilewright.dispatch.tensors import to_view
from tilewright.emulator import hardware
from tilewright.functions import device_copies
from tilewright.functions.kernel_choice import prepare_registry
from tilewright.functions.options import get_options
from tilewright.ops import parse_kernel
from tilewright.ops.grouped_conv import Problem

pytestmark = pytest.mark.compile

FP16 = "fp16-fp16-fp32-fp16"
FP32 = "fp32-fp32-fp32-fp32"
# Kernels of CI's list, by GPU.
KERNELS = {
    "gfx942": (
        f"forward-nd1-{FP16}-b64x64x32-w2x2x1-i16x16x16-mem-intrawave-cshuffle-v1x1x1-280b2c8acf3f",
        f"forward-nd2-{FP16}-b64x64x32-w2x2x1-i16x16x32-compv3-intrawave-cshuffle-v8x8x8-8a062b028f3d",
        f"forward-nd2-{FP16}-b64x64x32-w2x2x1-i16x16x32-compv3-intrawave-cshuffle-v1x1x8-d8d77e72f411",
        f"backward_data-nd1-{FP16}-b64x64x32-w2x2x1-i16x16x16-mem-intrawave-cshuffle-v4x8x8-f31d988f58c6",
        f"backward_data-nd2-{FP16}-b64x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-v4x8x8-8287cbf557b4",
        f"backward_weight-nd2-{FP16}-b32x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-v4x8x8-splitk-6c56b6310e03",
    ),
    "gfx90a": (
        f"forward-nd3-{FP32}-b32x64x16-w1x4x1-i16x16x16-compv3-intrawave-cshuffle-v2x2x1-19e12d8775dd",
        f"backward_weight-nd1-{FP32}-b64x64x32-w4x1x1-i16x16x16-compv4-intrawave-cshuffle-v4x4x4-c48ea4115568",
    ),
}
POOLS = {gpu: [parse_kernel(f"grouped_conv-{gpu}-{name}") for name in names] for gpu, names in KERNELS.items()}
SEED = 36_2026
# Integers up to these numbers are exact.
EXACT = {torch.float16: 2**11, torch.bfloat16: 2**8, torch.float32: 2**24}


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Build the kernels of CI's list, which CI has built before."""
    built(kernel for pool in POOLS.values() for kernel in pool)


@pytest.fixture
def gfx942() -> Iterator[None]:
    with tw.options(pool=POOLS["gfx942"], device="emulated:gfx942", build="never"):
        yield


@pytest.fixture
def gfx90a() -> Iterator[None]:
    with tw.options(pool=POOLS["gfx90a"], device="emulated:gfx90a", build="never"):
        yield


def make_integers(seed: int, *shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, shape, generator=generator).to(dtype)


def check_equal(result: torch.Tensor, expected: torch.Tensor) -> None:
    assert expected.abs().max() <= EXACT[result.dtype]
    assert result.shape == expected.shape
    torch.testing.assert_close(result.double(), expected.double(), rtol=0, atol=0)


CASES: Sequence[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = (
    ((2, 16, 7, 6), (16, 16, 3, 3), {}),
    ((2, 16, 7, 6), (16, 16, 3, 3), {"stride": (2, 1), "padding": (1, 2)}),
    ((1, 8, 9, 8), (8, 8, 3, 2), {"dilation": 2, "padding": 1}),
    ((2, 16, 5, 5), (32, 8, 3, 3), {"groups": 2, "padding": "same"}),
    ((2, 8, 6, 5), (8, 8, 2, 4), {"padding": "same"}),
    ((2, 8, 6, 5), (8, 8, 1, 1), {"padding": "valid"}),
    ((2, 3, 8, 8), (8, 3, 3, 3), {"padding": 1}),  # narrow vectors of the input
    ((1, 5, 6, 6), (7, 5, 3, 3), {}),  # padded channels
    ((1, 4, 6, 6), (4, 1, 3, 3), {"groups": 4, "padding": 1}),  # depthwise, padded
)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.usefixtures("gfx942")
@pytest.mark.parametrize("shape, filters, options", CASES)
def test_images(shape: tuple[int, ...], filters: tuple[int, ...], options: dict[str, Any]) -> None:
    images, weight = make_integers(1, *shape), make_integers(2, *filters)
    expected = functional.conv2d(images.double(), weight.double(), **options)
    check_equal(tw.conv(images, weight, **options), expected)
    last = torch.channels_last
    check_equal(tw.conv(images.to(memory_format=last), weight.to(memory_format=last), **options), expected)
    ours = tw.conv(images.permute(0, 2, 3, 1), weight.permute(0, 2, 3, 1), layout="channels_last", **options)
    check_equal(ours.permute(0, 3, 1, 2), expected)


@pytest.mark.usefixtures("gfx942")
def test_lines() -> None:
    lines, weight = make_integers(1, 2, 6, 30), make_integers(2, 9, 3, 5)
    options: dict[str, Any] = {"stride": 2, "padding": 3, "dilation": 2, "groups": 2}
    lines = lines[:, :, ::2]
    expected = functional.conv1d(lines.double(), weight[:8].double(), **options)
    check_equal(tw.conv(lines, weight[:8], **options), expected)


@pytest.mark.usefixtures("gfx90a")
def test_volumes_in_fp32() -> None:
    volumes = make_integers(1, 2, 4, 5, 4, 6, dtype=torch.float32)
    weight = make_integers(2, 6, 2, 3, 1, 2, dtype=torch.float32)
    options: dict[str, Any] = {"stride": (1, 2, 1), "padding": (1, 0, 1), "dilation": (2, 1, 1), "groups": 2}
    expected = functional.conv3d(volumes.double(), weight.double(), **options)
    check_equal(tw.conv(volumes, weight, **options), expected)
    check_equal(tw.conv(volumes.to(memory_format=torch.channels_last_3d), weight, **options), expected)


@pytest.mark.usefixtures("gfx90a")
def test_rounding_in_fp32() -> None:
    generator = np.random.default_rng(3)
    volumes = generator.standard_normal((1, 8, 4, 5, 4)).astype(np.float32)
    weight = generator.standard_normal((8, 8, 3, 3, 3)).astype(np.float32)
    ours = tw.conv(volumes, weight, padding=1)
    wide = [torch.from_numpy(each).double() for each in (volumes, weight)]
    expected = functional.conv3d(*wide, padding=1)
    # A sum of n products has at most n roundings of its size, each of at most 2⁻²⁴ of the sum of absolute values.
    bound = functional.conv3d(*[each.abs() for each in wide], padding=1) * weight[0].size * 2.0**-24
    assert isinstance(ours, np.ndarray)
    assert (np.abs(ours - expected.numpy()) <= bound.numpy()).all()
    assert ours.strides[1] == 4  # channels are last in memory


@dataclass(frozen=True)
class RandomCall:
    """A convolution of any sizes and options, with arrays in any layout, and its operation."""

    images: torch.Tensor
    weight: torch.Tensor
    options: dict[str, Any]
    random: Random

    @classmethod
    def draw(cls, number: int) -> RandomCall:
        random = Random(f"{SEED} {number}")
        groups, options = random.choice((1, 1, 2, 3)), {"stride": (), "padding": (), "dilation": ()}
        n, c, k = random.randint(1, 3), groups * random.randint(1, 10), groups * random.randint(1, 10)
        size, taps = [], []
        for _ in range(random.choice((1, 2, 2, 2))):
            tap, stride, pad, dilation = (random.randint(*each) for each in ((1, 4), (1, 3), (0, 3), (1, 3)))
            size.append(max(1, dilation * (tap - 1) + 1 - 2 * pad) + random.randint(0, 7))
            taps.append(tap)
            for name, value in zip(options, (stride, pad, dilation), strict=True):
                options[name] += (value,)
        images, weight = make_integers(number, n, c, *size), make_integers(number + 1, k, c // groups, *taps)
        return cls(images, weight, {**options, "groups": groups}, random)

    def lay_out(self, array: torch.Tensor) -> torch.Tensor:
        """The same values in memory of another order, or as a part of a larger array."""
        order = self.random.sample(range(array.dim()), array.dim())
        whole = array.permute(order).repeat_interleave(self.random.choice((1, 1, 2)), -1)
        step = whole.shape[-1] // array.shape[order[-1]]
        return whole.contiguous()[..., ::step].permute(sorted(range(array.dim()), key=order.__getitem__))

    def check(self) -> None:
        """Compare the result, and both gradients, with torch's in double precision."""
        images, weight = self.images.double().requires_grad_(), self.weight.double().requires_grad_()
        torch_conv = functional.conv1d if images.dim() == 3 else functional.conv2d
        output = torch_conv(images, weight, **self.options)
        bias = make_integers(3, weight.shape[0]) if self.random.random() < 0.3 else None
        expected = output if bias is None else output + bias.double().reshape(-1, *[1] * (output.dim() - 2))
        given, filters = self.lay_out(self.images), self.lay_out(self.weight)
        check_equal(tw.conv(given, filters, bias=bias, **self.options), expected.detach())
        gradient = make_integers(4, *output.shape)
        of_images, of_weight = torch.autograd.grad(output, (images, weight), gradient.double())
        gradient = self.lay_out(gradient)
        check_equal(tw.conv_input_gradient(gradient, filters, images.shape[2:], **self.options), of_images)
        if images.dim() == 4:  # there is no kernel for the weights of lines here
            split = self.random.choice((None, 1, 2, 3))
            found = tw.conv_weight_gradient(given, gradient, weight.shape[2:], split=split, **self.options)
            check_equal(found, of_weight)


@pytest.mark.usefixtures("gfx942")
@pytest.mark.parametrize("count", [8, pytest.param(300, marks=pytest.mark.deep)])
def test_random_calls(count: int) -> None:
    for number in range(count):
        call = RandomCall.draw(number)
        try:
            call.check()
        except Exception as error:
            shapes = tuple(call.images.shape), tuple(call.weight.shape)
            raise AssertionError(f"call {number}: {shapes}, {call.options}: {error}") from error


@pytest.mark.usefixtures("gfx942")
def test_padding_by_torch() -> None:
    """Tensors on a GPU are padded by torch. It does the same for tensors in host memory."""
    device = tw.Device("emulated:gfx942")
    problem = Problem(direction="forward", n=1, g=2, c=6, k=10, input_size=(5, 6), filter_size=3, pad=1, dtype="fp16")
    registry = prepare_registry(problem, device, get_options())
    padded = registry.plan(problem, device, pad=True).launched
    assert (padded.c, padded.k) == (6, 16)
    images, weight = make_integers(1, 1, 5, 6, 2, 3), make_integers(2, 2, 5, 3, 3, 3)
    result = torch.empty(1, 5, 6, 2, 5, dtype=torch.half)
    device_copies.run_padded(registry, padded, [to_view(images), to_view(weight)], [to_view(result)], None, device)
    first = images.reshape(1, 5, 6, 6).permute(0, 3, 1, 2), weight.reshape(10, 3, 3, 3).permute(0, 3, 1, 2)
    expected = functional.conv2d(first[0].double(), first[1].double(), padding=1, groups=2)
    check_equal(result.reshape(1, 5, 6, 10).permute(0, 3, 1, 2), expected)


class Exported:
    """An array that can be read by DLPack only."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.usefixtures("gfx942")
def test_libraries_out_and_bias() -> None:
    images, weight, bias = make_integers(1, 2, 8, 5, 6), make_integers(2, 16, 8, 3, 3), make_integers(3, 16)
    expected = functional.conv2d(images.double(), weight.double(), bias.double(), padding=1)
    check_equal(tw.conv(images, weight, bias=bias, padding=1), expected)
    arrays = [each.numpy() for each in (images, weight, bias)]
    ours = tw.conv(arrays[0], arrays[1], bias=arrays[2], padding=1)
    assert isinstance(ours, np.ndarray)
    check_equal(torch.from_numpy(ours), expected)
    in_order = torch.empty(2, 5, 6, 16, dtype=torch.half).permute(0, 3, 1, 2)
    for out in (in_order, torch.empty(2, 16, 5, 6, dtype=torch.half)):
        assert tw.conv(images, weight, bias=bias, padding=1, out=out) is out
        check_equal(out, expected)
    given = [Exported(each) for each in arrays]
    result = np.empty((2, 16, 5, 6), np.float16)
    tw.conv(given[0], given[1], bias=given[2], padding=1, out=result)
    check_equal(torch.from_numpy(result), expected)


@pytest.mark.usefixtures("gfx942")
def test_arrays_in_order_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("an array was copied")

    images = make_integers(1, 2, 8, 5, 6).to(memory_format=torch.channels_last)
    weight = make_integers(2, 16, 8, 3, 3).to(memory_format=torch.channels_last)
    monkeypatch.setattr("tilewright.functions.compute.pack", refuse)
    monkeypatch.setattr("tilewright.functions.compute.copy_result", refuse)
    check_equal(tw.conv(images, weight), functional.conv2d(images.double(), weight.double()))
    with pytest.raises(AssertionError, match="copied"):
        tw.conv(images.contiguous(), weight)


@pytest.mark.usefixtures("gfx942")
def test_empty_batch() -> None:
    weight = make_integers(2, 16, 8, 3, 3)
    result = tw.conv(torch.empty(0, 8, 5, 6, dtype=torch.half), weight, bias=make_integers(3, 16))
    assert (tuple(result.shape), result.dtype) == ((0, 16, 3, 4), torch.half)
    none = np.empty((0, 16, 3, 4), np.float16)
    assert tw.conv_input_gradient(none, weight.numpy(), (5, 6)).shape == (0, 8, 5, 6)
    gradient = tw.conv_weight_gradient(np.empty((0, 8, 5, 6), np.float16), none, 3)
    assert gradient.shape == (16, 8, 3, 3)
    assert not gradient.any()


GRADIENTS: Sequence[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = (
    ((2, 8, 7, 6), (8, 8, 3, 3), {"padding": 1}),
    ((1, 16, 9, 8), (16, 8, 3, 2), {"stride": 2, "padding": (1, 0), "groups": 2}),
    ((2, 8, 9, 8), (8, 8, 2, 2), {"dilation": (2, 3), "stride": (3, 1)}),
    ((1, 3, 6, 6), (5, 3, 3, 3), {}),  # padded channels
)


@pytest.mark.usefixtures("gfx942")
@pytest.mark.parametrize("shape, filters, options", GRADIENTS)
def test_gradients(shape: tuple[int, ...], filters: tuple[int, ...], options: dict[str, Any]) -> None:
    images, weight = make_integers(1, *shape).double(), make_integers(2, *filters).double()
    output = functional.conv2d(images.requires_grad_(), weight.requires_grad_(), **options)
    gradient = make_integers(3, *output.shape)
    of_images, of_weight = torch.autograd.grad(output, (images, weight), gradient.double())
    given, filled = images.detach().half(), weight.detach().half()
    check_equal(tw.conv_input_gradient(gradient, filled, shape[2:], **options), of_images)
    check_equal(tw.conv_weight_gradient(given, gradient, filters[2:], **options), of_weight)
    check_equal(tw.conv_weight_gradient(given, gradient, filters[2:], split=2, **options), of_weight)
    last = [each.permute(0, 2, 3, 1).contiguous() for each in (given, gradient, filled)]
    ours = tw.conv_input_gradient(last[1], last[2], shape[2:], layout="channels_last", **options)
    check_equal(ours.permute(0, 3, 1, 2), of_images)
    ours = tw.conv_weight_gradient(last[0], last[1], filters[2:], layout="channels_last", **options)
    check_equal(ours.permute(0, 3, 1, 2), of_weight)


@pytest.mark.usefixtures("gfx942")
def test_input_gradient_of_lines() -> None:
    lines, weight = make_integers(1, 2, 8, 15).double(), make_integers(2, 12, 8, 3).double()
    output = functional.conv1d(lines.requires_grad_(), weight, stride=2)
    gradient = make_integers(3, *output.shape)
    (expected,) = torch.autograd.grad(output, lines, gradient.double())
    check_equal(tw.conv_input_gradient(gradient, weight.half(), 15, stride=2), expected)


@pytest.mark.usefixtures("gfx90a")
def test_weight_gradient_of_lines() -> None:
    lines, weight = make_integers(1, 2, 8, 15).double(), make_integers(2, 12, 4, 3).double()
    output = functional.conv1d(lines, weight.requires_grad_(), padding=2, groups=2)
    gradient = make_integers(3, *output.shape, dtype=torch.float32)
    (expected,) = torch.autograd.grad(output, weight, gradient.double())
    check_equal(tw.conv_weight_gradient(lines.float(), gradient, 3, padding=2, groups=2), expected)


@pytest.mark.usefixtures("gfx942")
def test_arrays_on_a_device() -> None:
    """Buffers are used in place; what only torch can do for arrays on a device is an error."""
    device = tw.Device("emulated:gfx942")
    images, weight = make_integers(1, 2, 5, 6, 8), make_integers(2, 16, 3, 3, 8)
    views = []
    for each in (images, weight):
        buffer = device.allocate(each.numel() * 2, "array")
        buffer.copy_from(each.numpy().reshape(-1).view(np.uint8))
        views.append(tw.view_on(buffer, each.shape, "fp16"))
    result = tw.conv(*views, layout="channels_last")
    stored = np.empty(result.shape, np.float16)
    result.owner.copy_to(stored.reshape(-1).view(np.uint8))
    expected = functional.conv2d(images.permute(0, 3, 1, 2).double(), weight.permute(0, 3, 1, 2).double())
    check_equal(torch.from_numpy(stored).permute(0, 3, 1, 2), expected)
    bias = tw.view_on(device.allocate(32, "bias"), (16,), "fp16")
    with pytest.raises(TensorError, match="leave the bias out, and add it with your array library"):
        tw.conv(*views, bias=bias, layout="channels_last")
    with pytest.raises(TensorError, match=r"in the order \(0, 2, 3, 1\), outermost first"):
        tw.conv(tw.view_on(views[0].owner, (2, 8, 5, 6), "fp16"), tw.view_on(views[1].owner, (16, 8, 3, 3), "fp16"))


@pytest.mark.deep
@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize("gpu", hardware.EMULATED)
def test_portfolio(gpu: str, dtype: torch.dtype) -> None:
    """Kernels that are selected and built without any options, for every GPU and type."""
    images, weight = make_integers(1, 2, 16, 6, 7).double(), make_integers(2, 24, 16, 3, 3).double()
    output = functional.conv2d(images.requires_grad_(), weight.requires_grad_(), padding=1)
    gradient = make_integers(3, *output.shape, dtype=dtype)
    of_images, of_weight = torch.autograd.grad(output, (images, weight), gradient.double())
    given, filters = images.detach().to(dtype), weight.detach().to(dtype)
    has_forward = dtype != torch.float32 or not gpu.startswith("gfx1")
    has_gradients = has_forward and (dtype != torch.float32 or gpu != "gfx950")
    with tw.options(device=f"emulated:{gpu}"):
        with nullcontext() if has_forward else pytest.raises(UnsupportedError, match="no kernel computes"):
            check_equal(tw.conv(given, filters, padding=1), output.detach())
        with nullcontext() if has_gradients else pytest.raises(UnsupportedError, match="no kernel computes"):
            check_equal(tw.conv_input_gradient(gradient, filters, (6, 7), padding=1), of_images)
        for split in (None, 2):
            with nullcontext() if has_gradients else pytest.raises(UnsupportedError, match="no kernel computes"):
                check_equal(tw.conv_weight_gradient(given, gradient, 3, padding=1, split=split), of_weight)


def test_copies_in_another_order() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for given in (array, torch.from_numpy(array)):
        copied = device_copies.pack(to_view(given), order=(0, 2, 1))
        assert (copied.shape, copied.strides) == ((2, 3, 4), (12, 1, 3))
        np.testing.assert_array_equal(copied.to_array(), array)
    made = device_copies.make_host_array((2, 3, 4), "fp32", (12, 1, 3))
    assert (made.shape, made.strides) == ((2, 3, 4), (12, 1, 3))
