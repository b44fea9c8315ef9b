"""The native engine's library: compiled once per machine, from the sources in this folder and the instruction table.

It is kept in its own store in the cache folder, under a digest of its inputs: sources, compiler, flags and the CPU. Its
bytes are checked before it is loaded: a truncated library would crash the process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.base import events, knobs
from tilewright.base.digest import digest_value
from tilewright.base.errors import DeviceError
from tilewright.building.discover import discover
from tilewright.building.driver import NO_CONFIG_FILES
from tilewright.building.process import run_command
from tilewright.building.store.local import Store, build_own_library
from tilewright.emulator import isa
from tilewright.emulator.native import generate
from tilewright.emulator.native.engine_library import EngineLibrary, open_library
from tilewright.emulator.native.layout import STRUCTURES

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


def find_compiler() -> Path | None:
    """Return the clang that compiles the library; None if there is none."""
    for part in discover().parts:
        if part.name == "compiler" and part.ok and part.path is not None:
            return part.path
    return None


@cache
def load_engine() -> EngineLibrary | None:
    """Load the library, compiled if necessary; None without a compiler."""
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
    texts |= {path.name: path.read_text("utf-8") for path in sorted(Path(isa.__path__[0]).glob("*.h"))}
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
    library = open_library(path)
    sizes = (ctypes.c_uint32 * (len(STRUCTURES) + 1))()
    library.handle.tilewright_sizes(sizes)
    expected = [*(ctypes.sizeof(structure) for structure in STRUCTURES), count_handlers()]
    if list(sizes) != expected:
        raise DeviceError(f"{path} has structures of {list(sizes)} bytes; expected are {expected}. Delete it.")
    return library


def count_handlers() -> int:
    """Return the number of handlers."""
    vector, scalar = generate.handler_numbers()
    return max((*vector.values(), *scalar.values())) + 1
