"""Problems run on the emulated device, from host arrays and from tensors on the device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base import knobs
from tilewright.base.errors import DeviceError, InvalidValueError, TensorError, UnsupportedError
from tilewright.dispatch.launch import OK, BoundKernel, Functions
from tilewright.dispatch.tensors import View, to_view
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile

MakeKernel = Callable[..., Kernel]


def problem(n: int, *rest: Any) -> Any:
    return find_op("scale").problem_type(n, *rest)


def numbers(n: int, dtype: Any = np.float32) -> Any:
    return np.arange(1, n + 1, dtype=dtype)


def upload(device: tw.Device, array: Any, gap: int = 1) -> View:
    """An array on the device, its elements `gap` apart."""
    spread = np.full(array.size * gap, -1, array.dtype)
    spread[::gap] = array
    buffer = device.allocate(spread.nbytes)
    buffer.copy_from(spread)
    return tw.view_on(buffer, array.shape, to_view(array).dtype, (gap,))


def download(view: View, dtype: Any = np.float32) -> Any:
    array = np.empty(view.owner.nbytes // np.dtype(dtype).itemsize, dtype)
    view.owner.copy_to(array)
    return array


def test_host_arrays(registry: tw.Registry, device: tw.Device) -> None:
    x = numbers(100)
    y = registry.run(problem(100), x, device=device)
    assert isinstance(y, np.ndarray) and y.dtype == np.float32
    np.testing.assert_array_equal(y, 2 * x)
    np.testing.assert_array_equal(x, numbers(100), "inputs stay as they are")
    np.testing.assert_array_equal(
        registry.run(problem(70, "fp64"), numbers(70, np.float64), device=device.name), 3 * numbers(70)
    )


def test_strides_of_host_arrays_are_honoured(registry: tw.Registry, device: tw.Device) -> None:
    x, out = numbers(200)[::-2], np.full(300, -1, np.float32)
    given = out[::3]
    result = registry.run(problem(100), x, out=given, device=device)
    assert result is given
    np.testing.assert_array_equal(out[::3], 2 * x)
    assert (out[1::3] == -1).all() and (out[2::3] == -1).all()
    # The problem's own strides are those on the device; the arrays stay logical.
    np.testing.assert_array_equal(registry.run(problem(100, "fp32", 3, 2), x, device=device), 2 * x)


def test_which_device(registry: tw.Registry, device: tw.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers(10)
    with device:
        np.testing.assert_array_equal(registry.run(problem(10), x), 2 * x)
        other = registry.run(problem(10), x, device="emulated:gfx90a")
        np.testing.assert_array_equal(other, 13 * x, "the argument counts more than the current device")
    monkeypatch.setenv(knobs.DEVICE.name, "emulated:gfx90a")
    np.testing.assert_array_equal(registry.run(problem(10), x), 13 * x)
    there = upload(device, x)
    assert download(registry.run(problem(10), there))[3] == 8, "tensors count more than the knob"
    with pytest.raises(TensorError, match="device is emulated:gfx90a, but tensors are on emulated:gfx942"):
        registry.run(problem(10), there, device="emulated:gfx90a")
    with pytest.raises(TensorError, match="several devices"):
        registry.run(problem(10), there, out=upload(tw.Device("emulated:gfx90a"), x))
    monkeypatch.delenv(knobs.DEVICE.name)
    with pytest.raises(DeviceError, match=r"no device is set.*emulated:gfx942"):
        registry.run(problem(10), x)
    with pytest.raises(UnsupportedError, match="no kernel for gfx950; it has kernels for gfx90a, gfx942"):
        registry.run(problem(10), x, device="emulated:gfx950")


def test_device_tensors_are_passed_by_address(registry: tw.Registry, device: tw.Device) -> None:
    x, out = upload(device, numbers(100), gap=3), upload(device, np.zeros(100, np.float32), gap=2)
    asked = problem(100)
    for _ in range(3):  # made, then remembered
        assert registry.run(asked, x, out=out) is out
        spread = download(out)
        np.testing.assert_array_equal(spread[::2], 2 * numbers(100))
        assert (spread[1::2] == -1).all()
        out.owner.copy_from(np.full(200, -1, np.float32))  # to see that the next call writes
    made = registry.run(asked, x)
    assert isinstance(made, View) and made.form.place == device
    np.testing.assert_array_equal(download(made), 2 * numbers(100))


def test_the_same_problem_with_other_strides_is_another_call(registry: tw.Registry, device: tw.Device) -> None:
    asked = problem(64)
    for gap in (1, 2, 5, 1, 2):
        x, out = upload(device, numbers(64) + gap, gap), upload(device, np.zeros(64, np.float32))
        registry.run(asked, x, out=out)
        np.testing.assert_array_equal(download(out), 2 * (numbers(64) + gap))


def test_an_equal_problem_is_the_same_plan(registry: tw.Registry, device: tw.Device) -> None:
    x, out = upload(device, numbers(48)), upload(device, np.zeros(48, np.float32))
    plans = registry._dispatcher.plans
    registry.run(problem(48), x, out=out)
    known = len(plans)
    for _ in range(5):
        registry.run(problem(48), x, out=out)
    assert len(plans) == known
    assert registry.plan(problem(48), device) is registry.plan(problem(48), device)


def test_mixing_and_misfits(registry: tw.Registry, device: tw.Device) -> None:
    x = numbers(10)
    with pytest.raises(TensorError, match="y in host memory and x on a device"):
        registry.run(problem(10), upload(device, x), out=x.copy())
    with pytest.raises(TensorError, match="x is 10, must be 12"):
        registry.run(problem(12), x, device=device)
    with pytest.raises(TensorError, match="x is of type fp64, must be fp32"):
        registry.run(problem(10), x.astype(np.float64), device=device)
    with pytest.raises(TensorError, match="1 inputs"):
        registry.run(problem(10), x, x, device=device)
    with pytest.raises(InvalidValueError, match="is not a problem of the registry's ops: scale"):
        registry.run("10", x, device=device)
    read_only = np.zeros(10, np.float32)
    read_only.flags.writeable = False
    with pytest.raises(TensorError, match="read-only"):
        registry.run(problem(10), x, out=read_only, device=device)
    with pytest.raises(TensorError, match="needs 80 bytes, and the buffer has 40"):
        tw.view_on(device.allocate(40), (10,), "fp64")
    with pytest.raises(TensorError, match="view_on"):
        registry.run(problem(10), device.allocate(40))


def test_padding_is_asked_for_and_seen(registry: tw.Registry, device: tw.Device, scale: MakeKernel) -> None:
    only = scale(17, whole=True)
    x, asked = numbers(100), problem(100)
    with pytest.raises(UnsupportedError, match=r"pad=True(.|\n)*n = 100 is not a multiple of 64 threads"):
        registry.run(asked, x, device=device, kernel=only)
    np.testing.assert_array_equal(registry.run(asked, x, device=device, kernel=only.slug, pad=True), 17 * x)
    plan = registry.plan(asked, device, kernel=only, pad=True)
    assert "x padded from 100 to 128 with zeros, y cut from 128 to 100" in plan.describe()
    np.testing.assert_array_equal(registry.run(asked, x, device=device, pad=True), 2 * x, "what fits comes first")
    with pytest.raises(TensorError, match=r"device tensors are not copied:.*or pass host arrays"):
        registry.run(asked, upload(device, x), kernel=only, pad=True)


def test_preparations_are_for_host_arrays(registry: tw.Registry, device: tw.Device, scale: MakeKernel) -> None:
    backwards = scale(7, backwards=True)
    x, asked = numbers(100), problem(100)
    np.testing.assert_array_equal(registry.run(asked, x, device=device, kernel=backwards), 7 * x)
    plan = registry.plan(asked, device, kernel=backwards)
    assert "x is turned round" in plan.describe()
    with pytest.raises(TensorError, match=r"needs x prepared \(x is turned round.*prepared=\('x',\)"):
        registry.run(asked, upload(device, x), kernel=backwards)
    turned = upload(device, plan.stages[0].preparations[0].apply(x))
    for prepared in (("x",), {"x"}, ("x",)):
        out = registry.run(asked, turned, kernel=backwards, prepared=prepared)
        np.testing.assert_array_equal(download(out), 7 * x)
    with pytest.raises(TensorError, match=r"prepared names 'x', but .* needs no tensor prepared"):
        registry.run(asked, turned, prepared=("x",))
    with pytest.raises(InvalidValueError, match="for device tensors"):
        registry.run(asked, x, device=device, kernel=backwards, prepared=("x",))


def test_a_workspace_is_lent(registry: tw.Registry, device: tw.Device, scale: MakeKernel) -> None:
    needy = scale(11, scratch=256)
    x = numbers(100)
    for stream in (None, device.stream(), 0):
        result = registry.run(problem(100), x, device=device, kernel=needy, stream=stream)
        np.testing.assert_array_equal(result, 11 * x)
    plan, call = registry._dispatcher.plan(problem(100), device, needy, False)
    assert plan.stages[0].workspace_bytes == 256 and "256 bytes" in plan.describe()
    assert len(call._workspaces) == 2, "the default stream and the other one"


def test_streams_are_passed_through(registry: tw.Registry, device: tw.Device) -> None:
    x, out = upload(device, numbers(10)), upload(device, np.zeros(10, np.float32))
    asked, stream = problem(10), device.stream()
    for given in (stream, stream.handle, stream):
        registry.run(asked, x, out=out, stream=given)
        stream.synchronize()
        np.testing.assert_array_equal(download(out), 2 * numbers(10))
    with pytest.raises(InvalidValueError, match="is not a stream"):
        registry.run(asked, x, out=out, stream="fast")


def test_what_a_library_refuses_is_said(registry: tw.Registry, device: tw.Device, scale: MakeKernel) -> None:
    """Past selection: problems that only the library's own checks see."""
    whole, needy = scale(17, whole=True), scale(11, scratch=256)
    execution = find_op("scale").execution
    assert execution is not None
    with pytest.raises(UnsupportedError, match=r"scale-gfx942.*emulated:gfx942: n is not a multiple of 64 threads"):
        BoundKernel(device, whole, registry._dispatcher.load_functions(device, whole), execution, problem(100))
    functions = registry._dispatcher.load_functions(device, needy)

    def no_bytes(place: int, size: Any) -> int:
        return OK

    call = BoundKernel(device, needy, Functions(functions.run, no_bytes, functions.message), execution, problem(64))
    with pytest.raises(DeviceError, match=r"fewer than 256 bytes \(status 3, the workspace\)"):
        call([1, 1], None)


