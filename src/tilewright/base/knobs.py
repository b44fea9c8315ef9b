"""All environment variables of Tilewright. No other module reads the environment.

A knob is read at each use, so tests and users may change it at any time. An invalid value is an error that names the
variable, without fallbacks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tilewright.base.errors import KnobError, choose, find_nearest_name

T = TypeVar("T")


@dataclass(frozen=True)
class Knob(Generic[T]):
    """One environment variable: its name, the parser of its text, and its purpose."""

    name: str
    kind: str
    parse: Callable[[str], T]
    default: T
    doc: str

    def get(self) -> T:
        """The current value. Raises `KnobError` for a text that the knob's parser rejects."""
        text = os.environ.get(self.name)
        if text is None or text == "":
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise KnobError(f"{self.name}={text!r} cannot be used: {error}") from error


def _parse_path(text: str) -> Path | None:
    return Path(text).expanduser()


def _parse_positive_int(text: str) -> int | None:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError("expected an integer of at least 1")
    return int(text)


def _parse_text(text: str) -> str | None:
    return text


def _parse_remote_mode(text: str) -> str | None:
    return choose("mode", text, REMOTE_MODES)


DEFAULT_ROCM = Path("/opt/rocm")  # where AMD's packages install ROCm


def _parse_emulator_mode(text: str) -> str | None:
    return choose("mode", text, EMULATOR_MODES)


def _parse_prebuilt_mode(text: str) -> str | None:
    return choose("mode", text, PREBUILT_MODES)


def _parse_toolchain(text: str) -> str | None:
    return choose("toolchain", text, TOOLCHAINS)


PREFIX = "TILEWRIGHT_"
TEST_PREFIX = "TILEWRIGHT_TEST_"  # the test suite reads these
READ, READ_WRITE = "read", "read-write"
ROCM, PYPI, GPU_LESS = "rocm", "pypi", "gpu-less"
TOOLCHAINS = (ROCM, PYPI, GPU_LESS)  # in the order of preference
REMOTE_MODES = (READ, READ_WRITE)
PREBUILT_NEVER, PREBUILT_EXACT, PREBUILT_SAME_SOURCE = "never", "exact", "same-source"
PREBUILT_MODES = (PREBUILT_NEVER, PREBUILT_EXACT, PREBUILT_SAME_SOURCE)
EMULATOR_MODES = ("fast", "strict")

ROCM_PATH: Knob[Path | None] = Knob(
    "ROCM_PATH",
    "folder",
    _parse_path,
    None,
    "A ROCm installation. When set, only its compiler and headers are used.",
)
TOOLCHAIN: Knob[str | None] = Knob(
    "TILEWRIGHT_TOOLCHAIN",
    "rocm, pypi or gpu-less",
    _parse_toolchain,
    None,
    "The toolchain that compiles kernels: ROCm, the one from PyPI, or packages of the distribution. Default: the first "
    "of these that is complete.",
)
CXX: Knob[Path | None] = Knob(
    "TILEWRIGHT_CXX",
    "file",
    _parse_path,
    None,
    "The clang++ (or amdclang++) that compiles kernels. Default: found automatically.",
)
CK_PATH: Knob[str | None] = Knob(
    "TILEWRIGHT_CK",
    "folder or tree",
    _parse_text,
    None,
    "A composable_kernel checkout or install whose `include/ck_tile` is used instead of the default tree, or the name "
    "of a fetched tree.",
)
CACHE_DIR: Knob[Path | None] = Knob(
    "TILEWRIGHT_CACHE",
    "folder",
    _parse_path,
    None,
    "Folder for downloaded headers and built artifacts. Default: the user's cache folder.",
)
ARCH_PATH: Knob[Path | None] = Knob(
    "TILEWRIGHT_ARCH_PATH",
    "folder",
    _parse_path,
    None,
    "A folder of GPU files (`gfx*.toml`) in addition to the shipped ones.",
)
ELEMENTWISE_PATH: Knob[Path | None] = Knob(
    "TILEWRIGHT_ELEMENTWISE",
    "folder",
    _parse_path,
    None,
    "A folder of element-wise operations (`*.toml`) for multi_d GEMMs, in addition to CK Tile's.",
)
ALLOCATOR: Knob[Path | None] = Knob(
    "TILEWRIGHT_ALLOCATOR",
    "file",
    _parse_path,
    None,
    "A memory allocator to preload into compilers (tcmalloc, jemalloc). Default: found automatically.",
)
JOBS: Knob[int | None] = Knob(
    "TILEWRIGHT_JOBS",
    "number",
    _parse_positive_int,
    None,
    "Number of parallel processes if a command does not set it. Default: one per core.",
)
STORE: Knob[Path | None] = Knob(
    "TILEWRIGHT_STORE",
    "folder",
    _parse_path,
    None,
    "Folder for built artifacts. Default: `store` in the cache folder.",
)
REMOTE: Knob[str | None] = Knob(
    "TILEWRIGHT_REMOTE",
    "url",
    _parse_text,
    None,
    "A store shared by several machines: `folder:/path`, an absolute path, `redis://host:port/db`, or a signed index, "
    "`https://host/path` or `s3://bucket/prefix`, which is only read.",
)
REMOTE_SECRET_FILE: Knob[Path | None] = Knob(
    "TILEWRIGHT_REMOTE_SECRET_FILE",
    "file",
    _parse_path,
    None,
    "A file with the secret that signs entries of the shared store. When set, entries without a valid signature are "
    "rejected.",
)
REMOTE_ROOT: Knob[Path | None] = Knob(
    "TILEWRIGHT_REMOTE_ROOT",
    "file",
    _parse_path,
    None,
    "The pinned root metadata of a signed index, such as `1.root.json`, from its owner. An index is used only if this "
    "file vouches for it.",
)
REMOTE_MODE: Knob[str | None] = Knob(
    "TILEWRIGHT_REMOTE_MODE",
    "read or read-write",
    _parse_remote_mode,
    None,
    "Whether this machine only reads the shared store, or also writes to it. Default: read-write.",
)
PREBUILT: Knob[str | None] = Knob(
    "TILEWRIGHT_PREBUILT",
    "never, exact or same-source",
    _parse_prebuilt_mode,
    None,
    "Which kernels of installed wheels are used: none, those of exactly this toolchain, or also those that another "
    "compiler made from the same source and CK tree. Default: exact.",
)

