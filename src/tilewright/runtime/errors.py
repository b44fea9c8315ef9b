"""A HIP status as an exception."""

from __future__ import annotations

from tilewright.base.errors import DeviceError, DeviceMemoryError

OUT_OF_MEMORY = 2  # hipErrorOutOfMemory
NO_DEVICE = 100  # hipErrorNoDevice

# Advice for a status whose name does not explain it. Numbers are those of hipError_t in hip_runtime_api.h.
_ADVICE = {
    OUT_OF_MEMORY: "Free buffers, or use a device with more memory.",
    35: "The kernel driver is older than this HIP library needs: update amdgpu, or use an older ROCm.",
    NO_DEVICE: (
        "No AMD GPU is visible to this process. Check that /dev/kfd exists, that the user is in the groups render and "
        "video, and HIP_VISIBLE_DEVICES. Without a GPU use Device('emulated:gfx942')."
    ),
    209: "The library has no code for this GPU. Build the kernel for it.",
    700: "A kernel accessed memory outside its buffers. Run it on the emulated device: that names the instruction.",
    719: "A kernel failed. Run it on the emulated device: that names the instruction.",
}


class HipError(DeviceError):
    """A HIP function did not return hipSuccess. `status` is the number of the status, `hip_name` its name."""

    def __init__(self, what: str, status: int, hip_name: str, text: str) -> None:
        self.what = what
        self.status = status
        self.hip_name = hip_name
        advice = _ADVICE.get(status, "")
        super().__init__(f"{what}: {hip_name} ({status}): {text}{f'. {advice}' if advice else ''}")


class HipMemoryError(HipError, DeviceMemoryError):
    """hipErrorOutOfMemory."""
