"""Triton's driver of an emulated GPU: it tells the target, loads code objects and makes launchers.

Triton finds the class by the entry point in the group `triton.backends`, and makes one itself if the environment
variable TILEWRIGHT_TRITON_GPU is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from triton.backends.driver import DriverBase

from tilewright.base import knobs
from tilewright.base.errors import DeviceError, KnobError
from tilewright.emulator.sanitizer.checks import UNINITIALIZED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tilewright.triton.gpu import LoadedKernel, TritonGpu
    from tilewright.triton.uninitialized_tensors import MarkUninitializedTensors

FAST = "fast"


class EmulatedDriver(DriverBase):  # type: ignore[misc]  # Triton's classes have no types
    """An emulated GPU as Triton's active driver. Without arguments, GPU and mode are those of the environment."""

    chosen: ClassVar[list[EmulatedDriver]] = []  # by `tilewright.triton.use`, the newest last

    def __init__(self, gpu: str | None = None, mode: str | None = None, checks: str | Iterable[str] = ()) -> None:
        from tilewright.triton.gpu import TritonGpu  # noqa: PLC0415  (Triton imports this module early)
        from tilewright.triton.launcher import Launcher  # noqa: PLC0415

        gpu = gpu or knobs.TRITON_GPU.get()
        if gpu is None:
            raise KnobError(f"{knobs.TRITON_GPU.name} is not set; name a GPU in it, such as gfx942")
        self.gpu = TritonGpu(gpu, mode or knobs.TRITON_MODE.get() or FAST, checks or knobs.TRITON_CHECK.get() or ())
        self.marker = _mark_tensors() if UNINITIALIZED in self.gpu.checks else None
        self.utils = DriverFunctions(self.gpu)
        self.launcher_cls = Launcher

    def close(self) -> None:
        """Free mapped tensors, and let torch's functions be as before."""
        if self in self.chosen:
            self.chosen.remove(self)
        self.gpu.unmap_tensors()
        if self.marker is not None:
            self.marker.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self.marker = None

    @classmethod
    def is_active(cls) -> bool:
        """Return whether the environment names a GPU, or `use` chose one: Triton's tests ask for the target so."""
        return bool(cls.chosen) or knobs.TRITON_GPU.get() is not None

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Return the type itself: no C++ launcher is compiled."""
        return ty

    def get_current_target(self) -> Any:
        """Return the GPU as a target of Triton's AMD compiler."""
        from triton.backends.compiler import GPUTarget  # noqa: PLC0415

        return GPUTarget("hip", self.gpu.arch.name, self.gpu.arch.wave_size)

    def get_active_torch_device(self) -> Any:
        """Return torch's device for tensors: host memory."""
        import torch  # noqa: PLC0415

        return torch.device("cpu")

    def get_current_device(self) -> str:
        """Return a key, unlike the number of any real GPU: Triton keeps compiled kernels by it."""
        return f"emulated:{self.gpu.arch.name}"

    def set_current_device(self, device: object) -> None:
        """Accept only the device that is current anyway."""
        if device not in (self.get_current_device(), 0):
            raise DeviceError(f"there is one device, {self.get_current_device()}, and {device!r} was asked for")

    def get_current_stream(self, device: object) -> int:  # noqa: ARG002
        """Return the null stream: a launch ends before it returns."""
        return 0

    def get_device_interface(self) -> type[DeviceInterface]:
        """Return the functions that Triton otherwise takes from `torch.cuda`."""
        return DeviceInterface

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        """Return the function by which the autotuner compares configs: it counts instructions."""
        return self._count_instructions

    def _count_instructions(
        self, kernel_call: Callable[[], object], *, quantiles: Sequence[float], **_: object
    ) -> Sequence[float]:
        """Run a config once and return the instructions of its waves, as if they were milliseconds."""
        before = self.gpu.executed_instructions
        kernel_call()
        return [float(self.gpu.executed_instructions - before)] * len(quantiles)

    def get_empty_cache_for_benchmark(self) -> Any:
        """Raise: only `do_bench` asks for it."""
        raise make_timing_error("triton.testing.do_bench")

    def clear_cache(self, cache: object) -> None:  # noqa: ARG002
        """Raise: only `do_bench` asks for it."""
        raise make_timing_error("triton.testing.do_bench")

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: object) -> Any:  # noqa: ARG002
        """Return zeroed memory for kernels with profiling instructions."""
        import torch  # noqa: PLC0415

        return torch.zeros(size, dtype=torch.int8)


def _mark_tensors() -> MarkUninitializedTensors:
    """Mark tensors that nobody wrote, from now on, in this thread."""
    from tilewright.triton.uninitialized_tensors import MarkUninitializedTensors  # noqa: PLC0415 - it needs torch

    marker = MarkUninitializedTensors()
    marker.__enter__()  # type: ignore[no-untyped-call]
    return marker


class DriverFunctions:
    """The functions that Triton otherwise gets from a C library on top of HIP."""

    def __init__(self, gpu: TritonGpu) -> None:
        self._gpu = gpu

    def get_device_properties(self, device: object) -> dict[str, int | str]:  # noqa: ARG002
        """Return the properties that are known of the GPU, by Triton's names."""
        arch = self._gpu.arch
        return {
            "arch": arch.name,
            "warpSize": arch.wave_size,
            "multiprocessor_count": arch.compute.units,
            "max_shared_mem": arch.lds.bytes,
            # The registers of a unit, in 32-bit registers of a lane, as HIP counts them.
            "max_num_regs": arch.registers.vgprs * arch.wave_size * arch.compute.simds_per_unit,
            "max_threads_per_sm": arch.compute.max_waves_per_simd * arch.compute.simds_per_unit * arch.wave_size,
            "sm_clock_rate": arch.compute.clock_mhz * 1000,
            "cooperativeLaunch": 1,
        }

    def load_binary(
        self,
        name: str,
        binary: bytes,
        shared: int,  # noqa: ARG002
        device: object,  # noqa: ARG002
    ) -> tuple[LoadedKernel, LoadedKernel, int, int, int]:
        """Load a code object; return module, function, registers, spills and the most threads of a work-group."""
        loaded = self._gpu.load_kernel(name, binary)
        kernel = loaded.kernel
        return loaded, loaded, kernel.descriptor.vgprs, 0, kernel.metadata.max_block_threads

    def unload_module(self, module: LoadedKernel) -> None:
        """Free a code object, which may belong to another emulated GPU."""
        module.unload()


class DeviceInterface:
    """The functions of `torch.cuda` that Triton's own helpers call."""

    @staticmethod
    def synchronize(device: object = None) -> None:
        """Do nothing: a launch ends before it returns."""

    @staticmethod
    def current_device() -> int:
        """Return 0, the only device."""
        return 0

    @staticmethod
    def Event(**_: object) -> object:  # noqa: N802 - torch's name
        """Raise: events measure time."""
        raise make_timing_error("an event")


def make_timing_error(what: str) -> DeviceError:
    """Make the error for everything that asks for a time."""
    return DeviceError(
        f"{what} measures time, and an emulated GPU has none. Count instructions instead, with `last_launch.counters` "
        "of the object that tilewright.triton.use() returns, or measure on a GPU."
    )
