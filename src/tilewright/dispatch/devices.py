"""Resolves the device or GPU of a problem."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.base.errors import DeviceError, InvalidValueError, TensorError

if TYPE_CHECKING:
    from tilewright.runtime.device import Device


def resolve_device(device: Device | str | None, places: Iterable[Any] = ()) -> Device:
    """The device: the argument's, else the tensors', else the current one. A default does not exist.

    `places` are the devices of the tensors: a device, or the index of a GPU.
    """
    from tilewright.runtime.device import Device, current_device, devices  # noqa: PLC0415  (needed only to run)

    named = Device(device) if isinstance(device, str) else device
    held = {Device(f"gpu:{place}") if isinstance(place, int) else place for place in places}
    if named is not None:
        if held - {named}:
            raise TensorError(
                f"device is {named.name}, but tensors are on {_join_names(held - {named})}: copy them first"
            )
        return named
    if len(held) > 1:
        raise TensorError(f"tensors are on several devices: {_join_names(held)}. Copy them to one.")
    found = held.pop() if held else current_device()
    if found is None:
        raise DeviceError(
            "no device is set: pass device=…, use `with tilewright.Device(…):`, or set TILEWRIGHT_DEVICE. "
            f"Available: {', '.join(each.name if isinstance(each, Device) else str(each) for each in devices())}."
        )
    return found


def resolve_arch(where: Device | Arch | str | None, present: Sequence[str]) -> Arch:
    """The GPU to select for: a device's, or a named one. Without a device, the only GPU in `present`."""
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
        f"there are kernels for {', '.join(present) or 'no GPU'}: pass device=…, a device or the name of a GPU"
    )


def _join_names(devices: Iterable[Device]) -> str:
    return ", ".join(sorted(device.name for device in devices))
