"""The instruction mix of a kernel, for gfx9 (GCN, CDNA), gfx11 and gfx12 (RDNA)."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping

from tilewright.building.disassembled import DisassembledInstruction

# Instruction classes by executing unit, in report order.
CLASSES = (
    "matrix",  # MFMA, WMMA and their sparse forms
    "valu",  # vector arithmetic; each half of a dual instruction counts
    "salu",  # scalar arithmetic
    "smem",  # scalar loads and the scalar cache
    "lds",  # local data share, and lane exchange through it
    "global",  # buffer, global, flat, scratch and image memory, and the vector caches
    "wait",  # waiting for memory or arithmetic counters
    "barrier",
    "branch",  # jumps and calls
    "other",  # end of program, hints, idling, messages, exports and unknown instructions
)

# Mnemonic prefixes, first match wins. From the ISA manuals for CDNA3, RDNA3
# and RDNA4 (encodings VOP3P-MAI and WMMA, DS and LDSDIR, MUBUF, MTBUF, FLAT, VIMAGE, SMEM, SOPP).
_PREFIXES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("matrix", ("v_mfma_", "v_smfmac_", "v_wmma_", "v_swmmac_")),
    ("valu", ("v_",)),
    ("lds", ("ds_", "lds_")),
    ("global", ("buffer_", "tbuffer_", "global_", "flat_", "scratch_", "image_")),
    (
        "smem",
        (
            "s_load_",
            "s_buffer_",
            "s_store_",
            "s_scratch_",
            "s_atomic_",
            "s_dcache_",
            "s_gl1_inv",
            "s_memtime",
            "s_memrealtime",
            "s_prefetch_",
            "s_atc_probe",
        ),
    ),
    ("barrier", ("s_barrier", "s_get_barrier_state")),
    ("wait", ("s_waitcnt", "s_wait_")),
    ("branch", ("s_branch", "s_cbranch_", "s_setpc_", "s_swappc_", "s_call_", "s_subvector_loop_")),
    (
        "other",
        (
            "s_clause",
            "s_code_end",
            "s_decperflevel",
            "s_delay_alu",
            "s_denorm_mode",
            "s_endpgm",
            "s_icache_inv",
            "s_incperflevel",
            "s_inst_prefetch",
            "s_nop",
            "s_round_mode",
            "s_sendmsg",
            "s_set_gpr_idx_",
            "s_set_inst_prefetch",
            "s_sethalt",
            "s_setkill",
            "s_setprio",
            "s_sleep",
            "s_trap",
            "s_ttracedata",
            "s_version",
            "s_wakeup",
        ),
    ),
    ("salu", ("s_",)),
)


@functools.lru_cache(4096)
def classify(mnemonic: str) -> str:
    """Return the class of a mnemonic."""
    for name, prefixes in _PREFIXES:
        if mnemonic.startswith(prefixes):
            return name
    return "other"


def count_by_class(instructions: Iterable[DisassembledInstruction]) -> Mapping[str, int]:
    """Count the instructions of each class; classes without instructions are included."""
    counts = Counter(classify(m) for instruction in instructions for m in instruction.mnemonics)
    return {name: counts[name] for name in CLASSES}


def count_matrix_instructions(instructions: Iterable[DisassembledInstruction]) -> Mapping[str, int]:
    """Count the matrix instructions by mnemonic."""
    names = (i.mnemonic for i in instructions if classify(i.mnemonic) == "matrix")
    return dict(sorted(Counter(names).items()))
