"""Facts about this machine that results on a GPU depend on: software, driver and toolchain. No names of persons."""

from __future__ import annotations

import os
import platform
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilewright import __version__
from tilewright.base.errors import ToolchainError
from tilewright.base.knobs import read_foreign_variables
from tilewright.building.ck_tree import probe_tree
from tilewright.building.toolchain import Survey, find_toolchain

# The version of the kernel driver; only packages outside the Linux kernel have one.
_DRIVER = Path("/sys/module/amdgpu/version")
_KFD = Path("/dev/kfd")
# Variables of HIP and ROCm that change what a process sees or how it runs.
_VARIABLES = (
    *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HSA_OVERRIDE_GFX_VERSION"),
    *("HSA_XNACK", "HSA_ENABLE_SDMA", "AMD_SERIALIZE_KERNEL", "HIP_LAUNCH_BLOCKING", "GPU_MAX_HW_QUEUES"),
)
# "hip: Optional[str] = '6.2.41133'" or "hip = None" in torch/version.py.
_TORCH_HIP = re.compile(r"^hip\b[^=]*=\s*(?:None|['\"](?P<version>[^'\"]+)['\"])", re.MULTILINE)


def read_versions(survey: Survey) -> dict[str, str]:
    """Versions of Tilewright, Python, the operating system's kernel, and the generation of CK Tile."""
    found = {
        "tilewright": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "distribution": _read_distribution(),
    }
    ck = survey.ck
    if ck.path is not None:
        tree = probe_tree(ck.path)
        found["ck_generation"] = "unknown" if tree.is_unknown else str(tree.api.generation)
        found["ck"] = ck.version
    return found


def _read_distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        return "unknown"


def read_driver() -> dict[str, Any]:
    """The kernel driver of AMD GPUs, and variables that change the view of the GPUs."""
    return {
        "amdgpu": _DRIVER.read_text(encoding="utf-8").strip() if _DRIVER.is_file() else None,
        "kfd": _KFD.exists(),
        "kfd_usable": os.access(_KFD, os.R_OK | os.W_OK),
        "variables": read_foreign_variables(_VARIABLES),
    }


def read_toolchain(survey: Survey) -> dict[str, Any]:
    """The toolchain in use with all its components, as `tilewright doctor` lists them."""
    found: dict[str, Any] = survey.to_json()
    try:
        toolchain = find_toolchain()
    except ToolchainError as error:
        return {**found, "problem": str(error)}
    return {**found, "problem": "", "compiler": toolchain.compiler, "ck_digest": toolchain.ck_digest[:12]}


def find_rocm_torch() -> tuple[str | None, str]:
    """The HIP version of the installed torch, or None and the reason. Torch is not imported, which takes seconds."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None, "torch is not installed"
    version = Path(next(iter(spec.submodule_search_locations))) / "version.py"
    try:
        text = version.read_text(encoding="utf-8")
    except OSError as error:
        return None, f"the version of torch cannot be read: {error.strerror}"
    found = _TORCH_HIP.search(text)
    if found is None or found["version"] is None:
        return None, "the installed torch is not built for ROCm"
    return found["version"], ""
