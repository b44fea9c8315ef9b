"""Occupancy: the number of resident waves and work-groups of a kernel on a GPU.

The rules are those of LLVM's AMDGPU backend (`getNumWavesPerEUWithNumVGPRs`, `getMaxWorkGroupsPerCU`,
`getOccupancyWithWorkGroupSizes`), with two points where the hardware uses more than LLVM 22 counts: scalar registers
and LDS are allocated in whole granules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError

# In a unified file the accumulation registers start at a multiple of this: LLVM,
# getTotalNumVGPRs(has90AInsts, …), and ACCUM_OFFSET of the kernel descriptor.
AGPR_START_GRANULE = 4


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Resident waves and work-groups. All zero if not even one work-group fits."""

    waves_per_simd: int  # on the fullest SIMD of a unit
    blocks_per_unit: int
    limited_by: str  # the key of `limits` that prevents one more work-group
    limits: Mapping[str, int]  # waves per SIMD that each resource alone allows


def compute_occupancy(
    arch: Arch, *, vgprs: int, agprs: int, sgprs: int, lds_bytes: int, block_threads: int
) -> Occupancy:
    """Occupancy of a kernel with these registers per wave, and this LDS and these threads per work-group.

    `vgprs` are architectural registers only. With a unified register file, the `.vgpr_count` of a code object includes
    the AGPRs: see `count_architectural_vgprs`.
    """
    _check_registers(arch, vgprs=vgprs, agprs=agprs, sgprs=sgprs)
    _check_work_group(arch, lds_bytes=lds_bytes, block_threads=block_threads)
    compute = arch.compute
    block_waves = -(-block_threads // arch.wave_size)
    limits = {
        "waves": compute.max_waves_per_simd,
        "vgprs": _count_vgpr_waves(arch, vgprs, agprs),
        "sgprs": _count_sgpr_waves(arch, sgprs),
    }
    register_waves = min(limits.values())
    # The waves of a work-group go to any SIMDs of the unit with free slots, but all or none of them.
    blocks = compute.simds_per_unit * register_waves // block_waves
    if block_waves > 1:  # a single wave needs no barrier
        blocks = min(blocks, compute.max_blocks_per_unit)
    lds_blocks = _count_lds_groups(arch, lds_bytes)

    def count_waves(count: int) -> int:
        return min(compute.max_waves_per_simd, -(-count * block_waves // compute.simds_per_unit))

    limits |= {"lds": count_waves(lds_blocks), "block": count_waves(blocks)}
    if lds_blocks < blocks:
        limited_by = "lds"
    elif limits["block"] < register_waves:
        limited_by = "block"
    else:
        limited_by = next(name for name, limit in limits.items() if limit == register_waves)
    resident = min(blocks, lds_blocks)
    return Occupancy(count_waves(resident), resident, limited_by, limits)


def count_architectural_vgprs(arch: Arch, vgpr_count: int, agpr_count: int) -> int:
    """VGPRs without AGPRs, from the `.vgpr_count` and `.agpr_count` of a code object's metadata.

    With a unified file `.vgpr_count` is the sum, with the VGPRs rounded up to the start of the AGPRs. With separate
    files it is the larger of the two, which `compute_occupancy` can use unchanged.
    """
    if arch.registers.agprs != "unified":
        return vgpr_count
    if agpr_count > vgpr_count:
        raise InvalidValueError(
            f".agpr_count {agpr_count} is larger than .vgpr_count {vgpr_count}, which includes it on {arch.name}. "
            "Pass both as they are in the metadata of the code object."
        )
    return vgpr_count - agpr_count


def _round_up(value: int, granule: int) -> int:
    """The next multiple of the granule; at least one granule is allocated."""
    return -(-max(value, 1) // granule) * granule


def _count_vgpr_waves(arch: Arch, vgprs: int, agprs: int) -> int:
    registers = arch.registers
    if registers.agprs == "unified" and agprs:
        used = -(-vgprs // AGPR_START_GRANULE) * AGPR_START_GRANULE + agprs
    else:  # separate files have the same size and granule: the fuller one decides
        used = max(vgprs, agprs)
    fitting = registers.vgprs // _round_up(used, registers.vgpr_granule)
    return min(fitting, arch.compute.max_waves_per_simd)


def _count_sgpr_waves(arch: Arch, sgprs: int) -> int:
    registers = arch.registers
    if registers.sgprs == 0:
        return arch.compute.max_waves_per_simd
    # LLVM's remark divides the file by the exact count (getOccupancyWithNumSGPRs), its allocator counts whole granules
    # (getMaxNumSGPRs); the kernel descriptor can only request granules.
    fitting = registers.sgprs // _round_up(sgprs, registers.sgpr_granule)
    return min(fitting, arch.compute.max_waves_per_simd)


def _count_lds_groups(arch: Arch, lds_bytes: int) -> int:
    """Number of work-groups whose LDS fits into one unit; without LDS, the number of wave slots."""
    if lds_bytes == 0:
        return arch.compute.simds_per_unit * arch.compute.max_waves_per_simd
    if lds_bytes > arch.lds.bytes:
        return 0
    return arch.lds.unit_bytes // _round_up(lds_bytes, arch.lds.granule)


def _check_registers(arch: Arch, *, vgprs: int, agprs: int, sgprs: int) -> None:
    registers = arch.registers
    most_agprs = 0 if registers.agprs == "none" else registers.max_vgprs
    other_gpu = "Check which GPU the kernel was compiled for."
    _check_range(arch, "vgprs", vgprs, (0, registers.max_vgprs), "Subtract AGPRs from a total count.")
    _check_range(arch, "agprs", agprs, (0, most_agprs), other_gpu)
    _check_range(arch, "sgprs", sgprs, (0, _max_sgprs(arch)), other_gpu)


def _check_work_group(arch: Arch, *, lds_bytes: int, block_threads: int) -> None:
    """LDS above the limit is allowed: a launch may request it, and then no work-group fits."""
    if lds_bytes < 0:
        raise InvalidValueError(f"lds_bytes is {lds_bytes}; it cannot be negative.")
    most = arch.compute.max_block_threads
    _check_range(arch, "block_threads", block_threads, (1, most), "Use fewer waves.")


def _check_range(arch: Arch, name: str, value: int, limits: tuple[int, int], advice: str) -> None:
    least, most = limits
    if not least <= value <= most:
        raise InvalidValueError(f"{name} is {value}; {arch.name} allows {least} to {most}. {advice}")


def _max_sgprs(arch: Arch) -> int:
    """Metadata counts VCC, XNACK and flat scratch in addition to the registers that a wave addresses: at most 6 more
    (LLVM, getNumExtraSGPRs), rounded up here to the granule that is allocated anyway."""
    registers = arch.registers
    if registers.sgprs == 0:
        return registers.max_sgprs + 6
    return _round_up(registers.max_sgprs + 6, registers.sgpr_granule)
