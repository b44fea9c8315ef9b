"""On which device, or for which GPU, a problem is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.base.errors import DeviceError, InvalidValueError, TensorError

if TYPE_CHECKING:
    from tilewright.runtime.device import Device


def resolve_device(device: Device | str | None, places: Iterable[Any] = ()) -> Device:
    """The device: the argument's, else the tensors', else the current one. There is no default.

    `places` are those of device tensors: a device, or the number of a GPU.
    """
    from tilewright.runtime.device import Device, current_device, devices  # noqa: PLC0415  (needed to run, not to choose)

    named = Device(device) if isinstance(device, str) else device
    held = {Device(f"gpu:{place}") if isinstance(place, int) else place for place in places}
    if named is not None:
        if held - {named}:
            raise TensorError(f"device is {named.name}, but tensors are on {_names(held - {named})}: copy them first")
        return named
    if len(held) > 1:
        raise TensorError(f"tensors are on several devices: {_names(held)}. Copy them to one.")
    found = held.pop() if held else current_device()
    if found is None:
        raise DeviceError(
            "no device was named: give device=…, use `with tilewright.Device(…):`, or set TILEWRIGHT_DEVICE. "
            f"There are {', '.join(each.name if isinstance(each, Device) else str(each) for each in devices())}."
        )
    return found


def resolve_arch(where: Device | Arch | str | None, present: Sequence[str]) -> Arch:
    """The GPU to choose for: of a device, or named. Without a device, the only GPU that kernels are `present` for."""
    from tilewright.runtime.device import Device, current_device  # noqa: PLC0415  (see above)

    if isinstance(where, Arch):
        return where
    if isinstance(where, str):
        return Device(where).arch if ":" in where else archs.load(where)
    device = where if where is not None else current_device()
    if device is not None:
        return device.arch
    if len(present) == 1:
        return archs.load(present[0])
    raise InvalidValueError(
        f"there are kernels for {', '.join(present) or 'no GPU'}: say for which with device=…, a device or a GPU's name"
    )


def _names(devices: Iterable[Device]) -> str:
    return ", ".join(sorted(device.name for device in devices))
