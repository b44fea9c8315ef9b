"""Compile one source: the device pass to a code object, the host pass as a check. Failures are values."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tilewright.arch.spec import Arch
from tilewright.base.digest import digest_text
from tilewright.base.errors import InvalidValueError, ToolchainError
from tilewright.building.process import LOG, ProcessResult, run_command
from tilewright.building.toolchain import Toolchain

SOURCE = "kernel.hip"
_CODE_OBJECT = "kernel.co"
# "file:3:5: error: text", "lld: error: text"; from code generation "error: <unknown>:0:0: text".
_ERROR = re.compile(r"^(?:.*?: )?(?:fatal )?error: (?:<unknown>:0:0: )?(?P<text>.*)$")


@dataclass(frozen=True, slots=True)
class CompileOutcome:
    """The result of a compilation. `path` is the code object, or None if there is none."""

    ok: bool
    log: str  # the compiler's output, plus a line if it crashed or timed out
    errors: tuple[str, ...]  # the distinct errors, without files and lines
    cpu_s: float
    wall_s: float
    path: Path | None


def compile_device(
    text: str,
    arch: Arch,
    toolchain: Toolchain,
    out: Path,
    *,
    files: Mapping[str, str] = {},
    extra_flags: Sequence[str] = (),
    timeout_s: float = 600,
) -> CompileOutcome:
    """Compile `text` for `arch` to the code object `out`, which is written atomically.

    `files` are written next to the source, for its #include "…". No folder names get into `out`.
    """
    flags = (*toolchain.device_flags(arch), *extra_flags, "-o", _CODE_OBJECT)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".compile-") as private:
        folder = Path(private).absolute()
        _write_all(folder, text, files)
        ran = _run_compiler(toolchain, (*flags, unit_flag(text), SOURCE), folder, timeout_s)
        made = folder / _CODE_OBJECT
        if ran.code == 0 and not ran.timed_out and made.is_file():
            made.replace(out)
            return CompileOutcome(True, ran.output, (), ran.cpu_s, ran.wall_s, out)
    return _make_failure(ran, folder, timeout_s)


def compile_host_syntax(
    text: str,
    arch: Arch,
    toolchain: Toolchain,
    *,
    files: Mapping[str, str] = {},
    extra_flags: Sequence[str] = (),
    timeout_s: float = 600,
) -> CompileOutcome:
    """Check the host code of `text` without writing a file."""
    flags = (
        *toolchain.host_flags(),
        f"--offload-arch={arch.name}",
        *extra_flags,
        "-fsyntax-only",
    )
    with tempfile.TemporaryDirectory(prefix="tilewright-") as private:
        folder = Path(private)
        _write_all(folder, text, files)
        ran = _run_compiler(toolchain, (*flags, unit_flag(text), SOURCE), folder, timeout_s)
    if ran.code == 0 and not ran.timed_out:
        return CompileOutcome(True, ran.output, (), ran.cpu_s, ran.wall_s, None)
    return _make_failure(ran, folder, timeout_s)


def unit_flag(text: str) -> str:
    """Return the flag that names a translation unit after its text; both passes of a source need it.

    Without it clang derives the name from the file's folder, and equal sources give different objects.
    """
    return f"-cuid={digest_text(text)}"


def extract_errors(log: str) -> tuple[str, ...]:
    """Extract the distinct errors of a compiler log in order, without file names, line numbers and program names."""
    matches = (_ERROR.match(line) for line in log.splitlines())
    return tuple(dict.fromkeys(match["text"].strip() for match in matches if match))


def _run_compiler(toolchain: Toolchain, arguments: Sequence[str], folder: Path, timeout_s: float) -> ProcessResult:
    if not toolchain.cxx.is_file():
        raise ToolchainError(f"the compiler {toolchain.cxx} no longer exists. Look again with: tilewright doctor")
    return run_command((str(toolchain.cxx), *arguments), folder=folder, timeout_s=timeout_s)


def _write_all(folder: Path, text: str, files: Mapping[str, str]) -> None:
    (folder / SOURCE).write_text(text, encoding="utf-8")
    for name, content in files.items():
        relative = PurePosixPath(name)
        if name in (SOURCE, _CODE_OBJECT, LOG):
            raise InvalidValueError(f"a source's file cannot be named {name!r}: the name is reserved")
        if relative.is_absolute() or ".." in relative.parts or not relative.name:
            raise InvalidValueError(f"a source's file must be inside its folder, {name!r} is not")
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def _make_failure(ran: ProcessResult, folder: Path, timeout_s: float) -> CompileOutcome:
    log = ran.output.replace(f"{folder}/", "")
    errors = extract_errors(log)
    ending = _describe_ending(ran, timeout_s)
    if ending:
        log = f"{log.rstrip()}\n{ending}\n".lstrip()
        errors = (*errors, ending)
    return CompileOutcome(False, log, errors, ran.cpu_s, ran.wall_s, None)


def _describe_ending(ran: ProcessResult, timeout_s: float) -> str:
    """Describe how a compiler ended other than by rejecting the source; empty if it rejected the source."""
    if ran.timed_out:
        return f"the compiler was stopped after {timeout_s:g} s, its time limit"
    if ran.code < 0:
        return f"the compiler crashed with signal {-ran.code}"
    if ran.code == 0:
        return "the compiler ended with code 0 but wrote no code object"
    if not extract_errors(ran.output):
        return f"the compiler ended with code {ran.code} without an error message"
    return ""
