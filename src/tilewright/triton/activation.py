"""Choosing an emulated GPU for Triton in this process."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, NoReturn

import triton

from tilewright.base.errors import DeviceError
from tilewright.emulator.launch import Mode
from tilewright.triton.driver import EmulatedDriver
from tilewright.triton.gpu import KernelLaunch, LoadedKernel


class ActiveGpu:
    """The emulated GPU that Triton uses, until `close` or the end of a `with` block."""

    def __init__(self, driver: EmulatedDriver, previous: Any) -> None:
        self._driver = driver
        self._previous = previous

    @property
    def name(self) -> str:
        """The name of the GPU, such as gfx942."""
        return self._driver.gpu.arch.name

    @property
    def mode(self) -> Mode:
        """FAST or STRICT."""
        return self._driver.gpu.mode

    @property
    def checks(self) -> frozenset[str]:
        """The checks of every launch."""
        return self._driver.gpu.checks

    @property
    def last_launch(self) -> KernelLaunch | None:
        """The newest launch that ended, with its counters; None before the first."""
        return self._driver.gpu.last_launch

    def map_tensor(self, tensor: Any) -> int:
        """Return an address by which kernels reach a tensor that is not an argument, until `close`.

        Use it where a program for a real GPU calls `tensor.data_ptr()` and passes the number to a kernel.
        """
        return self._driver.gpu.map_tensor(tensor)

    def close(self) -> None:
        """Give Triton back the driver that it had before."""
        self._driver.close()
        triton.runtime.driver.set_active(self._previous)

    def __enter__(self) -> ActiveGpu:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def use(gpu: str, mode: str = Mode.FAST.value, *, checks: str | Iterable[str] = ()) -> ActiveGpu:
    """Run all Triton kernels of this process on an emulated GPU, from now on or inside a `with` block.

    `gpu` is one of gfx90a, gfx942, gfx950, gfx1100 and gfx1201; `mode` is "fast" or "strict", which exposes missing
    barriers and missing waits. `checks` are words of the sanitizer, such as "races,uninitialized", or "all": a launch
    in which they find something raises a `tilewright.emulator.CheckFault`.
    """
    driver = EmulatedDriver(gpu, mode, checks)
    previous = _find_active_driver()
    EmulatedDriver.chosen.append(driver)
    triton.runtime.driver.set_active(driver)
    return ActiveGpu(driver, previous)


def _find_active_driver() -> Any:
    try:
        return triton.runtime.driver.active
    except RuntimeError:  # Triton's error on a machine without a GPU
        return _NoDriver()


class _NoDriver:
    """Triton's driver where there is no GPU: kernels can be unloaded, and nothing else."""

    class utils:  # noqa: N801 - Triton's name
        """The only function that Triton calls for kernels of the past."""

        @staticmethod
        def unload_module(module: LoadedKernel) -> None:
            """Free the memory of a kernel."""
            module.unload()

    def __getattr__(self, name: str) -> NoReturn:
        raise DeviceError(
            "no GPU is active for Triton: there is no real one, and no emulated one was chosen. Call "
            "tilewright.triton.use(), or set TILEWRIGHT_TRITON_GPU."
        )
