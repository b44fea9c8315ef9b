"""Ctrl-C at any moment of a call into the emulated device comes up in the thread that called, and nothing is lost."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scale_calls import HIP_ERROR, Args, ScaleLibrary

from tilewright.building.toolchain import find_toolchain
from tilewright.emulator.hip_shim import deferred_errors
from tilewright.runtime import Device

pytestmark = pytest.mark.compile

GFX942 = Device("emulated:gfx942")
UNKNOWN = 999  # hipErrorUnknown
# The signal comes while C code runs, so Python looks at it when the callback begins: before its first line.
_SOURCE = """
#include <signal.h>
int interrupted(int (*function)(void*, void*), void* first, void* second)
{
    raise(SIGINT);
    return function(first, second);
}
"""


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A C function that calls another one right after a Ctrl-C."""
    folder: Path = tmp_path_factory.mktemp("interrupted")
    (folder / "interrupted.c").write_text(_SOURCE)
    library = folder / "interrupted.so"
    command = [
        str(find_toolchain().cxx),
        "-x",
        "c",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(folder / "interrupted.c"),
    ]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(library)).interrupted
    function.argtypes = (ctypes.c_void_p,) * 3
    return function


def address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


def test_an_interrupt_before_the_first_line_of_a_callback_is_no_success(interrupted: Any) -> None:
    made = ctypes.c_void_p(0)
    status = interrupted(address(GFX942.load_hip().library.hipMalloc), ctypes.addressof(made), 64)

    assert status == UNKNOWN
    assert made.value is None
    with pytest.raises(KeyboardInterrupt) as caught:
        GFX942.check(status, "hipMalloc")
    assert caught.value.__notes__ == ["raised by: hipMalloc"]
    assert not deferred_errors.has_errors(GFX942.index)


def test_an_interrupt_as_a_launch_begins_comes_up_and_leaves_the_device_in_order(
    scale: ScaleLibrary, interrupted: Any
) -> None:
    x = np.arange(100, dtype=np.float32)
    with GFX942.allocate(400, "x") as source, GFX942.allocate(400, "y") as target:
        source.copy_from(x)
        args = Args(ctypes.sizeof(Args), source.address, target.address, 100)
        run = getattr(GFX942.library(scale.path), f"{scale.symbol}_run")
        with GFX942.make_current():
            status = interrupted(address(run), ctypes.addressof(args), 0)
        assert status == HIP_ERROR
        with pytest.raises(KeyboardInterrupt):
            GFX942.raise_pending("the launch failed")

    assert (scale.tripled(GFX942, x) == 3 * x).all()


def test_an_interrupt_that_nobody_asked_for_is_raised_by_the_next_call_on_any_device(interrupted: Any) -> None:
    made = ctypes.c_void_p(0)
    interrupted(address(GFX942.load_hip().library.hipMalloc), ctypes.addressof(made), 64)

    with pytest.raises(KeyboardInterrupt):
        Device("emulated:gfx950").allocate(4)
    GFX942.allocate(4)


def test_other_lost_exceptions_go_where_they_went(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # put back after the test what follows replaces
    deferred_errors.keep_uncaught_errors([address])

    class Broken:
        def __del__(self) -> None:
            raise ValueError("not ours")

    Broken()
    assert [str(lost.exc_value) for lost in seen] == ["not ours"]
    assert not deferred_errors.has_errors(GFX942.index)
