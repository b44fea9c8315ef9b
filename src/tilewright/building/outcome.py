"""The outcome of a kernel's build: the facts of an artifact, or a failure with its log."""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

from tilewright import arch as archs
from tilewright.base.errors import ToolchainError
from tilewright.building.code_object import KernelResources, read_resources
from tilewright.building.compile import extract_errors
from tilewright.building.compile_job import CODE_OBJECT, PRODUCTS, CompileJob
from tilewright.building.graph import DEVICE, HOST, LINK, STEPS, NinjaJob
from tilewright.building.header_set import PchFlags
from tilewright.building.ninja_run import read_cpu_seconds
from tilewright.building.store.artifact import Artifact, Failure

_RESOURCES = {each.name for each in dataclasses.fields(KernelResources)}

# Compiler messages about the machine, not the source. Such a failure may not occur again, so it is not stored.
_MACHINE = re.compile(
    r"No space left|Disk quota|Input/output error|Read-only file system|Cannot allocate memory|out of memory"
    r"|Too many open files|temporary file|Permission denied|file not found|cannot open|unable to open|PCH|precompiled"
    r"|\.pch|Bus error|Killed|Terminated",
    re.IGNORECASE,
)
_OUTDATED = re.compile(r"has been modified since the (?:precompiled header|AST file)")
_NO_ROOM = re.compile(r"No space left|Disk quota", re.IGNORECASE)
# Larger than any file of a step. A step that runs out of space removes its partial file, so less than this is free.
_LEAST_ROOM = 2**20
# timeout(1): 124 on time-out. 126 and up: not started, or ended by a signal.
_TIMED_OUT, _UNUSUAL = 124, 126


@dataclasses.dataclass(frozen=True)
class BuildFailure:
    """A kernel that was not built.

    `lasting`: it will fail again with the same inputs. `no_room`: the disk was full. `outdated`: system headers have
    changed since they were precompiled.
    """

    log: str
    errors: tuple[str, ...]
    lasting: bool
    no_room: bool
    outdated: bool = False


# Commands are stored without the folders of the build and without precompiled headers.
_NO_ROOF = PchFlags(("-I.",))


def collect_facts(work: NinjaJob, folder: Path) -> dict[str, Any]:
    """Collect the facts to store with a kernel whose three products are in `folder`."""
    unit = work.unit
    missing = [name for name in PRODUCTS if not (folder / name).is_file()]
    if missing:
        raise ToolchainError(f"{unit.kernel.slug}: every step succeeded, but {', '.join(missing)} was not written")
    resources = read_resources(folder / CODE_OBJECT, archs.load(unit.kernel.arch), unit.toolchain)
    cost = {f"{step}_cpu_s": round(read_cpu_seconds(folder, step), 2) for step in STEPS}
    return {
        **unit.facts(),
        "resources": [dataclasses.asdict(kernel) for kernel in resources],
        "cost": {**cost, "cpu_s": round(sum(cost.values()), 2)},
        "commands": {
            DEVICE: shlex.join(unit.device_command(_NO_ROOF)),
            HOST: shlex.join(unit.host_command(_NO_ROOF)),
            LINK: shlex.join(unit.link_command()),
        },
    }


def find_misfit(unit: CompileJob, entry: Artifact | Failure) -> str:
    """Describe why an entry cannot belong to a unit, although it is stored under its key; empty if it can."""
    facts = entry.facts
    if isinstance(entry, Failure):
        errors, lasting = facts.get("errors", []), facts.get("lasting", True)
        if type(errors) is not list or not all(type(line) is str for line in errors) or type(lasting) is not bool:
            return "its facts 'errors' and 'lasting' are not a list of strings and a boolean"
        return ""
    if facts.get("slug") != unit.kernel.slug:
        return f"it belongs to {facts.get('slug')!r}"
    if missing := [name for name in PRODUCTS if name not in entry.files]:
        return f"it has no {', '.join(missing)}"
    rows = facts.get("resources")
    if type(rows) is not list or not all(_is_resources(row) for row in rows):
        return "its fact 'resources' is not a list of kernel resources"
    return ""


def _is_resources(row: Any) -> bool:
    """Return whether a row is a `KernelResources` as `collect_facts` writes it."""
    return (
        type(row) is dict
        and row.keys() == _RESOURCES
        and all(type(value) is (str if name == "name" else int) for name, value in row.items())
    )


def read_failure(folder: Path, codes: dict[str, int], limit_s: float, *, was_full: bool) -> BuildFailure:
    """Make a failure from exit codes and logs. If no step failed, ninja itself was stopped.

    `was_full`: the disk was full during the run, so that a message may be lost.
    """
    failed = {step: codes[step] for step in STEPS if codes.get(step, 0) != 0}
    if not failed:
        text = "the build was stopped before this kernel was built"
        return BuildFailure(f"{text}\n", (text,), lasting=False, no_room=was_full)
    log, errors, lasting = "", [], True
    for step, code in failed.items():
        said = read_log(folder, step)
        ending = _describe_ending(step, code, said, limit_s)
        log += f"[{step}]\n{said}" + (f"{ending}\n" if ending else "")
        errors += [*extract_errors(said), *([ending] if ending else [])]
        lasting = lasting and not ending and _MACHINE.search(said) is None
    no_room = not lasting and (was_full or _NO_ROOM.search(log) is not None)
    return BuildFailure(log, tuple(dict.fromkeys(errors)), lasting, no_room, outdated=_OUTDATED.search(log) is not None)


def is_disk_full(folder: Path, said: str = "") -> bool:
    """Return whether the disk is full, or was when a step said this. Its message may be lost for the same reason."""
    return _NO_ROOM.search(said) is not None or shutil.disk_usage(folder).free < _LEAST_ROOM


def read_log(folder: Path, step: str) -> str:
    """Read the log of a step, without the private folder it ran in. Empty if it did not start."""
    try:
        text = (folder / f"{step}.log").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return text.replace(f"{folder}/", "")


def _describe_ending(step: str, code: int, said: str, limit_s: float) -> str:
    if code == _TIMED_OUT:
        return f"the {step} pass was stopped after {limit_s:g} s, its time limit"
    if code >= _UNUSUAL:
        return f"the {step} pass ended with code {code}: it was ended by signal {code - 128} or could not start"
    return "" if extract_errors(said) else f"the {step} pass ended with code {code} without an error message"
