"""Measure the CPU time to verify kernels: all trials of each, in strict mode, on an emulated device.

    python tools/bench_verify_kernels.py                     # kernels of CI's list, one of each common kind
    python tools/bench_verify_kernels.py NAME… --rounds 5
    python tools/bench_verify_kernels.py --json > before.json
    python tools/bench_verify_kernels.py --against before.json

Each kernel has a process of its own, which first verifies another kernel, because imports take longer than a kernel.
`first` includes reading and translating the kernel's code, which takes as long as it has instructions. `again` is the
least of the later rounds, and is divided into launches on the device and the rest: random inputs, references,
tolerances, copies and comparisons.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tilewright as tw
from ci_kernels import STORE
from tilewright import arch as archs
from tilewright.building.builder import build_kernels
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.tiers import Tiers
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import verify
from tilewright.emulator.device import EmulatedDevice
from tilewright.emulator.launch import Mode
from tilewright.ops import parse_kernel
from tilewright.ops.kernel import Kernel

WARM = "norm-gfx942-rms-fp32-fp32-m4-n512-t64-v1-pad-c64cbb3d4ac0"  # small
KERNELS = (
    "gemm-gfx942-standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w2x2x1-i32x32x8-compv3-intrawave-default-7e04677b01df",
    "gemm-gfx942-standard-fp16-fp16-fp32-fp16-rcr-b128x128x32-w2x2x1-i32x32x16-compv3-intrawave-cshuffle-9a6900b412ca",
    "gemm-gfx942-standard-fp16-fp16-fp32-fp16-rcr-b256x256x64-w2x2x1-i32x32x16-compv3-intrawave-cshuffle-c76ad9a9e684",
    "grouped_conv-gfx942-forward-nd2-fp16-fp16-fp32-fp16-b64x64x32-w2x2x1-i16x16x32-compv3-intrawave-cshuffle-v8x8x8-"
    "8a062b028f3d",
    "grouped_conv-gfx942-backward_data-nd2-fp16-fp16-fp32-fp16-b64x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-"
    "v4x8x8-8287cbf557b4",
    "grouped_conv-gfx942-backward_weight-nd2-fp16-fp16-fp32-fp16-b32x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-"
    "v4x8x8-splitk-6c56b6310e03",
    "fmha-gfx942-forward-batch-fp16-qr-b64x64x16x32x16x32-w4x1x1x4x1x1-mma16x16x16x16x16x16-padq-padk-mask_any-lse-"
    "bd99e9df4d58",
    "fmha-gfx942-convert_dq-batch-fp16-convert_dq-b128x32x64x128-padq-padhq1-det-f95c13ed7834",
    "fmha-gfx942-appendkv-batch-fp16-appendkv-b64x64x64x64-padq-padk-paged-rope_half-1630b0d49330",
    "norm-gfx942-rms-fp16-int8-m1-n1024-t128-v8-residual_store-quant_dynamic-pad-451b888322b3",
)


@dataclass(frozen=True, slots=True)
class Times:
    """CPU seconds of a kernel's verification."""

    kernel: str
    trials: int
    first: float
    again: float
    launches: float

    @property
    def host(self) -> float:
        return self.again - self.launches


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("kernels", nargs="*", default=KERNELS, metavar="NAME")
    options.add_argument("--rounds", type=int, default=3, help="after the first")
    options.add_argument("--json", action="store_true")
    options.add_argument("--against", type=Path, metavar="FILE", help="what --json printed before")
    options.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        print(json.dumps(asdict(measure(parse_kernel(given.kernels[0]), given.rounds))))
        return
    found = [_measure_in_process(name, given.rounds) for name in given.kernels]
    if given.json:
        print(json.dumps([asdict(each) for each in found], indent=1))
        return
    before = {} if given.against is None else {each["kernel"]: Times(**each) for each in _read(given.against)}
    print(f"{'first':>7} {'again':>7} {'launches':>9} {'host':>7} {'trials':>7}  kernel")
    for each in found:
        print(
            f"{each.first:7.2f} {each.again:7.2f} {each.launches:9.2f} {each.host:7.2f} {each.trials:7}  {each.kernel}"
        )
        old = before.get(each.kernel)
        if old is not None:
            print(f"{each.first / old.first:6.2f}x {each.again / old.again:6.2f}x")


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _measure_in_process(name: str, rounds: int) -> Times:
    command = [sys.executable, __file__, name, "--one", "--rounds", str(rounds)]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Times(**json.loads(ran.stdout))


def measure(kernel: Kernel, rounds: int) -> Times:
    """Verify a kernel several times in this process."""
    of_launches = _count_launch_time()
    warm = parse_kernel(WARM)
    artifacts = build_kernels([warm, kernel], tiers=Tiers(STORE)).artifacts
    _verify(warm, artifacts[warm])
    times = []
    for _ in range(1 + rounds):
        before, began = of_launches(), time.process_time()
        count = _verify(kernel, artifacts[kernel])
        times.append((time.process_time() - began, of_launches() - before))
    (first, _), (again, launches) = times[0], min(times[1:])
    return Times(kernel.slug, count, first, again, launches)


def _verify(kernel: Kernel, artifact: Artifact) -> int:
    trials = get_execution(kernel.op).trials(kernel.config, archs.load(kernel.arch))
    checks = verify(kernel, artifact, tw.Device(f"emulated:{kernel.arch}"), trials, mode=Mode.STRICT)
    assert all(check.ok for check in checks), [check.message for check in checks if not check.ok]
    return len(checks)


def _count_launch_time() -> Callable[[], float]:
    """Add up the CPU time of launches from now on; return a function that returns the sum."""
    launch, total = EmulatedDevice.launch, 0.0

    def timed(*arguments: Any, **options: Any) -> Any:
        nonlocal total
        began = time.process_time()
        try:
            return launch(*arguments, **options)
        finally:
            total += time.process_time() - began

    EmulatedDevice.launch = timed  # type: ignore[method-assign]
    return lambda: total


if __name__ == "__main__":
    main()
