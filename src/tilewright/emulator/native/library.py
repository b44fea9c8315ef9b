"""The engine's library: compiled once per machine, from the sources beside this file and the instruction table.

It is kept in the cache folder under a digest of all that it is made of: sources, compiler, flags and the CPU.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilewright.base import events, knobs
from tilewright.base.digest import digest_value
from tilewright.base.errors import DeviceError
from tilewright.building.discover import discover
from tilewright.building.driver import NO_CONFIG_FILES
from tilewright.building.process import run
from tilewright.emulator import isa
from tilewright.emulator.native import generate
from tilewright.emulator.native.layout import STRUCTURES, Launch

_FOLDER = Path(__file__).parent
_SOURCES = ("engine.c",)
# Exact arithmetic: no contraction, no excess precision, wrapping integers. Errors of mathematics set no errno.
FLAGS = (
    NO_CONFIG_FILES, "-std=c11", "-O2", "-march=native", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden",
    "-ffp-contract=off", "-fno-math-errno", "-Xclang", "-ffloat16-excess-precision=none", "-fwrapv",
    "-fno-strict-aliasing", "-Wno-psabi",
)  # fmt: skip
_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Library:
    """The loaded library."""

    path: Path
    handle: ctypes.CDLL

    def run(self, launch: Launch) -> int:
        """Run a launch; the code of its fault, or 0."""
        return int(self.handle.tilewright_run(ctypes.byref(launch)))


def compiler() -> Path | None:
    """The clang that would compile the library; None when there is none."""
    for part in discover().parts:
        if part.name == "compiler" and part.ok and part.path is not None:
            return part.path
    return None


@cache
def library() -> Library | None:
    """The library, compiled if it has to be; None when there is no compiler."""
    cxx = compiler()
    if cxx is None:
        return None
    texts = sources()
    target = knobs.cache_dir() / "emulator" / _digest(texts, cxx) / "engine.so"
    if not target.exists():
        _compile(texts, cxx, target)
    return _load(target)


def sources() -> dict[str, str]:
    """All files that the library is made of, by name."""
    texts = {path.name: path.read_text("utf-8") for path in sorted(_FOLDER.glob("*.[ch]"))}
    texts["functions.h"] = (Path(isa.__path__[0]) / "functions.h").read_text("utf-8")
    texts["operations.inc"] = generate.source_text()
    texts["handlers.inc"] = generate.handlers_text()
    return texts


def _digest(texts: dict[str, str], cxx: Path) -> str:
    cpu = next((line for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines() if line.startswith("flags")), "")
    stamp = cxx.resolve().stat()
    return digest_value([texts, str(cxx.resolve()), stamp.st_size, stamp.st_mtime_ns, FLAGS, cpu])


def _compile(texts: dict[str, str], cxx: Path, target: Path) -> None:
    """Compile in a folder of its own, then rename: other processes see all of it or nothing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        events.task("compile the emulator's engine", 1) as advance,
        tempfile.TemporaryDirectory(dir=target.parent) as at,
    ):
        folder = Path(at)
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")
        command = [str(cxx), "-x", "c", *FLAGS, *_SOURCES, "-o", "engine.so", "-lm"]
        ran = run(command, folder=folder, timeout_s=_TIMEOUT_S)
        if ran.code != 0 or ran.timed_out:
            raise DeviceError(f"the emulator's engine does not compile with {cxx} (code {ran.code}):\n{ran.output}")
        (folder / "engine.so").replace(target)
        advance(target.name)


def _load(path: Path) -> Library:
    handle = ctypes.CDLL(os.fspath(path))
    sizes = (ctypes.c_uint32 * (len(STRUCTURES) + 1))()
    handle.tilewright_sizes(sizes)
    expected = [*(ctypes.sizeof(structure) for structure in STRUCTURES), handler_count()]
    if list(sizes) != expected:
        raise DeviceError(f"{path} was made for structures of {list(sizes)} bytes; these are {expected}. Delete it.")
    return Library(path, handle)


def handler_count() -> int:
    """How many handlers there are."""
    vector, scalar = generate.numbers()
    return max((*vector.values(), *scalar.values())) + 1
