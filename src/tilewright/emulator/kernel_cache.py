"""Code objects and lowered kernels that earlier processes have read, in a folder.

Reading, disassembling and lowering a kernel takes longer than most launches, and needs modules that take even longer to
import. The folder belongs to one version of the emulator's sources (`hip_shim.program` chooses it), and to its user:
its files are pickled.
"""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.emulator.code import LoadedCode
from tilewright.emulator.code_object import CodeObject
from tilewright.emulator.native.lowered import LoweredKernel, UnsupportedInstruction, from_bytes, to_bytes
from tilewright.emulator.tools import get_given_tools

# An unfinished or foreign file: it is made again.
_UNREADABLE = (OSError, pickle.UnpicklingError, EOFError, AttributeError, KeyError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class KernelCache:
    """The files of one folder."""

    folder: Path

    def read_code_object(self, data: bytes) -> CodeObject | None:
        """Return the code object in `data` if it is kept: a complete one, which LLVM can disassemble."""
        try:
            found: CodeObject = pickle.loads(self._name_code(data).read_bytes())
            return replace(found, data=data)
        except _UNREADABLE:
            return None

    def keep_code_object(self, code_object: CodeObject) -> None:
        """Keep a code object that was read and disassembled."""
        self._write(self._name_code(code_object.data), pickle.dumps(replace(code_object, data=b"")))

    def read_kernel(self, identity: str, code: LoadedCode) -> LoweredKernel | UnsupportedInstruction | None:
        """Return a kernel of the code object with this identity, if it is kept."""
        try:
            return from_bytes(self._name_kernel(identity, code).read_bytes(), code.base)
        except _UNREADABLE:
            return None

    def keep_kernel(self, identity: str, code: LoadedCode, lowered: LoweredKernel | UnsupportedInstruction) -> None:
        """Keep a kernel."""
        self._write(self._name_kernel(identity, code), to_bytes(lowered, code.base))

    def _name_code(self, data: bytes) -> Path:
        return self.folder / f"{identify(data)}.code"

    def _name_kernel(self, identity: str, code: LoadedCode) -> Path:
        return self.folder / f"{identity}-{identify(code.kernel.encode())}.kernel"

    def _write(self, path: Path, data: bytes) -> None:
        from tilewright.base.atomic_write import write_atomically  # noqa: PLC0415 - not needed to read

        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with write_atomically(path) as draft:
            draft.write_bytes(data)


def find_kernel_cache() -> KernelCache | None:
    """Return the cache of this process; None if it has none."""
    tools = get_given_tools()
    return None if tools is None or tools.kernels is None else KernelCache(tools.kernels)


def identify(data: bytes) -> str:
    """Return a digest of some bytes."""
    return hashlib.sha256(data).hexdigest()[:32]
