"""GEMM kernels of CK's tile_engine: each by one call of its builders' command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tests.proof.parity.unit import Unit
from tilewright.ops import parse_kernel
from tilewright.ops.kernel import Kernel

if TYPE_CHECKING:
    from tilewright.ops.gemm.config import Config

# Of each variant: the folder of its builder in tile_engine/ops.
BUILDERS = {"standard": "gemm", "preshuffle": "gemm_preshuffle"}
HEADERS = (
    *("cstdint", "utility", "tuple", "ck_tile/core.hpp", "ck_tile/host/kernel_launch.hpp", "ck_tile/ops/gemm.hpp"),
    *("ck_tile/ops/common/tensor_layout.hpp", "ck_tile/ops/epilogue/default_2d_epilogue.hpp"),
    "ck_tile/ops/epilogue/cshuffle_epilogue.hpp",
)
RAW_STORES = "C is stored by raw buffer instructions here, by checked ones there"
KERNELS = (
    "gfx942-standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-e5782f51db2c",
    "gfx942-standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-splitk-1827369635a1",
    "gfx942-standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w2x2x1-i16x16x16-compv4-intrawave-cshuffle-splitk-8c53853db3be",
    "gfx942-standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-padm-padn-padk-"
    "f4197df1400e",
    "gfx942-standard-fp16-fp16-fp32-fp16-rcr-b128x128x32-w2x2x1-i32x32x16-compv3-intrawave-cshuffle-splitk-"
    "cd9db5c462c7",
    "gfx942-standard-bf16-bf16-fp32-bf16-rcr-b128x128x32-w2x2x1-i32x32x16-compv3-intrawave-cshuffle-splitk-"
    "2287fb2f79a1",
    "gfx942-standard-fp16-fp16-fp32-fp16-rcr-b128x128x32-w2x2x1-i32x32x16-compv4-intrawave-cshuffle-2b170e908187",
    "gfx942-standard-fp16-fp16-fp32-fp16-rcr-b16x64x128-w1x4x1-i16x16x32-mem-intrawave-cshuffle-padm-padn-padk-splitk-"
    "08a9860e16f0",
    "gfx1201-standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-fb23eae65715",
    "gfx1201-standard-fp16-fp16-fp32-fp16-rrr-b16x128x16-w1x8x1-i16x16x16-compv3-intrawave-cshuffle-403f8c260057",
    "gfx90a-preshuffle-bf16-bf16-fp32-bf16-rcr-b128x16x16-w4x1x1-i16x16x16-preshufflev2-default-cshuffle-5d6dbb97604c",
    "gfx942-preshuffle-bf8-bf8-fp32-fp16-rcr-b16x32x64-w1x1x1-i16x16x64-preshufflev2-default-cshuffle-permn-"
    "dc23b4dc925d",
)


def list_units(tree: Path, work: Path) -> Iterator[Unit]:
    """List the kernels with CK's sources, which its builders write to the folder `work`."""
    for slug in KERNELS:
        kernel = parse_kernel(f"gemm-{slug}")
        header = build_header(kernel, tree / "tile_engine" / "ops", work / kernel.digest)
        # Every header defines the same names. Naming the function is enough: it launches every device kernel.
        text = f'namespace {header.stem} {{\n#include "{header.name}"\nauto instances = &SelectedKernel::launch;\n}}'
        reason = RAW_STORES if cast("Config", kernel.config).epilogue == "default" else ""
        yield Unit(kernel, header.stem, HEADERS, text, (header.parent,), reason=reason)


def build_header(kernel: Kernel, ops: Path, work: Path) -> Path:
    """Let CK's builder write the header of a kernel."""
    config = cast("Config", kernel.config)
    folder = BUILDERS[config.variant]
    work.mkdir(parents=True)
    settings = work / "settings.json"
    settings.write_text(json.dumps({"k_block_per_cu": config.blocks_per_cu, "permute_n": config.permute_n}))
    tiles = "_".join("x".join(map(str, tile)) for tile in (config.block, config.waves, config.mma))
    flags = (config.pad_m, config.pad_n, config.pad_k, config.persistent)
    traits = "_".join([config.pipeline, config.epilogue, config.scheduler, *map(str, flags)])
    command = [sys.executable, str(ops / folder / f"{folder}_instance_builder.py"), "--gen_single"]
    command += ["--working_path", str(work), "--config_json", str(settings), "--kernel_name", "any"]
    command += ["--gpu_target", kernel.arch, "--datatype", config.dtype_a, "--layout", config.layout]
    command += ["--tile_config", tiles, "--trait_combo", traits]
    subprocess.run(command, check=True, capture_output=True)
    (header,) = work.glob("*.hpp")
    return header
