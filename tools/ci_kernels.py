"""Manage the list of kernels that CI builds before the first test, all at once, the longest first.

Compiling takes most of CI's time. The list (tests/ci_kernels.txt) covers, for each op, every pair of GPU, kind,
pipeline, epilogue and type in its samples, as cheaply as possible. It also has the bad example of every rule that the
compiler enforces. Tests that need other kernels are `deep`.

    python tools/ci_kernels.py show            # print the list, the compile time of each kernel, and the sum
    python tools/ci_kernels.py build           # build the kernels that are missing in the tests' store
    python tools/ci_kernels.py add NAME …      # add kernels, by the names that a failing test prints
    python tools/ci_kernels.py choose          # choose the kernels from the samples again
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ck_trees import TREES, use_tree
from tilewright import arch as archs
from tilewright.building.builder import BuildResult, build_compile_jobs
from tilewright.building.compile_costs import read_costs
from tilewright.building.compile_job import CompileJob
from tilewright.building.store.local import Store
from tilewright.building.store.tiers import Tiers
from tilewright.building.toolchain import find_toolchain
from tilewright.codegen.render import KernelSource, render_unchecked
from tilewright.ops import OPS, find_op, parse_kernel
from tilewright.ops.kernel import Kernel

LIST = Path(__file__).parents[1] / "tests" / "ci_kernels.txt"
SAMPLES = LIST.parent / "compile" / "samples"
# The samples that are in the list whatever their cost, because other tests build them.
SHARED = SAMPLES / "shared.txt"
STORE = Store(Path(platformdirs.user_cache_dir("tilewright-tests")) / "kernels")
HEAD = """\
# The kernels that CI builds before its first test; see tools/ci_kernels.py.
# CPU seconds of a compile (0: not measured), then the kernel's name; after `+` the name of a changed text, after `@`
# that of a CK tree in ../shared/ck.
"""
# Texts with which a launcher rejects problems, and replacements with which it accepts them: tests use these to show
# that the launcher is right. Each text occurs once in a kernel's sources.
CHANGES = {
    "unlooped": ("int unlooped       = 3;", "int unlooped       = 0;"),
    "block_m": ("int block_m        = 128;", "int block_m        = 1;"),
    "least_steps": ("int least_steps    = 2;", "int least_steps    = 1;"),
    "mma_k": ("int mma_k          = 32;", "int mma_k          = 8;"),
    "unbounded_add": ("bool unbounded_add = true;", "bool unbounded_add = false;"),
    "add_of_4_bytes": ("int add_bytes      = 4;", "int add_bytes      = 2;"),
    "add_of_8_bytes": ("int add_bytes      = 8;", "int add_bytes      = 2;"),
    "no_barrier": ("        ck_tile::block_sync_lds();\n", ""),
    "one_shot": ("constexpr bool one_shot = false;", "constexpr bool one_shot = true;"),
    "topk_of_ck": ("WarpPerRowPipeline<Problem, Policy>", "WarpPerRowPipeline<Problem>"),
    "supported": ("if(!Form::template supported<K>(K::MakeKernelArgs(Form::host_args(*args, nullptr))))", "if(false)"),
}


@dataclass(frozen=True, order=True)
class Entry:
    """A kernel in the list.

    Its name is a slug, followed by `+` and a key of CHANGES if its source is changed, or by `@` and the name of the CK
    tree that it is compiled with.
    """

    name: str
    cpu_s: float = dataclasses.field(default=0.0, compare=False)

    @property
    def kernel(self) -> Kernel:
        return parse_kernel(strip_name(self.name))

    @property
    def tree(self) -> str:
        """The CK tree, or an empty string for the fetched one."""
        return self.name.partition("@")[2]

    @property
    def source(self) -> KernelSource:
        _, _, change = self.name.partition("@")[0].partition("+")
        source = render_unchecked(self.kernel)
        return change_source(source, change) if change else source


def format_name(kernel: Kernel, change: str = "", tree: str = "") -> str:
    return f"{kernel.slug}{f'+{change}' if change else ''}{f'@{tree}' if tree else ''}"


def strip_name(name: str) -> str:
    """The kernel's slug in the name of an entry."""
    return name.partition("@")[0].partition("+")[0]


