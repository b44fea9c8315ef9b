"""Everything that a result depends on except kernel and problem, as one text: the software, and on a GPU its model.

Results with different versions are not comparable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from tilewright.base.digest import digest_text, to_canonical_json
from tilewright.base.errors import InvalidValueError
from tilewright.bench.gpu_model import MODEL, get_gpu_model
from tilewright.bench.replay import ReplayDevice

if TYPE_CHECKING:
    from tilewright.runtime.device import Device

HIP = "hip"


def format_versions(device: str | ReplayDevice = "emulated") -> str:
    """Versions as canonical JSON, for `Task.versions`. `device` is its name, or a replayed device itself.

    Compiler and CK headers determine the code of kernels. On a GPU the HIP runtime runs them, and times depend on its
    model: MI300X, MI300A and MI325X are one architecture. An emulated device is part of Tilewright. A replayed device
    returns the content of its file, whatever is installed here; the model is that of the recording, if it has one.
    """
    if isinstance(device, ReplayDevice):
        model = {MODEL: device.models[0]} if len(device.models) == 1 else {}
        return to_canonical_json({"recording": device.digest, **model})
    if device.partition(":")[0] != "gpu":
        return to_canonical_json(_read_software_versions())
    from tilewright.runtime.device import Device  # noqa: PLC0415  (GPUs only)

    return to_canonical_json({**_read_software_versions(), **read_gpu_versions(Device(device))})


def merge_versions(devices: Sequence[str]) -> str:
    """The versions of devices that share the tasks of one sweep. Raises `InvalidValueError` if their GPUs differ."""
    texts = {name: format_versions(name) for name in devices}
    if len(set(texts.values())) > 1:
        models = "; ".join(f"{name} is {get_gpu_model(text)}" for name, text in texts.items())
        raise InvalidValueError(f"the GPUs differ, and so would their times: {models}. Run one sweep for each model")
    return next(iter(texts.values()))


def format_gpu_versions(told: Mapping[str, str]) -> str:
    """The versions of results on a GPU of another machine, which reported its own: see `read_gpu_versions`."""
    return to_canonical_json({**_read_software_versions(), **{name: told[name] for name in (HIP, MODEL)}})


def read_gpu_versions(device: Device) -> dict[str, str]:
    """The HIP runtime's version, such as 60342134, and the GPU model, as the GPU reports them. Loads HIP."""
    return {HIP: str(device.load_hip().runtime_version()), MODEL: device.model}


@cache
def _read_software_versions() -> Mapping[str, str]:
    from tilewright import __version__  # noqa: PLC0415  (the package imports its parts, not the other way round)
    from tilewright.building.toolchain import find_toolchain  # noqa: PLC0415  (looks for compilers)

    toolchain = find_toolchain()
    return {
        "tilewright": __version__,
        "compiler": toolchain.compiler,
        "toolchain": digest_text(toolchain.identity())[:12],
        "ck": toolchain.ck_digest[:12],
    }
