"""Runs of `tilewright acceptance` in which the HIP shim is the library of the GPU, with or without a defect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from built_kernels import built, with_store
from tilewright.ops import parse_kernel

ROOT = Path(__file__).resolve().parents[2]
GPU = "gpu:1"  # the MI300X of the shim
# Small kernels of CI's list, which differ in their instructions. The first one is timed.
KERNELS = {
    "half": "gemm-gfx942-standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-"
    "e5782f51db2c",
    "single": "gemm-gfx942-standard-fp32-fp32-fp32-fp32-rcr-b64x32x16-w2x2x1-i16x16x16-compv3-intrawave-default-"
    "aeb5fae903f7",
    "split": "gemm-gfx942-standard-fp16-fp16-fp32-fp16-rcr-b16x64x128-w1x4x1-i16x16x32-mem-intrawave-cshuffle-padm-"
    "padn-padk-splitk-08a9860e16f0",
    "eight": "fmha-gfx942-appendkv-batch-fp8fp32-appendkv-b256x64x128x64-paged-rope_half-a45b1a2c3f34",
    "combine": "fmha-gfx942-combine-batch-fp16-combine-b32x64-padq-splits3-eceb5069a7cd",
    "convert": "fmha-gfx942-convert_dq-batch-fp16-convert_dq-b128x32x64x128-padq-padhq1-801a48e72cc2",
    "dot": "fmha-gfx942-dot_do_o-batch-bf16-dot_do_o-b64x128-padq-a843ff7950ed",
}


@dataclass(frozen=True)
class AcceptanceRun:
    """A finished run: its exit code, its document, its folder, and what it printed to stderr."""

    code: int
    document: dict[str, Any]
    folder: Path
    said: str

    def stage(self, name: str) -> dict[str, Any]:
        return next(each for each in self.document["stages"] if each["name"] == name)

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict of each stage."""
        return {each["name"]: each["verdict"] for each in self.document["stages"]}

    @property
    def kernels(self) -> dict[str, str]:
        """The verdicts of the comparison, by the names of KERNELS."""
        found = self.stage("agreement")["facts"]["kernels"]
        return {name: found[slug] for name, slug in KERNELS.items() if slug in found}

    @property
    def suspects(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.stage("agreement")["facts"]["suspects"]
        return found


def run_with(defect: str, folder: Path, names: tuple[str, ...] = tuple(KERNELS), *more: str) -> AcceptanceRun:
    """Run the command on kernels of CI's list."""
    built(parse_kernel(KERNELS[name]) for name in names)
    code = "from tilewright.cli.app import root; root()"
    arguments = ["acceptance", *(KERNELS[name] for name in names), "--device", GPU, "--out", str(folder), "--json"]
    paths = [str(ROOT / "src"), str(Path(__file__).with_name("injected_gpu"))]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--trials", "1", *more],
        env={**with_store(), "PYTHONPATH": os.pathsep.join(paths), "ACCEPTANCE_DEFECT": defect},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stderr
    return AcceptanceRun(done.returncode, json.loads(done.stdout), folder, done.stderr)
