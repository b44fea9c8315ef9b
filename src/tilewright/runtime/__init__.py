"""Running on a device: HIP bound once, devices, buffers, streams, kernel libraries. All is loaded on first use."""

from tilewright.runtime.buffers import Buffer
from tilewright.runtime.device import Device, current_device, devices
from tilewright.runtime.errors import HipError
from tilewright.runtime.streams import Event, Stream

__all__ = ["Buffer", "Device", "Event", "HipError", "Stream", "current_device", "devices"]
