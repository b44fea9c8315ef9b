"""Choose kernels of installed wheels that were not built by exactly this machine's toolchain.

A kernel with this machine's build key is found by `Tiers`, like an entry of any store. Two other cases are here:

- The machine has a toolchain, and `TILEWRIGHT_PREBUILT` is `same-source`: a kernel that another compiler or HIP made
  from the same source, headers and CK tree may serve.
- The machine has no complete toolchain, so there is no build key to compare with: a kernel from the same source and
  headers serves, and if CK Tile's headers are here, also only from these.

Each use is reported, once for each wheel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.arch.ck_api import CkApi
from tilewright.base import knobs
from tilewright.base.digest import compute_tree_digest
from tilewright.base.errors import IllegalConfigError, ToolchainError
from tilewright.base.events import Notice, emit
from tilewright.building.ck_headers import find_ck
from tilewright.building.ck_tree import probe_tree
from tilewright.building.compile_job import CompileJob, compute_source_key
from tilewright.building.prebuilt.installed import list_wheels
from tilewright.building.prebuilt.kernel_wheel import KernelWheel
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.tiers import Tiers
from tilewright.codegen.render import render
from tilewright.ops.kernel import Kernel

_reported: set[tuple[str, str]] = set()


def take_same_source(units: Iterable[CompileJob], tiers: Tiers) -> dict[Kernel, Artifact]:
    """Take kernels that another compiler built from the same source and CK tree; none unless the user allows it."""
    if not tiers.packages or knobs.get_prebuilt_mode() != knobs.PREBUILT_SAME_SOURCE:
        return {}
    found = {}
    for unit in units:
        wheels = [w for w in list_wheels() if w.built.ck == unit.toolchain.ck_digest and unit.source_key in w.by_source]
        for wheel in wheels:
            taken = _take_entry(tiers, wheel, unit.kernel, unit.source_key)
            if taken is not None:
                found[unit.kernel] = taken
                own = f"{unit.toolchain.compiler}, HIP {unit.toolchain.hip_version}"
                _report_use(wheel, f"which is another toolchain than this machine's ({own})")
                break
    return found


def take_without_toolchain(kernels: Sequence[Kernel], tiers: Tiers) -> dict[Kernel, Artifact]:
    """Take kernels on a machine that cannot compile them: there is no build key to compare with."""
    local = _find_local_ck()
    found: dict[Kernel, Artifact] = {}
    for wheel in list_wheels() if tiers.packages else ():
        if local is not None and local[1] != wheel.built.ck:
            continue
        for kernel in kernels:
            if kernel in found or kernel.arch != wheel.gpu:
                continue
            source = _find_source(kernel, wheel.built.api if local is None else local[0])
            taken = None if source is None else _take_entry(tiers, wheel, kernel, source)
            if taken is not None:
                found[kernel] = taken
                _report_use(wheel, "and this machine has no complete toolchain to compare that with")
    return found


def describe_fit(wheel: KernelWheel, identity: str | None, ck: str | None) -> str:
    """Whether the kernels of a wheel are used on this machine, as a sentence.

    `identity` is the digest of the machine's toolchain, None without one; `ck` is that of its CK tree.
    """
    if ck is not None and wheel.built.ck != ck:
        return f"not used: this machine's CK tree is {ck[:12]}, and the wheel's is {wheel.built.ck[:12]}"
    if identity is None:
        return "used: kernels with the same source; this machine has no complete toolchain to compare with"
    if identity == wheel.built.identity:
        return "used: the same compiler, HIP and CK tree"
    if knobs.get_prebuilt_mode() == knobs.PREBUILT_SAME_SOURCE:
        return "used: kernels with the same source and CK tree, made by another compiler or HIP"
    allow = f"{knobs.PREBUILT.name}={knobs.PREBUILT_SAME_SOURCE}"
    return f"not used: another compiler or HIP made it. {allow} allows kernels with the same source and CK tree"


def _find_local_ck() -> tuple[CkApi, str] | None:
    """API and digest of CK Tile's headers here; None if there are none."""
    try:
        include = find_ck()
    except ToolchainError:
        return None  # the caller reports it if a kernel is missing
    return probe_tree(include).api, compute_tree_digest(include)


def _find_source(kernel: Kernel, api: CkApi) -> str | None:
    """The source key of a kernel for a CK tree; None if it cannot be made with that tree."""
    try:
        return compute_source_key(render(kernel, api))
    except IllegalConfigError:
        return None


def _take_entry(tiers: Tiers, wheel: KernelWheel, kernel: Kernel, source: str) -> Artifact | None:
    entry = wheel.by_source.get(source)
    if entry is None:
        return None
    taken = tiers.local.get(entry.key) or tiers.take_packaged(wheel, entry.key)
    return taken if isinstance(taken, Artifact) and taken.facts.get("slug") == kernel.slug else None


def _report_use(wheel: KernelWheel, how: str) -> None:
    """Report the use of a wheel once in a process."""
    if (wheel.describe(), how) not in _reported:
        _reported.add((wheel.describe(), how))
        emit(Notice(f"kernels of {wheel.describe()} are used: built with {wheel.built.describe()}, {how}"))