def change_source(source: KernelSource, change: str) -> KernelSource:
    """Replace one text of a source, or of one of our files that it includes."""
    old, new = CHANGES[change]
    count = sum(text.count(old) for text in (source.text, *source.files.values()))
    if count != 1:
        raise ValueError(f"{old!r} occurs {count} times in the sources instead of once: has the launcher changed?")
    files = {name: text.replace(old, new) for name, text in source.files.items()}
    return dataclasses.replace(source, text=source.text.replace(old, new), files=files)


def read_list() -> list[Entry]:
    lines = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    pairs = (line.split() for line in lines if line.strip() and not line.startswith("#"))
    return [Entry(name, float(cpu_s)) for cpu_s, name in pairs]


def write_list(entries: Iterable[Entry]) -> None:
    rows = (f"{entry.cpu_s:6.1f} {entry.name}\n" for entry in sorted(set(entries)))
    LIST.write_text(HEAD + "".join(rows), encoding="utf-8")


def build_list(entries: Sequence[Entry], jobs: int | None = None) -> BuildResult:
    """Build the kernels of the list with the headers in use, without checking rules: the bad examples must fail."""
    toolchain = find_toolchain()
    # On a new machine, the store has no record of costs, so the order follows the costs in the list.
    ordered = sorted(entries, key=lambda entry: -entry.cpu_s)
    return build_compile_jobs([CompileJob(entry.source, toolchain) for entry in ordered], jobs=jobs, tiers=Tiers(STORE))


def list_features(kernel: Kernel) -> list[str]:
    """List the features for pairs: the GPU, the fields that define a kind, and the type of the first tensor."""
    op = find_op(kernel.op)
    types = [names[0] for names in op.strata(archs.load(kernel.arch)) if names[0].startswith("dtype")]
    return [
        f"arch={kernel.arch}",
        *(f"{name}={getattr(kernel.config, name)}" for name in (*op.structure_fields, *types)),
    ]


def list_pairs(kernel: Kernel) -> set[tuple[str, str, str]]:
    return {(kernel.op, one, other) for one, other in itertools.combinations(list_features(kernel), 2)}


def choose_cover(pool: Sequence[Kernel], cost: Callable[[Kernel], float]) -> list[Kernel]:
    """Choose cheap kernels that cover every pair of features in the pool.

    Greedily chooses the kernel with most new pairs for its cost, then drops kernels whose pairs the others cover.
    """
    pairs = {kernel: list_pairs(kernel) for kernel in pool}
    costs = {kernel: cost(kernel) for kernel in pool}
    missing = {pair for covered in pairs.values() for pair in covered}
    chosen = []
    while missing:
        best = max(pool, key=lambda kernel: len(pairs[kernel] & missing) / costs[kernel])
        missing -= pairs[best]
        chosen.append(best)
    for kernel in sorted(chosen, key=lambda kernel: -costs[kernel]):
        others = [other for other in chosen if other != kernel]
        if pairs[kernel] <= set().union(*(pairs[other] for other in others)):
            chosen = others
    return chosen


def read_samples(tree: str = "") -> list[tuple[str, Kernel]]:
    """Read the samples of all ops: `computes` or the code of a broken rule, and a kernel.

    Names of kernels for another CK tree than the fetched one end with `@` and its name, as in the list.
    """
    entries = (pair for file in sorted(SAMPLES.glob("*.txt")) for pair in read_sample(file))
    return [(expected, entry.kernel) for expected, entry in entries if entry.tree == tree]


