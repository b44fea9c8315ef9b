"""The Python side of the HIP shim: its callbacks, and the HIP status of exceptions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.base.errors import DeviceError, InvalidValueError, TilewrightError
from tilewright.emulator.faults import CodeObjectError, Fault, LaunchFault, MemoryFault
from tilewright.emulator.hip_shim import deferred_errors
from tilewright.emulator.hip_shim.gpu import EmulatedGpu, NoCodeForGpuError, UnknownKernelError, UnknownVariableError
from tilewright.emulator.hip_shim.interface import RESULT_CODE, RESULT_LOG, RESULT_NAME, AllocationRange
from tilewright.emulator.hip_shim.settings import get_label

# Values of hipError_t, hip_runtime_api.h.
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_CONFIGURATION = 9
INVALID_DIRECTION = 21
INVALID_IMAGE = 200
NO_BINARY = 209
NOT_FOUND = 500
ILLEGAL_ADDRESS = 700
LAUNCH_FAILURE = 719
NOT_SUPPORTED = 801
UNKNOWN = 999
# Values of hiprtcResult, hiprtc.h.
RTC_SUCCESS, RTC_COMPILATION = 0, 6

# The first matching line decides.
_OF_CODE: Sequence[tuple[type[BaseException], int]] = (
    (UnknownKernelError, NOT_FOUND),
    (UnknownVariableError, NOT_FOUND),
    (LaunchFault, INVALID_CONFIGURATION),
    (NoCodeForGpuError, NO_BINARY),
    (CodeObjectError, INVALID_IMAGE),
    (MemoryFault, ILLEGAL_ADDRESS),
    (InvalidValueError, INVALID_VALUE),
)
# hipMemcpyKind: kind of memory of target and source; hipMemcpyDefault (4) infers it from the addresses.
_DIRECTIONS = {0: ("host", "host"), 1: ("device", "host"), 2: ("host", "device"), 3: ("device", "device")}
_BY_ADDRESS = 4
# Sources that are not UTF-8 keep their bytes.
_KEEP = "surrogateescape"


class DirectionError(DeviceError):
    """A copy whose direction contradicts its addresses."""


class MissingCallError(DeviceError):
    """A call of a HIP function that is not implemented."""

    def __init__(self, call: str) -> None:
        self.call = call
        super().__init__(f"{call} is not implemented by the emulated device: it returns hipErrorNotSupported")


class HipCallbacks:
    """The callbacks in `interface.CALLBACKS`. They return a status; `deferred_errors` keeps the exception behind it.

    `find_compiler` returns the command that compiles a source for a GPU to a code object; `at_end` is called when the
    process ends.
    """

    def __init__(
        self,
        gpus: Sequence[EmulatedGpu],
        find_compiler: Callable[[Arch], Sequence[str]],
        at_end: Callable[[], None] | None = None,
    ) -> None:
        self._gpus = gpus
        self._find_compiler = find_compiler
        self._at_end = at_end

    def launch(self, request: Any) -> int:
        asked = request.contents
        return self._run_with_status(asked.device, self._find_code_status, lambda gpu: gpu.launch(asked))

    def occupancy(self, request: Any, blocks: Any) -> int:
        asked = request.contents

        def execute(gpu: EmulatedGpu) -> None:
            blocks[0] = gpu.count_resident_blocks(asked)

        return self._run_with_status(asked.device, self._find_code_status, execute)

    def load(self, device: int, image: int, data: int) -> int:
        return self._run_with_status(device, self._find_code_status, lambda gpu: gpu.keep_image(image, data))

    def find(self, device: int, image: int, kernel: bytes) -> int:
        def execute(gpu: EmulatedGpu) -> None:
            with gpu.lock_gpu():
                gpu.find_kernel(image, None, kernel)

        return self._run_with_status(device, self._find_code_status, execute)

    def unload(self, image: int) -> int:
        for gpu in self._gpus:
            gpu.drop_image(image)
        return 0

    def allocate(self, device: int, size: int, address: Any) -> int:
        def execute(gpu: EmulatedGpu) -> None:
            address[0] = gpu.allocate(size, get_label())

        return self._run_with_status(device, self._find_memory_status, execute)

    def release(self, device: int, address: int) -> int:
        def execute(_: EmulatedGpu) -> None:
            owner = self._find_owner(address)
            if owner is None:
                raise MemoryFault(f"{address:#x} is freed, but it is not in the memory of an emulated device")
            owner.release(address)

        return self._run_with_status(device, self._find_memory_status, execute)

    def copy(self, device: int, target: int | None, source: int | None, size: int, direction: int) -> int:
        return self._run_with_status(
            device, self._find_memory_status, lambda _: self._copy(target or 0, source or 0, size, direction)
        )

    def fill(self, device: int, target: int | None, pitch: int, value: int, width: int, height: int) -> int:
        def execute(_: EmulatedGpu) -> None:
            owner = self._find_owner(target or 0)
            if owner is None:
                raise MemoryFault(f"{target or 0:#x} is filled, but it is not in the memory of an emulated device")
            if height > 1 and pitch < width:
                raise InvalidValueError(f"a pitch of {pitch} bytes is less than the width of {width}")
            with owner.lock_gpu():
                owner.memory.view(target or 0, pitch * (height - 1) + width)  # all rows must be in one allocation
                for row in range(height):
                    owner.memory.fill((target or 0) + row * pitch, value & 0xFF, width)

        return self._run_with_status(device, self._find_memory_status, execute)

    def pack(self, request: Any, target: int | None, room: int, size: Any) -> int:
        asked = request.contents

        def execute(gpu: EmulatedGpu) -> None:
            packed = gpu.pack_arguments(asked)
            size[0] = len(packed)
            if target is not None:
                ctypes.memmove(target, packed, min(len(packed), room))

        return self._run_with_status(asked.device, self._find_code_status, execute)

    def facts(self, request: Any, facts: Any) -> int:
        asked = request.contents

        def execute(gpu: EmulatedGpu) -> None:
            facts[0] = gpu.describe_kernel(asked)

        return self._run_with_status(asked.device, self._find_code_status, execute)

    def variable(self, device: int, image: int, data: int | None, name: bytes, address: Any, size: Any) -> int:
        def execute(gpu: EmulatedGpu) -> None:
            address[0], size[0] = gpu.find_variable(image, data, name)

        return self._run_with_status(device, self._find_code_status, execute)

    def range(self, device: int, address: int | None, found: Any) -> int:
        def execute(_: EmulatedGpu) -> None:
            owner = self._find_owner(address or 0)
            place = None if owner is None else owner.memory.find_range(address or 0)
            if owner is not None and place is not None:
                found[0] = AllocationRange(*place, owner.index)

        return self._run_with_status(device, self._find_memory_status, execute)

    def room(self, device: int, left: Any) -> int:
        def execute(gpu: EmulatedGpu) -> None:
            left[0] = gpu.memory.count_free_bytes()

        return self._run_with_status(device, self._find_memory_status, execute)

    def heap(self, device: int, size: Any, change: int) -> int:
        def execute(gpu: EmulatedGpu) -> None:
            if change:
                gpu.limit_heap(size[0])
            size[0] = gpu.heap_bytes

        return self._run_with_status(device, self._find_memory_status, execute)

    def compile(self, request: Any) -> int:
        from tilewright.emulator.hip_shim.run_time_compiler import (  # noqa: PLC0415 - takes long to import
            CompiledSource,
            compile_source,
        )

        asked = request.contents
        arch = self._gpus[asked.device].arch

        def read(texts: Any, count: int) -> list[str]:
            return [texts[number].decode(errors=_KEEP) for number in range(count)]

        headers = zip(
            read(asked.header_names, asked.header_count), read(asked.headers, asked.header_count), strict=True
        )
        try:
            done = compile_source(
                self._find_compiler(arch),
                arch.name,
                asked.name.decode(errors=_KEEP),
                asked.source.decode(errors=_KEEP),
                dict(headers),
                read(asked.options, asked.option_count),
                read(asked.expressions, asked.expression_count),
            )
        except TilewrightError as error:
            done = CompiledSource(str(error), b"", ())
        log = done.log.encode(errors=_KEEP)
        asked.keep(asked.program, RESULT_LOG, log, len(log))
        asked.keep(asked.program, RESULT_CODE, done.code, len(done.code))
        for name in done.names:
            asked.keep(asked.program, RESULT_NAME, name.encode(), len(name.encode()))
        return RTC_SUCCESS if done.code else RTC_COMPILATION

    def missing(self, call: bytes) -> int:
        deferred_errors.keep_error(None, MissingCallError(call.decode()))
        return NOT_SUPPORTED

    def finish(self) -> int:
        if self._at_end is not None:
            self._at_end()
        return 0

    def _copy(self, target: int, source: int, size: int, direction: int) -> None:
        owners = [self._find_owner(address) for address in (target, source)]
        found = tuple("host" if owner is None else "device" for owner in owners)
        wanted = found if direction == _BY_ADDRESS else _DIRECTIONS.get(direction)
        if wanted is None:
            raise InvalidValueError(f"{direction} is not a copy direction; known are 0 to {_BY_ADDRESS}")
        if found != wanted:
            raise DirectionError(
                f"a copy to {wanted[0]} from {wanted[1]} has a target on the {found[0]} ({target:#x}) "
                f"and a source on the {found[1]} ({source:#x})"
            )
        if 0 in (target, source):
            raise InvalidValueError(f"a copy of {size} bytes has a null address")
        with ExitStack() as stack:
            for owner in sorted({owner.index: owner for owner in owners if owner is not None}.items()):
                stack.enter_context(owner[1].lock_gpu())
            for owner_of, address in zip(owners, (target, source), strict=True):
                if owner_of is not None:
                    owner_of.memory.view(address, size)  # must be in one allocation
            ctypes.memmove(target, source, size)
            if owners[0] is not None:
                owners[0].memory.mark_copied(target, source, size)

    def _find_owner(self, address: int) -> EmulatedGpu | None:
        for gpu in self._gpus:  # not a generator: every copy of every kernel asks twice
            if gpu.has_address(address):
                return gpu
        return None

    def _run_with_status(
        self, device: int, status_of: Callable[[BaseException], int], act: Callable[[EmulatedGpu], None]
    ) -> int:
        """Return the status of `act`: 0, or the status for its exception, which is kept."""
        try:
            act(self._gpus[device])
        except BaseException as error:  # also Ctrl-C: the caller is C code, which cannot propagate it
            deferred_errors.keep_error(device, error)
            return status_of(error)
        return 0

    @staticmethod
    def _find_code_status(error: BaseException) -> int:
        return next((status for kind, status in _OF_CODE if isinstance(error, kind)), LAUNCH_FAILURE)

    @staticmethod
    def _find_memory_status(error: BaseException) -> int:
        if isinstance(error, DirectionError):
            return INVALID_DIRECTION
        if isinstance(error, (Fault, InvalidValueError)):
            return INVALID_VALUE
        return OUT_OF_MEMORY if isinstance(error, DeviceError) else UNKNOWN
