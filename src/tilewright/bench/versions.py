"""Everything that a result depends on except kernel and problem, as one text: the software, and on a GPU its model.

Results with different texts are different results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from tilewright.base.digest import canonical_json, digest_text
from tilewright.base.errors import InvalidValueError
from tilewright.bench.gpu_model import MODEL, gpu_of
from tilewright.bench.replay import ReplayDevice

if TYPE_CHECKING:
    from tilewright.runtime.device import Device

HIP = "hip"


def versions_text(device: str | ReplayDevice = "emulated") -> str:
    """Versions as canonical JSON, for `Task.versions`. `device` is its name, or a replayed device itself.

    Compiler and CK headers determine the code of kernels. On a GPU the HIP runtime runs them, and times depend on its
    model: MI300X, MI300A and MI325X are one architecture. An emulated device is part of Tilewright. A replayed device
    returns the content of its file, whatever is installed here; the model is that of the recording, if it has one.
    """
    if isinstance(device, ReplayDevice):
        model = {MODEL: device.models[0]} if len(device.models) == 1 else {}
        return canonical_json({"recording": device.digest, **model})
    if device.partition(":")[0] != "gpu":
        return canonical_json(_software())
    from tilewright.runtime.device import Device  # noqa: PLC0415  (GPUs only)

    return canonical_json({**_software(), **gpu_versions(Device(device))})


def common_versions(devices: Sequence[str]) -> str:
    """The versions of devices that share the tasks of one sweep. Raises `InvalidValueError` if their GPUs differ."""
    texts = {name: versions_text(name) for name in devices}
    if len(set(texts.values())) > 1:
        models = "; ".join(f"{name} is {gpu_of(text)}" for name, text in texts.items())
        raise InvalidValueError(f"the GPUs differ, and so would their times: {models}. Run one sweep for each model")
    return next(iter(texts.values()))


def versions_with(told: Mapping[str, str]) -> str:
    """The versions of results on a GPU of another machine, which reported its own: see `read_gpu_versions`."""
    return canonical_json({**_software(), **{name: told[name] for name in (HIP, MODEL)}})


def gpu_versions(device: Device) -> dict[str, str]:
    """The HIP runtime's version, such as 60342134, and the GPU model, as the GPU reports them. Loads HIP."""
    return {HIP: str(device.hip().runtime_version()), MODEL: device.model}


@cache
def _software() -> Mapping[str, str]:
    from tilewright import __version__  # noqa: PLC0415  (the package imports its parts, not the other way round)
    from tilewright.building.toolchain import find  # noqa: PLC0415  (looks for compilers)

    toolchain = find()
    return {
        "tilewright": __version__,
        "compiler": toolchain.compiler,
        "toolchain": digest_text(toolchain.identity())[:12],
        "ck": toolchain.ck_digest[:12],
    }
