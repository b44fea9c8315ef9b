"""Clock and power of a GPU under load, if AMD's `amdsmi` is installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from tilewright.base.events import Notice, emit

if TYPE_CHECKING:
    from tilewright.runtime.device import Device

MODULE = "amdsmi"


@dataclass(frozen=True, slots=True)
class Reading:
    """A GPU's readings; None if it does not report one."""

    clock_mhz: float | None = None
    power_w: float | None = None


def open_monitor(device: Device) -> Callable[[], Reading] | None:
    """A function that reads a GPU's clock and power now; None without `amdsmi`.

    The GPU is found by its PCI bus address, as HIP and amdsmi number GPUs differently.
    """
    if importlib.util.find_spec(MODULE) is None:
        return None
    smi = importlib.import_module(MODULE)
    try:
        handle = _get_handle(device.bus_address())
    except smi.AmdSmiException as error:
        emit(Notice(f"clock and power of {device.name} will not be recorded: amdsmi reports {error}"))
        return None

    def read() -> Reading:
        try:
            return Reading(_read_clock(smi, handle), _read_power(smi, handle))
        except smi.AmdSmiException as error:
            emit(Notice(f"clock and power of {device.name} cannot be read: amdsmi reports {error}"))
            return Reading()

    return read


@cache
def _get_handle(address: str) -> Any:
    """amdsmi's handle of the GPU at an address. The library is opened once and stays open in this process."""
    smi = importlib.import_module(MODULE)
    smi.amdsmi_init()
    return smi.amdsmi_get_processor_handle_from_bdf(address)


def _read_clock(smi: Any, handle: Any) -> float | None:
    """The engine clock in MHz. It was called cur_clk before ROCm 6.2."""
    info = smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX)
    return _find_number(info, "clk", "cur_clk")


def _read_power(smi: Any, handle: Any) -> float | None:
    """The socket power in watts. GPUs report one of the two values, and N/A for the other."""
    return _find_number(smi.amdsmi_get_power_info(handle), "current_socket_power", "average_socket_power")


def _find_number(info: dict[str, Any], *names: str) -> float | None:
    """The first of these that is a number above 0."""
    for name in names:
        value = info.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return float(value)
    return None
