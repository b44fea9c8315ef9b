"""The environment in which a HIP program runs on the emulated device.

The program loads the HIP shim instead of AMD's library, and the shim starts Python in the program's process at the
first call that needs a device. The paths of the shim, the engine and the tools are found once and kept in the cache
folder, because finding them takes longer than most programs run.
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import pickle
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewright import __version__
from tilewright.base import knobs
from tilewright.base.atomic_write import write_atomically
from tilewright.base.digest import digest_value
from tilewright.base.documents import read_json
from tilewright.base.errors import DeviceError, FileFormatError, ToolchainError, choose
from tilewright.base.shared_files import require_own
from tilewright.emulator.hardware import EMULATED
from tilewright.emulator.launch import Mode

_PACKAGE = Path(__file__).parents[1]
_ARCHS = _PACKAGE.with_name("arch")
_PARTS = ("hip_shim", "native", "isa", "alu", "access", "matrix")
_FOLDER = "emulate"
# Names under which programs and libraries look for HIP.
_SONAMES = tuple(f"{name}.so{major}" for name in ("libamdhip64", "libhiprtc") for major in ("", ".5", ".6", ".7"))
# In bundles' tables of contents and in the metadata of code objects.
_TARGET = re.compile(rb"amdgcn-amd-amdhsa--(gfx[0-9a-f]+)")
# Variables and knobs on which the paths depend.
_PLACES = (knobs.ROCM_PATH, knobs.TOOLCHAIN, knobs.CXX, knobs.CACHE_DIR, knobs.STORE, knobs.ARCH_PATH)


@dataclass(frozen=True, slots=True)
class ProgramTools:
    """The files that a program on the emulated device needs. `links` is a folder in which HIP's names mean the shim."""

    shim: str
    links: str
    objdump: str | None
    readelf: str | None
    engine: str | None
    kernels: str  # the folder of `emulator.kernel_cache`
    compilers: Mapping[str, list[str]]  # by GPU: the command of hiprtc; empty without a toolchain
    archs: Mapping[str, str]  # the emulated GPUs, pickled and as base64: reading their files takes longer

    def list_files(self) -> Iterable[str]:
        """The files, without those that are not needed."""
        return [path for path in (self.shim, self.objdump, self.readelf, self.engine) if path is not None]


def make_program_environment(
    gpu: str,
    mode: Mode,
    report: Path | None,
    profile: Path | None = None,
    checks: frozenset[str] = frozenset(),
    suppressions: Path | None = None,
    tools: ProgramTools | None = None,
) -> dict[str, str]:
    """Return the variables to set for a program that shall run on an emulated GPU.

    `report` is a file to which each process of the program appends a line of JSON, and `profile` one to which it
    appends the profiles of its kernels. `checks` are words of `sanitizer.checks`, and `suppressions` is a file with
    findings that are not reported. `tools` are those of `find_kept_tools`; without them, they are found.
    """
    choose("emulated GPU", gpu, EMULATED)
    tools = tools or find_program_tools()
    given = {
        "arch": tools.archs[gpu],
        "mode": mode.value,
        "report": None if report is None else str(report.absolute()),
        "profile": None if profile is None else str(profile.absolute()),
        "checks": sorted(checks),
        "suppressions": None if suppressions is None else str(suppressions.absolute()),
        "shim": tools.shim,
        "objdump": tools.objdump,
        "readelf": tools.readelf,
        "engine": tools.engine,
        "kernels": tools.kernels,
        "compiler": tools.compilers.get(gpu, []),
    }
    # This package's folder is not always among them: editable installs may find it in another way.
    folders = [*(str(Path(path).absolute()) for path in sys.path), str(_PACKAGE.parents[1])]
    program = "\n".join(
        [
            "import sys",
            f"sys.path += [path for path in {folders!r} if path not in sys.path]",
            "from tilewright.emulator.hip_shim.embedded import start",
            f"start(**{given!r})",
        ]
    )
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = [str(find_python_library()), sys.base_prefix, version]
    known = knobs.read_foreign_variables(("LD_PRELOAD", "LD_LIBRARY_PATH"))
    return {
        "LD_PRELOAD": _put_first(tools.shim, known.get("LD_PRELOAD")),
        "LD_LIBRARY_PATH": _put_first(tools.links, known.get("LD_LIBRARY_PATH")),
        knobs.EMULATE.name: "\n".join([*python, program]),
    }


def _put_first(path: str, others: str | None) -> str:
    """Put a path before the others, once: a program on the emulated device may start another."""
    return ":".join([path, *(other for other in (others or "").split(":") if other and other != path)])


def find_python_library() -> Path:
    """Return the shared library of this Python, which the program loads."""
    name = sysconfig.get_config_var("INSTSONAME") or ""
    folders = (sysconfig.get_config_var("LIBDIR"), Path(sys.base_prefix, "lib"))
    found = next((Path(folder, name) for folder in folders if folder and Path(folder, name).is_file()), None)
    if found is None or ".so" not in name:
        major, minor = sys.version_info[:2]
        raise DeviceError(
            f"this Python ({sys.executable}) has no shared library, which a program on the emulated device loads. "
            f"Install it (apt-get install libpython{major}.{minor}), or use a Python that was built with "
            "--enable-shared: those of conda, uv, python.org's containers and GitHub's setup-python are."
        )
    return found


