"""Select the kernels of a pack from artifacts of the store; report all problems at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.digest import to_canonical_json
from tilewright.base.errors import PackError, TilewrightError
from tilewright.building.compile_job import CODE_OBJECT, HOST_OBJECT
from tilewright.building.pack.manifest import gpu_order
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.ops import parse_kernel
from tilewright.ops.kernel import Kernel

_TEXTS = ("slug", "op", "arch", "symbol", "unit")
# Maximum number of problems to list; more lines would hide the advice.
_SHOWN = 20


@dataclass(frozen=True)
class PackMember:
    """A kernel of a pack and the artifact it is linked from."""

    kernel: Kernel
    unit: str  # the -cuid name, which determines the symbol of its device code
    artifact: Artifact
    resources: tuple[Mapping[str, Any], ...]  # of each device kernel in the code object; empty if unknown

    @property
    def code_digest(self) -> str:
        """Digest of the code object."""
        return self.artifact.files[CODE_OBJECT].blake2b

    def verify_files(self) -> tuple[Path, Path]:
        """Verify code object and host object against the store's manifest and return their paths."""
        return self.artifact.verify_file(CODE_OBJECT), self.artifact.verify_file(HOST_OBJECT)


def collect_members(entries: Iterable[Artifact | Failure]) -> tuple[PackMember, ...]:
    """Collect the members of a pack, sorted by GPU and slug. Raises `PackError` with every unusable entry."""
    listed = list(entries)
    if not listed:
        raise PackError("a pack needs at least 1 kernel, got 0. Build kernels first: `tilewright build`.")
    members: list[PackMember] = []
    problems: list[str] = []
    for entry in listed:
        found = _make_member(entry)
        if isinstance(found, PackMember):
            members.append(found)
        else:
            problems.append(found)
    problems += _find_duplicates(members)
    if problems:
        shown = problems[:_SHOWN] + ([f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else [])
        lines = "\n".join(f"  {problem}" for problem in shown)
        raise PackError(f"cannot make a pack from {len(listed)} entries, {len(problems)} problem(s):\n{lines}")
    return tuple(sorted(members, key=lambda member: (gpu_order(member.kernel.arch), member.kernel.slug)))


def group_by_gpu(members: Iterable[PackMember]) -> dict[str, tuple[PackMember, ...]]:
    """Group members by GPU, in GPU order."""
    found: dict[str, list[PackMember]] = {}
    for member in members:
        found.setdefault(member.kernel.arch, []).append(member)
    return {gpu: tuple(found[gpu]) for gpu in sorted(found, key=gpu_order)}


def _make_member(entry: Artifact | Failure) -> PackMember | str:
    """Make a member from an entry, or return the problem with it."""
    name = entry.facts.get("slug", entry.key)
    if isinstance(entry, Failure):
        first = next((line.strip() for line in entry.log.splitlines() if "error" in line), "its log contains no error")
        return f"{name}: its build failed ({first}). Leave it out, or see `tilewright cache show {entry.key}`."
    lacking = [fact for fact in _TEXTS if not isinstance(entry.facts.get(fact), str)]
    lacking += [file for file in (CODE_OBJECT, HOST_OBJECT) if file not in entry.files]
    if lacking:
        return f"{name}: its artifact {entry.key} has no {', '.join(lacking)}. Build the kernel again."
    try:
        kernel = parse_kernel(entry.facts["slug"])
    except TilewrightError as error:
        return f"{name}: {error}"
    facts = {**kernel.facts, "symbol": kernel.symbol, "kernel": kernel.facts}
    differing = [
        fact for fact in ("op", "arch", "symbol", "kernel") if not _is_same(entry.facts.get(fact), facts[fact])
    ]
    if differing:
        return f"{name}: {', '.join(differing)} of its artifact {entry.key} do not match its name. Build it again."
    return PackMember(kernel, entry.facts["unit"], entry, tuple(entry.facts.get("resources", ())))


def _is_same(left: Any, right: Any) -> bool:
    return to_canonical_json(left) == to_canonical_json(right)


def _find_duplicates(members: Iterable[PackMember]) -> list[str]:
    """Find slugs, symbols and units that occur more than once; they must be unique in a library."""
    listed = list(members)
    slugs = Counter(member.kernel.slug for member in listed)
    problems = [f"{slug} occurs {count} times. Give each kernel once." for slug, count in slugs.items() if count > 1]
    for what in ("symbol", "unit"):
        owners: dict[tuple[str, str], set[str]] = {}
        for member in listed:
            value = member.kernel.symbol if what == "symbol" else member.unit
            owners.setdefault((member.kernel.arch, value), set()).add(member.kernel.slug)
        problems += [
            f"{', '.join(sorted(names))} have the same {what} {value}: a library can hold only one of them."
            for (_, value), names in owners.items()
            if len(names) > 1
        ]
    return problems
