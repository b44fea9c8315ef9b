"""The emulated device inside a HIP program that `tilewright emulate` started: embed.cpp calls `start` there."""

from __future__ import annotations

import atexit
import base64
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path

from tilewright.arch.spec import Arch
from tilewright.base.errors import TilewrightError
from tilewright.emulator.hip_shim import deferred_errors, settings
from tilewright.emulator.hip_shim.program_log import ProgramLog
from tilewright.emulator.hip_shim.shim import open_program_shim
from tilewright.emulator.launch import Mode
from tilewright.emulator.sanitizer.checks import LEAKS
from tilewright.emulator.sanitizer.suppressions import read_suppressions
from tilewright.emulator.tools import EmulatorTools, use_tools


def start(
    *,
    arch: str,
    mode: str,
    report: str | None,
    profile: str | None,
    checks: list[str],
    suppressions: str | None,
    shim: str,
    objdump: str | None,
    readelf: str | None,
    engine: str | None,
    kernels: str | None,
    compiler: Sequence[str],
) -> None:
    """Connect one emulated GPU to the HIP shim of this process.

    `arch` is the GPU's `Arch`, pickled and as base64. Paths are texts; None where there is none. `compiler` is the
    command of hiprtc.
    """
    gpu: Arch = pickle.loads(base64.b64decode(arch))
    tools = EmulatorTools(*(None if path is None else Path(path) for path in (objdump, readelf, engine, kernels)))
    use_tools(tools)
    wanted = frozenset(checks)
    known = () if suppressions is None else read_suppressions(Path(suppressions))
    files = [None if path is None else Path(path) for path in (report, profile)]
    log = ProgramLog(gpu.name, mode, *files, leaks=LEAKS in wanted, suppressions=known)
    deferred_errors.use_handler(log.add_error)
    settings.use_process_settings(
        settings.ShimSettings(mode=Mode(mode), profile=profile is not None, checks=wanted - {LEAKS})
    )
    settings.watch_launches(log.add_launch)
    settings.handle_findings(log.add_finding)
    try:
        log.shim = open_program_shim(Path(shim), gpu, lambda: tools.readelf, compiler, log.write)
        atexit.register(log.write)  # of a program that is Python itself: the shim is closed before the process ends
    except TilewrightError as error:
        sys.stderr.write(f"tilewright: the emulated device cannot be used: {error}\n")
