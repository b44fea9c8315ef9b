"""The native engine's library: compiled once per machine, from the sources in this folder and the instruction table.

It is kept in its own store in the cache folder, under a digest of its inputs: sources, compiler, flags and the CPU. Its
bytes are checked before it is loaded: a truncated library would crash the process.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.base import events, knobs
from tilewright.base.digest import digest_value
from tilewright.base.errors import DeviceError
from tilewright.building.driver import NO_CONFIG_FILES
from tilewright.building.process import run_command
from tilewright.emulator import isa
from tilewright.emulator.native import generate
from tilewright.emulator.native.layout import STRUCTURES, NativeLaunch
from tilewright.emulator.tools import get_given_tools

_FOLDER = Path(__file__).parent
_SOURCES = ("engine.c",)
_NAME = "engine.so"
# Exact arithmetic: no contraction, no excess precision, wrapping integers. Math errors do not set errno.
FLAGS = (
    NO_CONFIG_FILES, "-std=c11", "-O2", "-march=native", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden",
    "-ffp-contract=off", "-fno-math-errno", "-Xclang", "-ffloat16-excess-precision=none", "-fwrapv",
    "-fno-strict-aliasing", "-Wno-psabi",
)  # fmt: skip
_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class EngineLibrary:
    """The loaded library."""

    path: Path
    handle: ctypes.CDLL

    def run(self, launch: NativeLaunch) -> int:
        """Run a launch; return the code of its fault, or 0."""
        return int(self.handle.tilewright_run(ctypes.byref(launch)))


def find_compiler() -> Path | None:
    """Return the clang that compiles the library; None if there is none."""
    from tilewright.building.discover import discover  # noqa: PLC0415  (heavy, see `load_engine`)

    for part in discover().parts:
        if part.name == "compiler" and part.ok and part.path is not None:
            return part.path
    return None


@cache
def load_engine() -> EngineLibrary | None:
    """Load the library, compiled if necessary; None without a compiler."""
    if (given := get_given_tools()) is not None:
        return None if given.engine is None else _load(given.engine)
    # Heavy, and not needed by a process that is given its tools.
    from tilewright.building.store.local import Store, build_own_library  # noqa: PLC0415

    cxx = find_compiler()
    if cxx is None:
        return None
    texts = read_sources()
    store = Store(knobs.cache_dir() / "emulator", knobs.CACHE_DIR.name)
    return _load(
        build_own_library(store, _compute_digest(texts, cxx), _NAME, lambda folder: _compile(texts, cxx, folder))
    )


def read_sources() -> dict[str, str]:
    """Return all source files of the library, by name."""
    texts = {path.name: path.read_text("utf-8") for path in sorted(_FOLDER.glob("*.[ch]"))}
    texts["functions.h"] = (Path(isa.__path__[0]) / "functions.h").read_text("utf-8")
    texts["operations.inc"] = generate.generate_source()
    texts["handlers.inc"] = generate.generate_handler_table()
    return texts


def _compute_digest(texts: dict[str, str], cxx: Path) -> str:
    cpu = next((line for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines() if line.startswith("flags")), "")
    stamp = cxx.resolve().stat()
    return digest_value(["engine", texts, str(cxx.resolve()), stamp.st_size, stamp.st_mtime_ns, FLAGS, cpu])


def _compile(texts: dict[str, str], cxx: Path, folder: Path) -> Mapping[str, Any]:
    with events.report_task("compile the emulator's engine", 1) as advance:
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")
        command = [str(cxx), "-x", "c", *FLAGS, *_SOURCES, "-o", _NAME, "-lm"]
        ran = run_command(command, folder=folder, timeout_s=_TIMEOUT_S)
        if ran.code != 0 or ran.timed_out:
            raise DeviceError(f"the emulator's engine does not compile with {cxx} (code {ran.code}):\n{ran.output}")
        advance(_NAME)
    return {"slug": "the emulator's engine", "cost": {"cpu_s": round(ran.cpu_s, 2)}}


def _load(path: Path) -> EngineLibrary:
    try:
        handle = ctypes.CDLL(os.fspath(path))
    except OSError as error:
        raise DeviceError(f"the emulator's engine, {path}, cannot be loaded: {error}") from error
    sizes = (ctypes.c_uint32 * (len(STRUCTURES) + 1))()
    handle.tilewright_sizes(sizes)
    expected = [*(ctypes.sizeof(structure) for structure in STRUCTURES), count_handlers()]
    if list(sizes) != expected:
        raise DeviceError(f"{path} has structures of {list(sizes)} bytes; expected are {expected}. Delete it.")
    return EngineLibrary(path, handle)


def count_handlers() -> int:
    """Return the number of handlers."""
    vector, scalar = generate.handler_numbers()
    return max((*vector.values(), *scalar.values())) + 1
