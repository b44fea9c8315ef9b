"""Build 60 kernels on three Ray nodes of this machine, kill one in the middle, and compare with bare ninja.

    python tools/bench_build_cluster.py                    # throughput beside bare ninja, then a run with a killed node
    python tools/bench_build_cluster.py --kernels 12 --rounds 1 --skip-kill

Each node has one CPU and a store of its own, with precompiled headers; bare ninja runs the same commands with as many
jobs as there are nodes. Rounds are interleaved, so that other load disturbs both. Ray runs during both, since its nodes
are there anyway; the CPU time of its own processes is printed separately.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_cluster import read_family_cpu_s
from bench_compile import measure_bare_ninja
from ray_nodes import kill_node, ray_nodes
from tilewright.base.events import Advanced, Event, Notice, add_listener
from tilewright.base.knobs import REMOTE
from tilewright.bench.build_cluster.coordinator import build_on_cluster
from tilewright.bench.build_cluster.report import ClusterBuild
from tilewright.building.builder import TASK
from tilewright.building.compile_costs import costs_file
from tilewright.building.compile_job import make_compile_job
from tilewright.building.precompiled_headers import prepare_header_set
from tilewright.building.store.local import Store
from tilewright.building.store.tiers import open_tiers
from tilewright.building.toolchain import find_toolchain
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

NODES = 3
KERNELS = 60
GPUS = ("gfx942", "gfx950", "gfx90a")
OP = "norm"  # its kernels are the cheapest to compile
# Throughput compared with bare ninja: the requirement for a build cluster.
LIMIT = 0.95


def choose_kernels(count: int, gpus: Sequence[str] = GPUS) -> list[Kernel]:
    """Choose kernels of the op's sets, the same number for each GPU."""
    op = find_op(OP)
    each = [[kernel for found in op.sets().values() for kernel in found.kernels(gpu)] for gpu in gpus]
    return [kernel for listed in each for kernel in listed[: count // len(gpus)]]


@dataclass(frozen=True)
class Run:
    """One build on the cluster."""

    done: ClusterBuild
    compiles: Counter[str]  # finished compiles by kernel, over all nodes
    notices: tuple[str, ...]
    ray_cpu_s: float  # of Ray's own processes and idle workers


def run_cluster(kernels: Sequence[Kernel], stores: Path, share: Path, at: dict[int, Callable[[], Any]]) -> Run:
    """Build with an empty shared store. `at` has actions for numbers of finished kernels."""
    before = read_compiles(stores)
    shutil.rmtree(share, ignore_errors=True)
    share.mkdir()
    notices: list[str] = []
    finished = 0

    def listen(event: Event) -> None:
        nonlocal finished
        if isinstance(event, Notice):
            notices.append(event.message)
        elif isinstance(event, Advanced) and event.task == TASK:
            finished += event.done
            if finished in at:
                at[finished]()

    os.environ[REMOTE.name] = f"folder:{share}"
    cpu_before = read_family_cpu_s()
    try:
        with add_listener(listen), tempfile.TemporaryDirectory(dir=stores.parent) as own:
            os.environ["TILEWRIGHT_STORE"] = own
            done = build_on_cluster(kernels, tiers=open_tiers())
    finally:
        del os.environ[REMOTE.name], os.environ["TILEWRIGHT_STORE"]
    ray_cpu_s = read_family_cpu_s() - cpu_before - done.report.coordinator_cpu_s
    return Run(done, read_compiles(stores) - before, tuple(notices), ray_cpu_s)


def read_compiles(stores: Path) -> Counter[str]:
    """Count the finished compiles of each kernel in the stores of all nodes."""
    found: Counter[str] = Counter()
    for node in stores.iterdir() if stores.is_dir() else ():
        file = costs_file(Store(node))
        if file.exists():
            found.update(json.loads(line)["slug"] for line in file.read_text().splitlines())
    return found


def forget_kernels(kernels: Sequence[Kernel], stores: Path) -> None:
    """Remove built kernels from the stores of all nodes. Precompiled headers stay."""
    toolchain = find_toolchain()
    for node in stores.iterdir():
        for kernel in kernels:
            Store(node).remove(make_compile_job(kernel, toolchain).key)


def precompile_headers(kernels: Sequence[Kernel], stores: Sequence[Path]) -> None:
    """Precompile the headers that the kernels need, in every store."""
    toolchain = find_toolchain()
    first = {kernel.arch: kernel for kernel in reversed(kernels)}
    for folder in stores:
        for kernel in first.values():
            unit = make_compile_job(kernel, toolchain)
            prepare_header_set(unit.device_headers, Store(folder))
            prepare_header_set(unit.host_headers, Store(folder))


def check_run(run: Run, kernels: Sequence[Kernel], *, killed: bool) -> None:
    """Exit unless every kernel is built, and compiled once; a killed node may cost one more compile for its CPU."""
    if run.done.built.failures or len(run.done.built.artifacts) != len(kernels):
        sys.exit(f"kernels are missing: {run.done.built.failures}")
    twice = {slug: count for slug, count in run.compiles.items() if count > 1}
    if set(run.compiles) != {kernel.slug for kernel in kernels} or len(twice) > killed:
        sys.exit(f"compiled more than once: {twice}; in total {run.compiles.total()}")


def compare_throughput(kernels: Sequence[Kernel], rounds: int, show: Callable[[str], None]) -> list[float]:
    """The throughput of the cluster divided by that of bare ninja, for each round."""
    toolchain = find_toolchain()
    ratios = []
    with tempfile.TemporaryDirectory(prefix="bench-build-cluster-") as scratch:
        stores = Path(scratch) / "stores"
        bare = Store(Path(scratch) / "bare")
        places = [stores / f"node{number}" for number in range(NODES)]
        precompile_headers(kernels, [*places, bare.root])
        with ray_nodes(*[1] * NODES, stores=stores):
            for number in range(rounds):
                folder = Path(scratch) / f"ninja-{number}"
                cpu_before = resource.getrusage(resource.RUSAGE_CHILDREN)
                ninja_s = measure_bare_ninja(kernels, NODES, bare, toolchain, folder)
                cpu_after = resource.getrusage(resource.RUSAGE_CHILDREN)
                ninja_cpu_s = sum(cpu_after[:2]) - sum(cpu_before[:2])
                shutil.rmtree(folder)
                run = run_cluster(kernels, stores, Path(scratch) / "share", {})
                check_run(run, kernels, killed=False)
                forget_kernels(kernels, stores)
                report = run.done.report
                ratios.append(ninja_s / report.wall_s)
                show(
                    f"round {number + 1}: {ratios[-1]:.3f}× the throughput of bare ninja; CPU seconds: nodes "
                    f"{report.cpu_s:.0f}, coordinator {report.coordinator_cpu_s:.1f}, Ray {run.ray_cpu_s:.1f}, ninja "
                    f"{ninja_cpu_s:.0f} ({report.cpu_s / ninja_cpu_s:.3f}×)"
                )
    return ratios


def run_with_killed_node(kernels: Sequence[Kernel], show: Callable[[str], None]) -> Run:
    """Build with a node that is killed after a third of the kernels."""
    with tempfile.TemporaryDirectory(prefix="bench-build-cluster-") as scratch:
        stores = Path(scratch) / "stores"
        with ray_nodes(*[1] * NODES, stores=stores) as (cluster, nodes):
            kill = {len(kernels) // 3: lambda: kill_node(cluster, nodes[-1])}
            run = run_cluster(kernels, stores, Path(scratch) / "share", kill)
        check_run(run, kernels, killed=True)
    for node in run.done.report.nodes:
        show(json.dumps(node.to_json()))
    compilers_s = sum(artifact.facts["cost"]["cpu_s"] for artifact in run.done.built.artifacts.values())
    report = run.done.report
    show(
        f"CPU seconds: compilers {compilers_s:.1f}, headers {report.header_cpu_s:.1f}, all of the builders "
        f"{report.cpu_s:.1f}, coordinator {report.coordinator_cpu_s:.1f}, Ray {run.ray_cpu_s:.1f}"
    )
    twice = run.compiles.total() - len(run.compiles)
    show(
        f"{len(run.done.built.artifacts)} of {len(kernels)} kernels built, {report.sent_again} sent again, "
        f"{twice} of them finished twice; {'; '.join(run.notices)}"
    )
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=KERNELS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--skip-kill", action="store_true", help="do not make the run with a killed node")
    parser.add_argument("--only-kill", action="store_true", help="make only the run with a killed node")
    options = parser.parse_args()
    kernels = choose_kernels(options.kernels)
    ratios = [] if options.only_kill else compare_throughput(kernels, options.rounds, print)
    if not options.skip_kill:
        run_with_killed_node(kernels, print)
    if ratios and max(ratios) < LIMIT:
        print(f"the best throughput is {max(ratios):.3f}× that of bare ninja; the limit is {LIMIT}×")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
