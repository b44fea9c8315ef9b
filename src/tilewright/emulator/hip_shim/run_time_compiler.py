"""hiprtc: compile a source that a program passes while it runs, and find the names of its kernels."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tilewright.base.errors import InvalidValueError
from tilewright.building.process import run_command
from tilewright.emulator.code_object import CodeObject, read_code_object

_LIMIT_S = 600.0
_CODE = "program.co"
_SOURCE = "program.hip"
_NAME = "tilewright_name_"
# Options that name GPUs. The emulated device is one, and its flags name it.
_GPU_OPTIONS = ("--offload-arch=", "--gpu-architecture=", "--amdgpu-target=")


@dataclass(frozen=True, slots=True)
class CompiledSource:
    """The result of a compilation. `code` is empty if it failed; `names` are the symbols of the expressions."""

    log: str
    code: bytes
    names: tuple[str, ...]


def compile_source(
    compiler: Sequence[str],
    gpu: str,
    name: str,
    text: str,
    headers: Mapping[str, str],
    options: Sequence[str],
    expressions: Sequence[str],
) -> CompiledSource:
    """Compile a source for a GPU. `compiler` is the command for a code object, without input and output.

    `name` is that of the source in messages; HIP's run-time header needs no #include. `headers` are files that the
    source may include by their names.
    """
    kept = [option for option in options if not _names_gpu(option, gpu)]
    asked = "".join(
        f'\nextern "C" __device__ __attribute__((used)) const void* const {_NAME}{number} = '
        f"reinterpret_cast<const void*>(&({expression.strip().removeprefix('&')}));"  # variables have a & already
        for number, expression in enumerate(expressions)
    )
    with tempfile.TemporaryDirectory(prefix="tilewright-hiprtc-") as private:
        folder = Path(private)
        for path, content in headers.items():
            _write_header(folder, path, content)
        whole = f'#line 1 "{name}"\n{text}\n#line 1 "name expressions"{asked}\n'
        (folder / _SOURCE).write_text(whole, "utf-8", "surrogateescape")
        included = ("-include", "hip/hip_runtime.h", f"-I{folder}")
        command = (*compiler, *included, *kept, _SOURCE, "-o", _CODE)
        done = run_command(command, folder=folder, timeout_s=_LIMIT_S)
        if done.code != 0 or not (folder / _CODE).is_file():
            return CompiledSource(done.output or f"the compiler ended with code {done.code}", b"", ())
        code = (folder / _CODE).read_bytes()
    found = read_code_object(code) if expressions else None
    names = () if found is None else tuple(_find_name(found, number) for number in range(len(expressions)))
    return CompiledSource(done.output, code, names)


def _names_gpu(option: str, gpu: str) -> bool:
    """Whether an option names the emulated GPU; another GPU is an error."""
    for prefix in _GPU_OPTIONS:
        if option.startswith(prefix):
            named = option.removeprefix(prefix).partition(":")[0]
            if named != gpu:
                raise InvalidValueError(f"hiprtc shall compile for {named}, but the emulated GPU is {gpu}")
            return True
    return False


def _write_header(folder: Path, name: str, content: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name in ("", _SOURCE, _CODE):
        raise InvalidValueError(f"hiprtc cannot have a header named {name!r}: it must be a relative path")
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content, "utf-8", "surrogateescape")


def _find_name(code: CodeObject, number: int) -> str:
    """Return the symbol whose address a variable of `compile_source` holds."""
    place = code.symbols[f"{_NAME}{number}"].address
    target = next(relocation.addend for relocation in code.relocations if relocation.address == place)
    return next(symbol.name for symbol in code.symbols.values() if symbol.address == target)
