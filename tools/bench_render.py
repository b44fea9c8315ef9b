"""Compare our rendering speed with that of CK's tile_engine builder, for the same configs.

    python tools/bench_render.py --kernels 10000

CK's builder writes all combinations of tiles and traits, so both sides get the fp16 rcr kernels of a space in which our
rules allow all kernels that CK's checks allow. Both write to folders in memory: creating 1,000 files on ext4 takes 0.02
to 0.5 s, depending on the block group that a folder gets.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.building.ck_headers import find_ck_tools
from tilewright.codegen.folder import generate_sources
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

GPU = "gfx942"
MEMORY_FOLDER = Path("/dev/shm")


def load_ck_builder(config: dict[str, Any], folder: Path) -> Any:
    """Load CK's generator from the fetched tile_engine folder."""
    script = find_ck_tools() / "ops" / "gemm" / "gemm_instance_builder.py"
    spec = importlib.util.spec_from_file_location("gemm_instance_builder", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gemm_instance_builder"] = module  # its worker processes import it by name
    sys.path.insert(0, str(script.parent))
    spec.loader.exec_module(module)
    logging.getLogger().setLevel(logging.ERROR)
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return module.GemmKernelBuilder(folder, GPU, "fp16", "rcr", str(path))


def make_tile_engine_config() -> dict[str, Any]:
    """Make a tile_engine configuration with somewhat more than 10,000 kernels."""
    tiles = {
        "tile_m": [64, 128, 256],
        "tile_n": [64, 128, 256],
        "tile_k": [16, 32, 64],
        "warp_m": [1, 2, 4],
        "warp_n": [1, 2, 4],
        "warp_k": [1],
        "warp_tile_m": [16, 32],
        "warp_tile_n": [16, 32],
        "warp_tile_k": [8, 16, 32],
    }
    traits: dict[str, list[Any]] = {
        "pipeline": ["compv3", "compv4", "mem"],
        "scheduler": ["intrawave", "interwave"],
        "epilogue": ["cshuffle", "default"],
        "pad_m": [False, True],
        "pad_n": [False, True],
        "pad_k": [False, True],
        "persistent": [False, True],
    }
    return {
        "tile_config": {k: {"values": v} for k, v in tiles.items()},
        "trait_config": {k: {"values": v} for k, v in traits.items()},
        "k_block_per_cu": 1,
    }


def make_kernels(builder: Any, limit: int) -> tuple[list[Kernel], list[tuple[Any, ...]]]:
    """Make the kernels that CK's builder would write, and the builder's own work items for them."""
    op = find_op("gemm")
    kernels, items = [], []
    for tile in builder._get_tile_configs():
        for traits in builder._generate_trait_combinations():
            pipeline, epilogue, scheduler, pad_m, pad_n, pad_k, persistent = traits
            config = op.make_example(
                {
                    "block": (tile["tile_m"], tile["tile_n"], tile["tile_k"]),
                    "waves": (tile["warp_m"], tile["warp_n"], tile["warp_k"]),
                    "mma": (tile["warp_tile_m"], tile["warp_tile_n"], tile["warp_tile_k"]),
                    "pipeline": pipeline,
                    "epilogue": epilogue,
                    "scheduler": scheduler,
                    "pad_m": pad_m,
                    "pad_n": pad_n,
                    "pad_k": pad_k,
                    "persistent": persistent,
                }
            )
            kernels.append(op.make_kernel(config, GPU))
            items.append((tile, traits))
            if len(kernels) == limit:
                return kernels, items
    return kernels, items


def measure(count: int, jobs: int) -> dict[str, Any]:
    """Measure both sides for the same kernels, each writing to an empty folder."""
    parent = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bench-render-", dir=parent) as temporary:
        root = Path(temporary)
        theirs, ours = root / "ck", root / "tilewright"
        theirs.mkdir()
        builder = load_ck_builder(make_tile_engine_config(), theirs)
        kernels, items = make_kernels(builder, count)
        their_seconds, their_cpu = _measure_seconds(lambda: _generate_with_ck(builder, items, theirs, jobs))
        our_seconds, our_cpu = _measure_seconds(lambda: generate_sources(kernels, ours, jobs=jobs))
        written = len(list(theirs.glob("gemm_single_*.hpp")))
        assert written == len(list(ours.glob("gemm-*.hpp"))) == len(kernels), (written, len(kernels))
    return {
        "kernels": len(kernels),
        "jobs": jobs,
        "tilewright_s": round(our_seconds, 2),
        "tile_engine_s": round(their_seconds, 2),
        "tilewright_per_s": round(len(kernels) / our_seconds),
        "tile_engine_per_s": round(len(kernels) / their_seconds),
        "tilewright_cpu_s": round(our_cpu, 2),
        "tile_engine_cpu_s": round(their_cpu, 2),
        "ratio": round(their_seconds / our_seconds, 2),
        "cpu_ratio": round(their_cpu / our_cpu, 2),
    }


def _measure_seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Measure the wall and CPU seconds of a function, its worker processes included."""

    def cpu() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(u.ru_utime + u.ru_stime for u in used)

    wall, spent = time.perf_counter(), cpu()
    work()
    return time.perf_counter() - wall, cpu() - spent


def _generate_with_ck(builder: Any, items: list[tuple[Any, ...]], folder: Path, jobs: int) -> None:
    """Run CK's own parallel generation for a given list of tiles and traits."""
    from concurrent.futures import ProcessPoolExecutor

    module = sys.modules["gemm_instance_builder"]
    work = [(tile, traits, 1, folder, GPU, "fp16", "rcr", builder.config_json) for tile, traits in items]
    with contextlib.redirect_stdout(io.StringIO()), ProcessPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(module._generate_single_kernel_individual, item) for item in work]
        assert all(future.result() for future in futures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    result = measure(options.kernels, options.jobs)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