def find_program_gpus(program: Path) -> list[str]:
    """Return the GPUs that a program or library has uncompressed code for, by the targets that it names."""
    with program.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return []
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return sorted({match[1].decode() for match in _TARGET.finditer(data)})


def find_program_tools() -> ProgramTools:
    """Return the files that programs need; they are built if necessary."""
    found = find_kept_tools()
    if found is None:
        kept = _find_kept_file()
        found = _make_tools(kept.with_suffix(".lib"), kept.with_suffix(".kernels"))
        stamps = _read_stamps(found)
        text = json.dumps({"tools": {name: getattr(found, name) for name in ProgramTools.__slots__}, "stamps": stamps})
        with write_atomically(kept) as draft:
            draft.write_text(text, "utf-8")
    return found


def find_kept_tools() -> ProgramTools | None:
    """Return the files that programs need, if an earlier call of `find_program_tools` kept them; else None."""
    return _read_tools(_find_kept_file())


def _find_kept_file() -> Path:
    folder = knobs.cache_dir() / _FOLDER
    # Anybody who can write there could have a program load another library.
    require_own(folder, knobs.CACHE_DIR.name)
    key = digest_value([__version__, str(_PACKAGE), sys.prefix, knobs.search_path(), *(str(k.get()) for k in _PLACES)])
    return folder / f"{key}.json"


def _make_tools(links: Path, kernels: Path) -> ProgramTools:
    # These take longer to import than most programs run, and are needed once.
    from tilewright.arch import load  # noqa: PLC0415
    from tilewright.building.toolchain import find_toolchain  # noqa: PLC0415
    from tilewright.emulator.hip_shim.shim_library import (  # noqa: PLC0415
        build_shim,
        find_code_readers,
        find_prebuilt_shim,
    )
    from tilewright.emulator.native.library import load_engine  # noqa: PLC0415

    archs = {name: load(name) for name in EMULATED}
    compilers: dict[str, list[str]] = {}
    try:
        toolchain = find_toolchain(with_ck=False)
    except ToolchainError:
        prebuilt = find_prebuilt_shim()
        if prebuilt is None:
            raise
        shim, (objdump, readelf) = prebuilt, find_code_readers()
    else:
        shim, objdump, readelf = build_shim(toolchain), toolchain.objdump, toolchain.readelf
        compilers = {name: [str(toolchain.cxx), *toolchain.device_flags(arch)] for name, arch in archs.items()}
    engine = load_engine()
    for folder in (links.parent, links):  # only for this user, whatever the umask is
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in _SONAMES:
        new = links / f".{name}.{os.getpid()}"
        new.symlink_to(shim)
        new.replace(links / name)
    return ProgramTools(
        shim=str(shim),
        links=str(links),
        objdump=_format_path(objdump),
        readelf=_format_path(readelf),
        engine=None if engine is None else str(engine.path),
        kernels=_make_kernel_folder(kernels),
        compilers=compilers,
        archs={name: base64.b64encode(pickle.dumps(arch)).decode() for name, arch in archs.items()},
    )


def _make_kernel_folder(folder: Path) -> str:
    """Make a new folder for the kernels that this version of the sources lowers; those of the last one are removed."""
    shutil.rmtree(folder, ignore_errors=True)  # a program that still runs writes it anew
    made = folder / os.urandom(8).hex()
    made.mkdir(mode=0o700, parents=True)
    return str(made)


def _format_path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _read_tools(kept: Path) -> ProgramTools | None:
    """Read the kept paths; None if there are none, or if a file has changed since."""
    try:
        document = read_json(kept)
        tools = ProgramTools(**document["tools"])
        return tools if document["stamps"] == _read_stamps(tools) else None
    except (FileFormatError, OSError, KeyError, TypeError):  # of another version, or half removed: found anew
        return None


def _read_stamps(tools: ProgramTools) -> Mapping[str, list[int]]:
    """Return size and time of all files, and of those from which they are made."""
    own = [_PACKAGE, *(_PACKAGE / name for name in _PARTS), _ARCHS, _ARCHS / "data"]
    folders = [*own, *filter(None, [knobs.ARCH_PATH.get()])]
    sources = [path for folder in folders for path in sorted(folder.glob("*.*")) if path.is_file()]
    watched = [*tools.list_files(), *map(str, sources)]
    if not tools.compilers:  # a compiler that is installed later changes a folder of PATH
        watched += [folder for folder in knobs.search_path().split(os.pathsep) if Path(folder).is_dir()]
    stamps = {path: Path(path).stat() for path in watched}
    return {path: [stamp.st_size, stamp.st_mtime_ns] for path, stamp in stamps.items()}