def test_a_fault_on_the_device_is_raised_with_its_place(registry: tw.Registry, device: tw.Device) -> None:
    x = upload(device, numbers(64))
    out = upload(device, np.zeros(64, np.float32))
    beyond = View(x.address, (64,), (1 << 30,), "fp32", device, x.owner)
    with pytest.raises(DeviceError, match=r"(?i)load|read|memory|address"):
        registry.run(problem(64), beyond, out=out)
    registry.run(problem(64), x, out=out)
    np.testing.assert_array_equal(download(out), 2 * numbers(64), "and the device goes on")


def test_libraries_are_loaded_for_a_device(registry: tw.Registry, device: tw.Device, scale: MakeKernel) -> None:
    kernel = scale(2)
    library = registry.library(kernel, device)
    name = library[f"{kernel.symbol}_name"]
    name.restype = ctypes.c_char_p
    assert name().decode() == kernel.slug
    with pytest.raises(DeviceError, match="no device is set"):
        registry.library(kernel)


def test_torch_tensors_give_torch_tensors(registry: tw.Registry, device: tw.Device) -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(100, dtype=torch.float32)
    y = registry.run(problem(50), x[::2], device=device)
    assert isinstance(y, torch.Tensor)
    assert torch.equal(y, 2 * x[::2])
    out = torch.zeros(50)
    assert registry.run(problem(50), x[::2], out=out, device=device) is out
    assert torch.equal(out, y)