def read_sample(file: Path) -> list[tuple[str, Entry]]:
    pairs = (line.split() for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return [(expected, Entry(name)) for expected, name in pairs]


def choose_list(entries: Sequence[Entry]) -> list[Entry]:
    """Choose the kernels from the samples again, by the costs measured so far, and keep those that tests need."""
    shared = {entry.name for _, entry in read_sample(SHARED)}
    samples = [kernel for expected, kernel in read_samples() if expected == "computes"]
    known = {entry.name: entry.cpu_s for entry in entries if entry.cpu_s}
    by_op = {op.name: [entry.cpu_s for entry in entries if entry.cpu_s and entry.kernel.op == op.name] for op in OPS}
    kept = [entry for entry in entries if entry.name not in {kernel.slug for kernel in samples} - shared]

    def find_cost(kernel: Kernel) -> float:
        if kernel.slug in shared:
            return 0.01  # what compiling it costs is spent anyway
        # An unknown cost counts as the op's largest: the samples have larger kernels than the list.
        return known.get(kernel.slug) or max(by_op[kernel.op], default=1.0)

    chosen = [Entry(kernel.slug, known.get(kernel.slug, 0.0)) for kernel in choose_cover(samples, find_cost)]
    return [*kept, *(entry for entry in chosen if entry.name not in shared)]


def add_costs(entries: Iterable[Entry]) -> list[Entry]:
    """Add the compile costs that the store recorded to the entries."""
    costs = read_costs(STORE).by_slug
    return [dataclasses.replace(entry, cpu_s=costs.get(entry.kernel.slug, entry.cpu_s)) for entry in entries]


def print_list(entries: Sequence[Entry]) -> None:
    """Print the list with its cost."""
    for entry in sorted(entries, key=lambda entry: -entry.cpu_s):
        print(f"{entry.cpu_s:6.1f} s  {entry.name}")
    counts = Counter((entry.kernel.op, entry.kernel.arch) for entry in entries)
    for (op, arch), count in sorted(counts.items()):
        print(f"{count:4} kernels of {op} for {arch}")
    print(f"{len(entries)} kernels, {sum(entry.cpu_s for entry in entries):,.0f} CPU s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("show", help="print the list with the cost of each kernel")
    building = commands.add_parser("build", help="build the kernels that are missing in the tests' store")
    building.add_argument("--jobs", type=int, help="compilers at once (default: TILEWRIGHT_JOBS)")
    commands.add_parser("choose", help="choose the kernels from the samples again")
    commands.add_parser("measure", help="write the costs that the store recorded into the list")
    adding = commands.add_parser("add", help="add kernels to the list")
    adding.add_argument("names", nargs="+", metavar="NAME")
    options = parser.parse_args()
    entries = read_list()
    if options.command == "show":
        print_list(entries)
    elif options.command == "measure":
        write_list(add_costs(entries))
    elif options.command == "choose":
        write_list(choose_list(entries))
    elif options.command == "add":
        for name in options.names:
            Entry(name).kernel  # noqa: B018  (an unknown name is an error)
        write_list([*entries, *(Entry(name) for name in options.names)])
    else:
        print_build(build_list([entry for entry in entries if not entry.tree], options.jobs))
        for tree in sorted({entry.tree for entry in entries if entry.tree}):
            if not (TREES / tree).is_dir():
                print(f"{TREES / tree} does not exist: the kernels of this CK tree are not built")
                continue
            with use_tree(TREES / tree):
                print_build(build_list([entry for entry in entries if entry.tree == tree], options.jobs), tree)
    return 0


def print_build(done: BuildResult, tree: str = "") -> None:
    """Print the numbers of a build."""
    print(
        f"{len(done.units)} kernels{f' with CK {tree}' if tree else ''}: {done.compiled} compiled, "
        f"{len(done.failures)} rejected by the compiler, {done.wall_s:.0f} s, "
        f"{done.warm_cpu_s:.0f} CPU s of them for precompiled headers"
    )


if __name__ == "__main__":
    sys.exit(main())
