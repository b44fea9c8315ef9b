"""Runtime: HIP, devices, buffers, streams and kernel libraries. Everything is loaded on first use."""

from tilewright.runtime.buffers import Buffer
from tilewright.runtime.device import Device, current_device, devices
from tilewright.runtime.hip import HipError
from tilewright.runtime.streams import Stream, StreamEvent

__all__ = ["Buffer", "Device", "HipError", "Stream", "StreamEvent", "current_device", "devices"]
