"""The launcher of one compiled Triton kernel: arguments to bytes, tensors to the GPU, and the launch."""

from __future__ import annotations

from typing import Any

import triton
from triton.runtime import _allocation
from triton.runtime.jit import TensorWrapper

from tilewright.base.errors import DeviceError, TensorError
from tilewright.emulator.faults import LaunchFault
from tilewright.emulator.launch import Extent, Launch
from tilewright.triton.arguments import KernelArgument, flatten_arguments, pack_number
from tilewright.triton.gpu import LoadedKernel, TritonGpu, describe_tensor
from tilewright.triton.tensor_memory import TensorMemory


class Launcher:
    """Launches a kernel with the signature of `source`. Triton makes one for each compiled kernel."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self._names = [str(name) for name in source.signature]
        self._kinds = list(source.signature.values())
        self._threads = metadata.num_warps * metadata.warp_size
        self._lds_bytes = metadata.shared
        self._cooperative = metadata.launch_cooperative_grid
        # Kernels of Triton 3.5 have no global scratch memory on AMD GPUs.
        self._global_scratch = (
            getattr(metadata, "global_scratch_size", 0),
            getattr(metadata, "global_scratch_align", 1),
        )
        self._profile_scratch = (metadata.profile_scratch_size, metadata.profile_scratch_align)

    def __call__(
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: object,
        loaded: LoadedKernel,
        kernel_metadata: object,  # noqa: ARG002
        launch_metadata: object,
        enter_hook: Any,
        exit_hook: Any,
        *values: Any,
    ) -> None:
        """Launch the kernel and wait for its end."""
        gpu = _find_gpu(loaded)
        programs = grid_x * grid_y * grid_z
        arguments = [*self._flatten(values), *self._allocate_scratch(programs, stream)]
        if enter_hook is not None:
            enter_hook(launch_metadata)
        if programs > 0:
            tensors = TensorMemory(gpu.device.memory, gpu.mapped)
            try:
                data = _pack_arguments(loaded, arguments, tensors)
                grid, block = Extent(grid_x, grid_y, grid_z), Extent(self._threads)
                launch = Launch(grid, block, data, dynamic_lds=self._lds_bytes, cooperative=self._cooperative)
                gpu.run_kernel(loaded, launch, tensors)
            finally:
                tensors.free()
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _flatten(self, values: tuple[Any, ...]) -> list[KernelArgument]:
        if len(values) != len(self._kinds):
            names = ", ".join(self._names)
            raise TypeError(f"{len(values)} arguments given; the kernel takes {len(self._kinds)}: {names}")
        parameters = zip(self._names, self._kinds, values, strict=True)
        return [item for name, kind, value in parameters for item in flatten_arguments(name, kind, value)]

    def _allocate_scratch(self, programs: int, stream: object) -> list[KernelArgument]:
        """Return the two pointers that the compiler adds: scratch memory for all programs, null if none is needed."""
        size, alignment = self._global_scratch
        # Without triton.set_allocator, Triton's own allocator raises an error that tells to call it.
        memory = _allocation._allocator.get()(programs * size, alignment, stream) if programs * size else None
        size, alignment = self._profile_scratch
        driver = triton.runtime.driver.active
        profile = (
            driver.allocate_default_profile_scratch(programs * size, alignment, stream) if programs * size else None
        )
        return [KernelArgument("global scratch", "*i8", memory), KernelArgument("profile scratch", "*i8", profile)]


def _find_gpu(loaded: LoadedKernel) -> TritonGpu:
    """Return the active GPU, which must be the one of the kernel."""
    gpu = getattr(triton.runtime.driver.active, "gpu", None)
    if not isinstance(gpu, TritonGpu):
        raise DeviceError("the kernel is for an emulated GPU, but none is active. Call tilewright.triton.use().")
    if gpu.device is not loaded.device:
        made_for, active = loaded.device.arch.name, gpu.arch.name
        raise DeviceError(f"the kernel was compiled for {made_for}, but {active} is active. Compile it for {active}.")
    return gpu


def _pack_arguments(loaded: LoadedKernel, arguments: list[KernelArgument], tensors: TensorMemory) -> bytes:
    """Write each argument to its place in the kernel's argument memory, which the code object tells."""
    metadata = loaded.kernel.metadata
    slots = [item for item in metadata.arguments if not item.hidden]
    # A kernel of an older Triton has fewer pointers to scratch memory.
    if not len(arguments) - 2 <= len(slots) <= len(arguments):
        given = f"{len(arguments) - 2} arguments and up to 2 scratch pointers are given"
        raise LaunchFault(f"kernel {metadata.name} takes {len(slots)} arguments; {given}")
    _copy_tensors(arguments, tensors)
    data = bytearray(metadata.explicit_bytes)
    for slot, argument in zip(slots, arguments, strict=False):
        packed = _find_pointer(argument, tensors) if argument.is_pointer else pack_number(argument.kind, argument.value)
        if len(packed) < slot.size:
            raise LaunchFault(f"argument '{argument.name}' is {argument.kind}; the kernel expects {slot.size} bytes")
        data[slot.offset : slot.offset + slot.size] = packed[: slot.size]
    return bytes(data)


def _copy_tensors(arguments: list[KernelArgument], tensors: TensorMemory) -> None:
    """Copy the tensors of a launch to the GPU, each storage once, labelled with all arguments that are in it."""
    of_storage: dict[int, list[tuple[str, Any]]] = {}
    for argument in arguments:
        tensor = _find_tensor(argument.value) if argument.is_pointer else None
        if tensor is not None:
            start = tensor.untyped_storage().data_ptr()
            of_storage.setdefault(start, []).append((argument.name, tensor))
    for views in of_storage.values():
        label = ", ".join(f"{name}: {describe_tensor(tensor)}" for name, tensor in views)
        tensors.find_address(views[0][1], label)


def _find_tensor(value: Any) -> Any | None:
    """Return the tensor of a pointer argument: itself, or the one in the result of triton.reinterpret; or None."""
    tensor = value.base if isinstance(value, TensorWrapper) else value
    return tensor if hasattr(tensor, "untyped_storage") else None


def _find_pointer(argument: KernelArgument, tensors: TensorMemory) -> bytes:
    """Return the address of a pointer argument on the GPU."""
    value = argument.value
    if (tensor := _find_tensor(value)) is not None:
        address = tensors.find_address(tensor, argument.name)
    elif value is None:
        address = 0
    elif isinstance(value, int):
        address = _translate_address(argument, value, tensors)
    elif hasattr(value, "data_ptr"):
        address = _translate_address(argument, value.data_ptr(), tensors)
    else:
        raise TypeError(
            f"Pointer argument must be either uint64 or have data_ptr method; '{argument.name}' is a "
            f"{type(value).__name__}"
        )
    return address.to_bytes(8, "little")


def _translate_address(argument: KernelArgument, address: int, tensors: TensorMemory) -> int:
    """Translate an address in host memory, which must be inside a tensor; addresses on the GPU stay as they are."""
    if address == 0 or tensors.contains(address):
        return address
    found = tensors.translate(address)
    if found is None:
        raise TensorError(
            f"argument '{argument.name}' is the address {address:#x}, which is in no tensor of this launch. Pass the "
            "tensor, or give kernels its address with `map_tensor` of the object that tilewright.triton.use() returns."
        )
    return found