DEVICE: Knob[str | None] = Knob(
    "TILEWRIGHT_DEVICE",
    "device",
    _parse_text,
    None,
    "The device of calls without a device: `gpu:0`, or `emulated:gfx942` without a GPU.",
)

EMULATE: Knob[str | None] = Knob(
    "TILEWRIGHT_EMULATE",
    "settings",
    _parse_text,
    None,
    "Set by `tilewright emulate` for the program that it starts: how the program's HIP library finds the emulated "
    "device. Use the command instead of setting it yourself.",
)

TRITON_GPU: Knob[str | None] = Knob(
    "TILEWRIGHT_TRITON_GPU",
    "GPU",
    _parse_text,
    None,
    "The emulated GPU on which Triton runs kernels, such as `gfx942`, in programs that do not choose one themselves.",
)
TRITON_MODE: Knob[str | None] = Knob(
    "TILEWRIGHT_TRITON_MODE",
    "fast or strict",
    _parse_emulator_mode,
    None,
    "The mode of the emulated GPU of `TILEWRIGHT_TRITON_GPU`. Default: fast.",
)

TRITON_CHECK: Knob[str | None] = Knob(
    "TILEWRIGHT_TRITON_CHECK",
    "words",
    _parse_text,
    None,
    "The checks of every launch on the GPU of `TILEWRIGHT_TRITON_GPU`, such as `races,uninitialized`, or `all`. "
    "Default: none.",
)

KNOBS: tuple[Knob[Path | None] | Knob[int | None] | Knob[str | None], ...] = (
    ROCM_PATH,
    TOOLCHAIN,
    CXX,
    CK_PATH,
    CACHE_DIR,
    ARCH_PATH,
    ELEMENTWISE_PATH,
    ALLOCATOR,
    JOBS,
    STORE,
    REMOTE,
    REMOTE_SECRET_FILE,
    REMOTE_ROOT,
    REMOTE_MODE,
    PREBUILT,
    DEVICE,
    EMULATE,
    TRITON_GPU,
    TRITON_MODE,
    TRITON_CHECK,
)


def cache_dir() -> Path:
    """The folder for everything that can be recreated: the knob's, else the platform's user cache."""
    configured = CACHE_DIR.get()
    if configured is not None:
        return configured
    import platformdirs  # noqa: PLC0415  (costs start-up time, needed by few commands)

    return Path(platformdirs.user_cache_dir("tilewright", appauthor=False))


def store_dir() -> Path:
    """The folder of the artifact store: the knob's, else `store` in the cache folder."""
    return STORE.get() or cache_dir() / "store"


def is_remote_writable() -> bool:
    """Whether the shared store is written, not only read."""
    return (REMOTE_MODE.get() or READ_WRITE) == READ_WRITE


def get_prebuilt_mode() -> str:
    """Which kernels of installed wheels may be used."""
    return PREBUILT.get() or PREBUILT_EXACT


def job_count() -> int:
    """The default number of parallel processes."""
    return JOBS.get() or os.cpu_count() or 1


@dataclass(frozen=True)
class UnknownVariable:
    """An environment variable of this process that begins like ours, and that nothing reads."""

    name: str
    nearest: str | None

    def __str__(self) -> str:
        hint = f" Did you mean {self.nearest}?" if self.nearest else " `tilewright knobs` lists the known ones."
        return f"the environment variable {self.name} is not read.{hint}"


def find_unknown_variables() -> list[UnknownVariable]:
    """Variables that begin with TILEWRIGHT_ and are not knobs: a misspelt one has no effect, and no error."""
    known = [knob.name for knob in KNOBS]
    names = sorted(name for name in os.environ if name.startswith(PREFIX) and not name.startswith(TEST_PREFIX))
    return [UnknownVariable(name, find_nearest_name(name, known)) for name in names if name not in known]


def search_path() -> str:
    """The PATH for programs."""
    return os.environ.get("PATH", os.defpath)


def read_foreign_variables(names: Iterable[str]) -> dict[str, str]:
    """Variables of other programs, such as the settings of pip; only those that are set and not empty."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def copy_environment_without(names: Collection[str]) -> dict[str, str]:
    """The environment of this process without some variables, for a program that must not see them."""
    return {name: value for name, value in os.environ.items() if name not in names}


def set_variables(values: Mapping[str, str]) -> None:
    """Set environment variables of this process and of all processes that it starts from now on."""
    os.environ.update(values)
