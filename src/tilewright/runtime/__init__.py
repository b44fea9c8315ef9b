"""Runtime: HIP, devices, buffers, streams and kernel libraries. Everything is loaded on first use."""

from tilewright.runtime.device import Device, current_device, devices
from tilewright.runtime.device_objects import Buffer, Stream, StreamEvent
from tilewright.runtime.hip import HipError

__all__ = ["Buffer", "Device", "HipError", "Stream", "StreamEvent", "current_device", "devices"]
