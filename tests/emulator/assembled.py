"""Hand-written kernels: assembly in, code objects out."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

LANES = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32}

_KERNEL = """
.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
.text
.globl {name}
.p2align 8
.type {name},@function
{name}:
{body}
.Lend:
.size {name}, .Lend-{name}
.rodata
.p2align 6
.amdhsa_kernel {name}
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr {registers}
  .amdhsa_next_free_sgpr 100
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_private_segment_fixed_size {private}
  .amdhsa_system_vgpr_workitem_id 2
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_system_sgpr_workgroup_id_y 1
  .amdhsa_system_sgpr_workgroup_id_z 1
{directives}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--{arch}
amdhsa.kernels:
  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: {kernarg}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: {private}
    .wavefront_size: {lanes}
    .sgpr_count: 100
    .vgpr_count: {vgprs}
    .max_flat_workgroup_size: 1024
    .args:
      - {{.offset: 0, .size: {kernarg}, .value_kind: by_value}}
...
.end_amdgpu_metadata
"""
_ACCUMULATORS = ("gfx90a", "gfx942", "gfx950")


@functools.cache
def assemble(
    body: str,
    arch: str = "gfx942",
    *,
    name: str = "kernel",
    vgprs: int = 32,
    lds: int = 0,
    private: int = 0,
    kernarg: int = 16,
    accumulators: int = 0,
    directives: str = "",
) -> bytes:
    """The code object of one kernel. s[0:1] hold the address of its arguments, s2, s3 and s4 the work-group's numbers.

    (gfx1201 has them in ttmp9 and ttmp7.) v0 has the numbers of the work-item, packed.
    """
    registers = vgprs
    if arch in _ACCUMULATORS:
        registers = -(-vgprs // 4) * 4 + accumulators if accumulators else vgprs
        directives += f"\n  .amdhsa_accum_offset {-(-vgprs // 4) * 4}"
    source = _KERNEL.format(
        arch=arch, name=name, body=body, vgprs=vgprs, registers=registers, lds=lds, private=private, kernarg=kernarg,
        lanes=LANES[arch], directives=directives,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        made, linked = Path(folder, "kernel.o"), Path(folder, "kernel.co")
        command = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-filetype=obj", "-o", str(made)]
        subprocess.run(command, input=source.encode(), check=True)
        subprocess.run(["ld.lld-22", "-shared", str(made), "-o", str(linked)], check=True)
        return linked.read_bytes()
