"""The meaning of an instruction for other work-groups: does it bypass caches, write them back or invalidate them?

The rules are those of LLVM's memory model for AMDGPU, at the scope of the device ("agent").
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.emulator.code import LoadedCode
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.waitcnt import find_counters

# Instruction.scope in shadow.h
COHERENT, WRITES_BACK, INVALIDATES, WAITS_FOR_STORES, WAITS_FOR_LDS = 1, 2, 4, 8, 16
_DEVICE_SCOPES = ("SCOPE_DEV", "SCOPE_SYS")
# Each die of these GPUs has its own L2 cache, so a release writes it back.
_SEVERAL_CACHES = ("gfx942", "gfx950")


def needs_writeback(arch: str) -> bool:
    """Whether a release at the scope of the device must write a cache back (buffer_wbl2 sc1)."""
    return arch in _SEVERAL_CACHES


def has_scoped_stores(arch: str) -> bool:
    """Whether stores tell their scope. On other GPUs an atomic store looks like any other."""
    return arch in _SEVERAL_CACHES or arch.startswith("gfx12")


def find_access_scope(name: str, instruction: Instruction, code: LoadedCode) -> int:
    """Return COHERENT for a load or store that bypasses the caches of its compute unit, else 0."""
    if "_load_" not in name and "_store_" not in name:
        return 0
    given, arch = instruction.modifiers, code.arch.name
    if arch.startswith("gfx12"):
        return COHERENT if given.get("scope") in _DEVICE_SCOPES else 0
    if arch in _SEVERAL_CACHES:
        return COHERENT if given.get("sc1") else 0
    return COHERENT if given.get("glc") and "_load_" in name else 0


def find_fence(name: str, instruction: Instruction) -> int:
    """Return the effects of a cache instruction at the scope of the device."""
    given = instruction.modifiers
    if name.startswith("global_"):
        if given.get("scope") not in _DEVICE_SCOPES:
            return 0
        return (WRITES_BACK if "wb" in name else 0) | (INVALIDATES if "inv" in name else 0)
    if name in ("buffer_wbl2", "buffer_inv"):
        # gfx90a's have no scope bits: there they are for the whole system.
        if given and not given.get("sc1"):
            return 0
        return WRITES_BACK if name == "buffer_wbl2" else INVALIDATES
    # buffer_gl0_inv is for the work-group: its L0 caches; buffer_invl2 is for the system: a device has one L2 cache.
    return 0 if name in ("buffer_gl0_inv", "buffer_invl2") else INVALIDATES


def find_wait_scope(counts: Mapping[str, int], arch: str) -> int:
    """Return which accesses are complete after a wait."""
    counters = find_counters(arch)
    stores = WAITS_FOR_STORES if counts.get(counters["store"]) == 0 else 0
    return stores | (WAITS_FOR_LDS if counts.get(counters["lds"]) == 0 else 0)
