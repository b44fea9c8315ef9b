"""The handwritten handlers, by the name that lowering uses. Their order defines their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.emulator.isa.operation import Operation

HANDLERS = {
    # control.h
    "nothing": "run_nothing",
    "unknown": "run_unknown",
    "nowhere": "run_nowhere",
    "trap": "run_trap",
    "wait": "run_wait",
    "branch": "run_branch",
    "branch_scc0": "run_branch_scc0",
    "branch_scc1": "run_branch_scc1",
    "branch_vccz": "run_branch_vccz",
    "branch_vccnz": "run_branch_vccnz",
    "branch_execz": "run_branch_execz",
    "branch_execnz": "run_branch_execnz",
    "set_skip": "run_set_skip",
    "set_index": "run_set_index",
    "set_pc": "run_setpc",
    "swap_pc": "run_swappc",
    "get_pc": "run_getpc",
    "call": "run_call",
    "barrier": "run_barrier",
    "barrier_signal": "run_barrier_signal",
    "barrier_first": "run_barrier_first",
    "barrier_wait": "run_barrier_wait",
    "grid_barrier": "run_grid_barrier",
    "end": "run_end",
    "get_mode": "run_getreg",
    "set_mode": "run_setreg",
    "time": "run_time",
    # scalar_memory.h, scalar_writes.h, global_memory.h, buffer.h, flat.h
    "scalar_load": "run_scalar_load",
    "scalar_buffer_load": "run_scalar_buffer_load",
    "global_load": "run_global_load",
    "global_store": "run_global_store",
    "global_atomic": "run_global_atomic",
    "scratch_load": "run_scratch_load",
    "scratch_store": "run_scratch_store",
    "buffer_load": "run_buffer_load",
    "buffer_store": "run_buffer_store",
    "buffer_atomic": "run_buffer_atomic",
    "flat_load": "run_flat_load",
    "flat_store": "run_flat_store",
    "flat_atomic": "run_flat_atomic",
    "cache_control": "run_cache_control",
    "occupy": "occupy",
    "scalar_store": "run_scalar_store",
    "scalar_atomic": "run_scalar_atomic",
    "scalar_buffer_store": "run_scalar_buffer_store",
    "scalar_buffer_atomic": "run_scalar_buffer_atomic",
    # register_blocks.h
    "global_load_block": "run_global_load_block",
    "global_store_block": "run_global_store_block",
    "scratch_load_block": "run_scratch_load_block",
    "scratch_store_block": "run_scratch_store_block",
    # lds.h, lds_atomics.h
    "lds_read": "run_lds_read",
    "lds_write": "run_lds_write",
    "lds_atomic": "run_lds_atomic",
    "lds_exchange_two": "run_lds_exchange_two",
    "lds_count": "run_lds_count",
    "bpermute": "run_bpermute",
    "permute": "run_permute",
    "swizzle": "run_swizzle",
    # matrix.h
    "matrix_float": "run_matrix_float",
    "matrix_scaled": "run_matrix_scaled",
    "matrix_int": "run_matrix_int",
    "matrix_double": "run_matrix_double",
    # cross_lane.h
    "read_first_lane": "run_read_first_lane",
    "read_lane": "run_read_lane",
    "write_lane": "run_write_lane",
    "count_below": "run_count_below",
    "swap": "run_swap",
    "swap_rows": "run_swap_rows",
    "permute_row": "run_permute_row",
    "permute_row_by_lane": "run_permute_row_by_lane",
    "pair": "run_pair",
    "halves": "run_halves",
    # indexed.h
    "indexed": "run_indexed",
    "relative_move": "run_relative_move",
    # elements.h
    "elements": "run_elements",
    # logic.h
    "save_exec": "run_save_exec",
    "write_exec": "run_write_exec",
    "bitop3": "run_bitop3",
    "fma_mix": "run_fma_mix",
}
NUMBERS = {name: number for number, name in enumerate(HANDLERS)}


def list_signed_dots() -> list[Operation]:
    """Return v_dot4_i32_iu8 and v_dot8_i32_iu4 with every combination of signs."""
    from tilewright.emulator.isa.packed import find_signed_dot  # noqa: PLC0415 - not needed by kernels from the cache

    every = (
        find_signed_dot(name, first, second)
        for name in ("v_dot4_i32_iu8", "v_dot8_i32_iu4")
        for first in (False, True)
        for second in (False, True)
    )
    return [operation for operation in every if operation is not None]
