"""The log of a HIP program on the emulated device: its launches, faults and calls that are not implemented."""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import TilewrightError
from tilewright.emulator.demangled_names import demangle
from tilewright.emulator.faults import Fault
from tilewright.emulator.hip_shim.callbacks import MissingCallError
from tilewright.emulator.launch import Counters
from tilewright.emulator.sanitizer.allocation_sites import find_leaks
from tilewright.emulator.sanitizer.findings import Finding, finding_to_json, make_fault_finding
from tilewright.emulator.sanitizer.suppressions import FindingList, Suppression

if TYPE_CHECKING:
    from tilewright.emulator.hip_shim.settings import LaunchRecord
    from tilewright.emulator.hip_shim.shim import HipShim
    from tilewright.emulator.profile import KernelProfile

SCHEMA = 1


class ProgramLog:
    """Prints errors to stderr as they occur, and appends one line of JSON to a file when the program ends.

    With a file for profiles, it also appends one line with the profiles of all kernels to that file.
    """

    def __init__(
        self,
        gpu: str,
        mode: str,
        report: Path | None,
        profile: Path | None = None,
        *,
        leaks: bool = False,
        suppressions: tuple[Suppression, ...] = (),
    ) -> None:
        self._profile = profile
        self._profiles: dict[str, KernelProfile] = {}
        self._timeline: list[dict[str, Any]] = []
        self._leaks = leaks
        self._findings = FindingList(suppressions)
        self._gpu = gpu
        self._mode = mode
        self._report = report
        self._lock = threading.Lock()
        self._launches: Counter[str] = Counter()
        self._counters: dict[str, Counters] = {}
        self._errors: list[dict[str, Any]] = []
        self._missing: Counter[str] = Counter()
        self._written = False
        self.shim: HipShim | None = None

    def add_error(self, _: int | None, error: BaseException) -> None:
        """Print an error of a call, and keep it for the report. Each call that is not implemented is printed once."""
        with self._lock:
            if isinstance(error, MissingCallError):
                self._missing[error.call] += 1
                if self._missing[error.call] > 1:
                    return
            else:
                name = error.name if isinstance(error, Fault) else type(error).__name__
                self._errors.append({"name": name, "message": str(error)})
            if isinstance(error, Fault):
                self._findings.add(make_fault_finding(error, self._gpu))
        if not isinstance(error, TilewrightError):  # a defect of the emulated device
            traceback.print_exception(error)
        # This process is the user's program, and its stderr is the only place where the user looks.
        sys.stderr.write(f"tilewright: emulated {self._gpu}, {self._mode} mode: {error}\n")
        sys.stderr.flush()

    def add_finding(self, finding: Finding) -> None:
        """Print a finding of a check, if it is neither suppressed nor known, and keep it for the report."""
        with self._lock:
            new = self._findings.add(finding)
        if new:
            sys.stderr.write(f"tilewright: emulated {self._gpu}, {self._mode} mode: {finding}\n")
            sys.stderr.flush()

    def add_launch(self, _: int, launch: LaunchRecord) -> None:
        """Count a launch."""
        with self._lock:
            self._launches[launch.kernel] += 1
            self._counters[launch.kernel] = self._counters.get(launch.kernel, Counters()) + launch.counters
            if launch.profile is not None:
                before = self._profiles.get(launch.kernel)
                self._profiles[launch.kernel] = launch.profile if before is None else before.merge(launch.profile)
                self._timeline.append({"kernel": launch.kernel, "executed": launch.profile.executed})

    def write(self) -> None:
        """Append this process's lines to the report and to the profiles, once."""
        if self._written:
            return
        self._written = True
        for gpu in self.shim.gpus if self._leaks and self.shim is not None else ():
            for leak in find_leaks(gpu.memory, self._gpu):
                self.add_finding(leak)
        if self._report is not None:
            _append_line(self._report, self.to_json())
        if self._profile is not None and self._profiles:
            _append_line(self._profile, self._profiles_to_json())

    def _profiles_to_json(self) -> dict[str, Any]:
        with self._lock:
            return {
                "schema": SCHEMA,
                "program": _read_command(),
                "pid": os.getpid(),
                "gpu": self._gpu,
                "mode": self._mode,
                "launches": self._timeline,
                "kernels": [profile.to_json() for profile in self._profiles.values()],
            }

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        with self._lock:
            return {
                "schema": SCHEMA,
                "program": _read_command(),
                "pid": os.getpid(),
                "gpu": self._gpu,
                "mode": self._mode,
                "kernels": [
                    {
                        "name": name,
                        "kernel_name": demangle(name),
                        "launches": self._launches[name],
                        "counters": asdict(self._counters[name]),
                    }
                    for name in self._launches
                ],
                "errors": self._errors,
                "findings": [finding_to_json(finding) for finding in self._findings.found],
                "suppressed": self._findings.suppressed,
                "not_implemented": dict(self._missing),
                "not_freed": self._list_allocations(),
            }

    def _list_allocations(self) -> list[dict[str, int]]:
        """The program's own allocations; those of the emulated device have labels."""
        gpus = () if self.shim is None else self.shim.gpus
        return [
            {"address": address, "bytes": size}
            for gpu in gpus
            for address, size, label in gpu.memory.list_allocations()
            if not label
        ]


def _append_line(file: Path, document: Mapping[str, Any]) -> None:
    line = json.dumps(document) + "\n"
    # One write at the end of the file: the processes of one command may share it.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def _read_command() -> list[str]:
    words = Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    return [word.decode(errors="replace") for word in words]
