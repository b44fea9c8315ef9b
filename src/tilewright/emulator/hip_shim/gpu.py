"""One emulated GPU behind the HIP shim: memory, loaded code, launches."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.arch.occupancy import compute_occupancy
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.base.fork_lock import make_fork_lock
from tilewright.emulator.bundle import ELF, find_code_object, list_archs, read_image_at
from tilewright.emulator.device import DeviceKernel, EmulatedDevice, Module
from tilewright.emulator.faults import CodeObjectError, LaunchFault
from tilewright.emulator.hip_shim.host_calls import (
    DEFAULT_HEAP_BYTES,
    HostCalls,
    KernelHeap,
    has_heap,
    has_host_calls,
)
from tilewright.emulator.hip_shim.interface import KernelFacts, LaunchRequest
from tilewright.emulator.hip_shim.settings import LaunchRecord, get_finding_handler, get_settings, record_launch
from tilewright.emulator.inlined_calls import find_source_frames
from tilewright.emulator.kernel_metadata import KernelMetadata
from tilewright.emulator.launch import LIMIT, Counters, Extent, Launch
from tilewright.emulator.memory import Memory
from tilewright.emulator.profile import KernelProfile, ProfileRecorder, list_instructions
from tilewright.emulator.sanitizer.allocation_sites import find_allocation_site
from tilewright.emulator.sanitizer.checks import UNINITIALIZED

if TYPE_CHECKING:
    from tilewright.building.code_object import KernelResources


class UnknownKernelError(LaunchFault):
    """A kernel that the code object does not have."""


class UnknownVariableError(CodeObjectError):
    """A variable that the code object does not have."""


class NoCodeForGpuError(CodeObjectError):
    """A library without code for the GPU that it should run on."""


def _decode_symbol(symbol: bytes) -> str:
    """Return a name that a program passed. Names in code objects are UTF-8, so that no other is among them."""
    return symbol.decode(errors="backslashreplace")


class EmulatedGpu:
    """An emulated GPU. It runs one call at a time, each to its end.

    `find_readelf` returns LLVM's reader of code objects, or None if the compiler adds a listing to them.
    """

    def __init__(self, index: int, arch: Arch, find_readelf: Callable[[], Path | None]) -> None:
        self.index = index
        self.arch = arch
        self.host_calls: HostCalls | None = None
        self._find_readelf = find_readelf
        self.lock = make_fork_lock()
        self._depth = 0
        self._released: list[int] = []
        self._heap: KernelHeap | None = None
        self.heap_bytes = DEFAULT_HEAP_BYTES
        self._images: dict[int, bytes] = {}  # code objects by image number
        self._modules: dict[int, Module] = {}
        self._resources: dict[int, Mapping[str, KernelResources]] = {}

    @cached_property
    def memory(self) -> Memory:
        memory = Memory()
        memory.record_sites(find_allocation_site)
        return memory

    @cached_property
    def _device(self) -> EmulatedDevice:
        return EmulatedDevice(self.arch, self.memory)

    @contextmanager
    def lock_gpu(self) -> Iterator[None]:
        """Lock this GPU inside the `with` block."""
        with self.lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                while self._depth == 0 and self._released:
                    self.memory.free(self._released.pop(0))

    def has_address(self, address: int) -> bool:
        """Whether an address is in this GPU's memory, allocated or not."""
        memory = self.__dict__.get("memory")  # not created before it is needed
        return memory is not None and memory.base <= address < memory.base + memory.capacity

    def allocate(self, size: int, label: str) -> int:
        """Allocate memory; return its address. If a check needs it, the bytes that are written are recorded."""
        with self.lock_gpu():
            if UNINITIALIZED in get_settings(self.index).checks:
                self.memory.track_writes()
            return self.memory.allocate(size, label)

    def release(self, address: int) -> None:
        """Free an allocation. If Python collects a buffer during another call, it is freed after that call."""
        with self.lock_gpu():
            if self._depth > 1:
                self._released.append(address)
            else:
                self.memory.free(address)

    def keep_image(self, image: int, address: int) -> None:
        """Keep a copy of the code for this GPU in the image at an address, which its owner may free afterwards."""
        data = read_image_at(address)
        if not data.startswith(ELF) and self.arch.name not in (archs := list_archs(data)):
            there = ", ".join(archs) or "no GPU"
            raise NoCodeForGpuError(
                f"the image has no code for {self.arch.name}, only for {there}. Build it for this GPU."
            )
        self._images[image] = find_code_object(data, self.arch.name)

    def drop_image(self, image: int) -> None:
        """Drop an image that was unloaded."""
        with self.lock_gpu():
            self._images.pop(image, None)
            self._resources.pop(image, None)
            module = self._modules.pop(image, None)
            if module is not None:
                self._device.unload(module)

    def find_kernel(self, image: int, address: int | None, symbol: bytes) -> DeviceKernel:
        """Return a kernel of an image, whose code is loaded at first use."""
        kernels = self._load_module(image, address).kernels
        name = _decode_symbol(symbol)
        if name not in kernels:
            raise UnknownKernelError(f"kernel '{name}' is missing; the code object has {', '.join(kernels) or 'none'}")
        return kernels[name]

    def find_variable(self, image: int, address: int | None, symbol: bytes) -> tuple[int, int]:
        """Return address and size of a variable of an image, whose code is loaded at first use."""
        name = _decode_symbol(symbol)
        with self.lock_gpu():
            found = self._load_module(image, address).find_variable(name)
        if found is None:
            raise UnknownVariableError(f"variable '{name}' is missing")
        return found

    def _load_module(self, image: int, address: int | None) -> Module:
        if image not in self._modules:
            if image not in self._images and address is not None:
                self.keep_image(image, address)
            self._modules[image] = self._device.load(self._images[image])
        return self._modules[image]

    def describe_kernel(self, request: LaunchRequest) -> KernelFacts:
        """Return the needs of a kernel."""
        with self.lock_gpu():
            kernel = self.find_kernel(request.image, request.data, request.kernel)
        most = min(kernel.metadata.max_block_threads, self.arch.compute.max_block_threads)
        descriptor = kernel.descriptor
        return KernelFacts(descriptor.vgprs, most, descriptor.lds_bytes, descriptor.private_bytes)

    def pack_arguments(self, request: LaunchRequest) -> bytes:
        """Return the arguments of a launch in memory layout."""
        with self.lock_gpu():
            kernel = self.find_kernel(request.image, request.data, request.kernel)
        return pack_arguments(kernel.metadata, request)

    def launch(self, request: LaunchRequest) -> None:
        """Run a launch to its end."""
        settings = get_settings(self.index)
        recorder = ProfileRecorder() if settings.profile else None
        with self.lock_gpu(), ExitStack() as stack:
            kernel = self.find_kernel(request.image, request.data, request.kernel)
            grid, block = Extent(*request.grid), Extent(*request.block)
            packets = 0
            heap = self._find_heap(kernel.metadata)
            if self.host_calls is not None and has_host_calls(kernel.metadata):
                waves = grid.count * -(-block.count // self.arch.wave_size)
                packets = stack.enter_context(self.host_calls.serve(self.memory, waves, heap))
            launch = Launch(
                grid,
                block,
                pack_arguments(kernel.metadata, request),
                request.dynamic_lds,
                packets,
                bool(request.cooperative),
                0 if heap is None else heap.state,
            )
            if settings.exchange is not None:
                kernel = settings.exchange(kernel)
            counters = self._device.launch(
                kernel,
                launch,
                settings.mode,
                detailed=settings.detailed,
                limit=LIMIT if settings.limit is None else settings.limit,
                engine=settings.engine,
                turned=settings.turned,
                profile=recorder,
                checks=settings.checks,
                found=get_finding_handler(),
            )
            profile = None if recorder is None else self._make_profile(recorder, request, kernel, launch, counters)
        record_launch(self.index, LaunchRecord(kernel.name, grid, block, counters, settings.mode, profile))

    def _make_profile(
        self,
        recorder: ProfileRecorder,
        request: LaunchRequest,
        kernel: DeviceKernel,
        launch: Launch,
        counters: Counters,
    ) -> KernelProfile:
        used = self._find_resources(request.image)[kernel.name]
        return KernelProfile(
            kernel=kernel.name,
            arch=self.arch.name,
            wave_size=self.arch.wave_size,
            grid=launch.grid,
            block=launch.block,
            waves=counters.waves,
            vgprs=used.vgprs,
            lds_bytes=used.lds_bytes + launch.dynamic_lds,
            blocks_per_unit=self._count_resident_blocks(used, launch.block.count, launch.dynamic_lds),
            instructions=list_instructions(
                recorder, kernel.program.lines, lambda address: find_source_frames(kernel.code_object, address)[0]
            ),
            paths=recorder.paths.list_paths(-(-launch.block.count // self.arch.wave_size)),
        )

    def _find_heap(self, kernel: KernelMetadata) -> KernelHeap | None:
        """Return the heap if a kernel may allocate memory. It is made at its first use."""
        if self.host_calls is None or not has_heap(kernel):
            return None
        if self._heap is None:
            self._heap = self.host_calls.make_heap(self.memory, self.heap_bytes)
        return self._heap

    def limit_heap(self, size: int) -> None:
        """Set the size of the heap, which must not be in use yet."""
        with self.lock_gpu():
            if self._heap is not None:
                raise InvalidValueError("the heap of the kernels is in use, its size cannot be changed any more")
            self.heap_bytes = size

    def count_resident_blocks(self, request: LaunchRequest) -> int:
        """Return the number of work-groups of a kernel that are resident on one compute unit."""
        with self.lock_gpu():
            name = self.find_kernel(request.image, request.data, request.kernel).name
            used = self._find_resources(request.image)[name]
        threads = request.block[0]
        if threads > used.max_block_threads:
            raise InvalidValueError(f"{threads} threads in a work-group; kernel {name} allows {used.max_block_threads}")
        return self._count_resident_blocks(used, threads, request.dynamic_lds)

    def _find_resources(self, image: int) -> Mapping[str, KernelResources]:
        if image not in self._resources:
            self._resources[image] = self._read_resources(self._images[image])
        return self._resources[image]

    def _count_resident_blocks(self, used: KernelResources, threads: int, dynamic_lds: int) -> int:
        return compute_occupancy(
            self.arch,
            vgprs=used.vgprs,
            agprs=used.agprs,
            sgprs=used.sgprs,
            lds_bytes=used.lds_bytes + dynamic_lds,
            block_threads=threads,
        ).blocks_per_unit

    def _read_resources(self, code: bytes) -> Mapping[str, KernelResources]:
        import tempfile  # noqa: PLC0415 - both take long to import

        from tilewright.building.code_object import read_resources_with  # noqa: PLC0415

        with tempfile.NamedTemporaryFile(suffix=".co") as file:
            file.write(code)
            file.flush()
            listed = read_resources_with(self._find_readelf(), Path(file.name), self.arch)
        return {kernel.name: kernel for kernel in listed}


def pack_arguments(kernel: KernelMetadata, request: LaunchRequest) -> bytes:
    """Return the arguments of a launch in memory layout, from one pointer per argument or the caller's bytes."""
    if request.packed:
        return ctypes.string_at(request.packed, request.packed_bytes)
    explicit = [argument for argument in kernel.arguments if not argument.hidden]
    room = bytearray(kernel.explicit_bytes)
    for number, argument in enumerate(explicit):
        source = request.arguments[number] if request.arguments else None
        if source is None:
            raise LaunchFault(f"argument {number} of {len(explicit)} is missing: its pointer is null")
        room[argument.offset : argument.offset + argument.size] = ctypes.string_at(source, argument.size)
    return bytes(room)
