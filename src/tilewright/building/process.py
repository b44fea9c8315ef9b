"""Run a program with a time limit; return its output, exit code and CPU time. Compilers run with a faster allocator."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.base import knobs
from tilewright.base.errors import ToolchainError

# Where Debian and Red Hat install libtcmalloc-minimal4 (gperftools-libs) and libjemalloc2.
_PLACES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")
_NAMES = ("libtcmalloc_minimal.so.4", "libjemalloc.so.2")


def find_fast_allocator() -> Path | None:
    """Find the library to preload into compilers: the one the knob names, else the first known one that exists."""
    configured = knobs.ALLOCATOR.get()
    if configured is not None:
        if configured.is_file():
            return configured
        raise ToolchainError(f"{knobs.ALLOCATOR.name}={configured} does not exist. Unset it, or name a shared library.")
    candidates = (Path(place) / name for name in _NAMES for place in _PLACES)
    return next((path for path in candidates if path.is_file()), None)


# Variables that change a compiler's results or messages without showing in the command line. With them one build key
# could stand for different code, so they are removed for all tools. The names are from the programs clang and lld of
# LLVM 22 (strings), and from the manuals of gcc, GNU ld and hipcc. ROCM_PATH stays: it is a knob, and --rocm-path
# overrides it.
HIDDEN_INPUTS = (
    # folders and flags
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "OBJCPLUS_INCLUDE_PATH",
    "COMPILER_PATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX", "SDKROOT", "CCC_OVERRIDE_OPTIONS",
    "CLANG_CONFIG_PATH", "CLANG_MODULE_CACHE_PATH", "LD_RUN_PATH", "LDEMULATION",
    # paths that would replace the HIP components that were found
    "HIP_PATH", "HIP_CLANG_PATH", "HIP_CLANG_INCLUDE_PATH", "HIP_DEVICE_LIB_PATH", "DEVICE_LIB_PATH", "HIP_LIB_PATH",
    "HIP_PLATFORM", "HIP_COMPILER", "HIP_RUNTIME", "HIPCC_COMPILE_FLAGS_APPEND", "HIPCC_LINK_FLAGS_APPEND",
    # texts in the output files
    "SOURCE_DATE_EPOCH", "LLVM_OVERRIDE_PRODUCER", "LLD_VERSION", "RC_DEBUG_OPTIONS", "RC_DEBUG_PREFIX_MAP",
    # messages and additional files
    "CC_PRINT_OPTIONS", "CC_PRINT_OPTIONS_FILE", "CC_PRINT_HEADERS", "CC_PRINT_HEADERS_FILE", "CC_PRINT_HEADERS_FORMAT",
    "CC_PRINT_HEADERS_FILTERING", "CC_LOG_DIAGNOSTICS", "CC_LOG_DIAGNOSTICS_FILE", "CC_PRINT_PROC_STAT",
    "CC_PRINT_PROC_STAT_FILE", "CC_PRINT_INTERNAL_STAT", "CC_PRINT_INTERNAL_STAT_FILE", "CLANG_CRASH_DIAGNOSTICS_DIR",
    "LLD_REPRODUCE",
)  # fmt: skip
LOG = "output.log"
_LONGEST_NAP_S = 0.02


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """The result of a program: `code` is its exit code, or -N if signal N ended it."""

    code: int
    output: str  # standard output and error, interleaved as written
    cpu_s: float  # user and system time of the program and its children
    wall_s: float
    timed_out: bool


def run_command(command: Sequence[str], *, folder: Path, timeout_s: float) -> ProcessResult:
    """Run `command` in `folder`, a private folder that is also used for the program's temporary files.

    A program that is still running after `timeout_s` is killed with all processes it started.
    """
    log = folder / LOG
    started = time.monotonic()
    with log.open("wb") as sink:
        # env(1) sets and removes variables, so that this module never reads the environment itself.
        process = subprocess.Popen(
            ["/usr/bin/env", *format_env_removals(), f"TMPDIR={folder}", *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status, cpu_s, timed_out = _wait_for_process(process, started + timeout_s)
        except BaseException:  # such as Ctrl-C, which does not reach another process group
            _stop_process(process)
            raise
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.monotonic() - started
    output = log.read_text(encoding="utf-8", errors="replace")
    log.unlink()
    return ProcessResult(process.returncode, output, cpu_s, wall_s, timed_out)


def read_tool_output(command: Sequence[str], *, timeout_s: float = 60, allow_failure: bool = False) -> str:
    """Return the output of a small tool. Raises `ToolchainError` if it times out, or fails without `allow_failure`."""
    done = _run_small_tool(command, timeout_s)
    if done.returncode != 0 and not allow_failure:
        said = (done.stderr or done.stdout).decode(errors="replace").strip() or "it printed nothing"
        raise ToolchainError(f"{' '.join(command)} ended with code {done.returncode}: {said}")
    return done.stdout.decode(errors="replace")


def read_all_output(command: Sequence[str], *, timeout_s: float = 60) -> str:
    """Like `read_tool_output`, but with standard error first, then standard output."""
    done = _run_small_tool(command, timeout_s)
    said = (done.stderr + done.stdout).decode(errors="replace")
    if done.returncode != 0:
        raise ToolchainError(f"{' '.join(command)} ended with code {done.returncode}: {said.strip() or 'no output'}")
    return said


def _run_small_tool(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            list(command),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
            env=knobs.copy_environment_without(HIDDEN_INPUTS),
        )
    except OSError as error:
        raise ToolchainError(f"{command[0]} cannot be started: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise ToolchainError(f"{command[0]} did not end within {timeout_s:g} s") from error


def format_env_removals() -> list[str]:
    """Return the arguments of env(1) that remove the hidden inputs."""
    return [word for name in HIDDEN_INPUTS for word in ("-u", name)]


def _wait_for_process(process: subprocess.Popen[bytes], deadline: float) -> tuple[int, float, bool]:
    """Wait with wait4, the only call that returns the CPU time of a single child."""
    nap = 0.001
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            return status, usage.ru_utime + usage.ru_stime, False
        if time.monotonic() >= deadline:
            break
        time.sleep(nap)
        nap = min(nap * 2, _LONGEST_NAP_S)
    status, cpu_s = _stop_process(process)
    return status, cpu_s, True


def _stop_process(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Kill the program and all processes it started: they are in one process group, see start_new_session."""
    os.killpg(process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return status, usage.ru_utime + usage.ru_stime
