"""Many threads on emulated devices at once."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scale_calls import HIP_ERROR, ScaleLibrary

from tilewright.emulator.faults import MemoryFault
from tilewright.emulator.hip_shim.shim import open_shim
from tilewright.emulator.launch import Mode
from tilewright.runtime import Device

pytestmark = pytest.mark.compile

GFX942 = Device("emulated:gfx942")


def test_64_threads_get_their_own_results_and_their_own_faults(scale: ScaleLibrary) -> None:
    start = threading.Barrier(64)

    def work(number: int) -> str:
        x = np.arange(number, number + 100, dtype=np.float32)
        mode = Mode.STRICT if number % 4 == 0 else Mode.FAST
        start.wait()
        with GFX942.mode(mode), GFX942.recording() as launches:
            for _ in range(3):
                assert (scale.tripled(GFX942, x, GFX942.stream()) == 3 * x).all()
        assert [launch.mode for launch in launches] == [mode] * 3
        if number % 8 == 0:
            with GFX942.allocate(4, f"of {number}") as short:
                assert scale.run(GFX942, short.address, short.address, 2) == HIP_ERROR
                with pytest.raises(MemoryFault, match=f"'of {number}'"):
                    GFX942.raise_pending("the launch failed")
        return "done"

    with ThreadPoolExecutor(64) as pool:
        assert list(pool.map(work, range(64))) == ["done"] * 64
    GFX942.synchronize()


def test_threads_on_different_devices(scale: ScaleLibrary) -> None:
    def work(number: int) -> bool:
        device = Device(f"emulated:{('gfx90a', 'gfx942', 'gfx950', 'gfx1201')[number % 4]}")
        with device.allocate(1000) as buffer:
            buffer.fill(number)
            seen = np.zeros(1000, np.uint8)
            buffer.copy_to(seen)
            return bool((seen == number).all())

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(64)))


def test_a_fault_of_a_thread_that_ended(scale: ScaleLibrary) -> None:
    with GFX942.allocate(4, "left behind") as short:
        thread = threading.Thread(target=lambda: scale.run(GFX942, short.address, short.address, 2))
        thread.start()
        thread.join()
        with pytest.raises(MemoryFault, match="'left behind'"):
            GFX942.synchronize()
    GFX942.synchronize()


def test_a_buffer_that_is_collected_in_the_middle_of_work_is_freed_after_it() -> None:
    gpu = open_shim().gpus[GFX942.index]
    buffer = GFX942.allocate(64, "collected")
    address = buffer.address
    ring: list[object] = [buffer]
    ring.append(ring)  # only the collector can free it
    del buffer
    with gpu.lock_gpu():
        del ring
        gc.collect()
        gpu.memory.view(address, 64)  # still there
    with pytest.raises(MemoryFault, match=r"'collected'.* was freed"):
        gpu.memory.view(address, 64)
