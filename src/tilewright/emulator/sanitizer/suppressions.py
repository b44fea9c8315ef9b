"""A file with findings that are known and not reported, and the list of those that are.

Each line has the name of a finding, and optionally patterns for the kernel and a source line:

    # the counter is only a hint
    race kernel=*histogram* source=*/vendor/*.hpp:*
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from tilewright.base.errors import FileFormatError, FileProblem
from tilewright.emulator.demangled_names import demangle
from tilewright.emulator.sanitizer.findings import Finding

_KEYS = ("kernel", "source")


@dataclass(frozen=True, slots=True)
class Suppression:
    """Findings of this name whose kernel and one of whose source lines ("file:line:column") match the patterns.

    The pattern of the kernel may match its symbol or its full name.
    """

    name: str
    kernel: str = "*"
    source: str = "*"

    def matches(self, finding: Finding) -> bool:
        kernels = (finding.kernel, demangle(finding.kernel))
        if finding.name != self.name or not any(fnmatchcase(kernel, self.kernel) for kernel in kernels):
            return False
        lines = [str(place.source or "") for place in finding.places] or [""]
        return any(fnmatchcase(line, self.source) for line in lines)


def read_suppressions(path: Path) -> tuple[Suppression, ...]:
    """Read a file of suppressions. Raises `FileFormatError` with all its problems."""
    found: list[Suppression] = []
    problems: list[FileProblem] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        name, *others = line.split("#")[0].split() or [""]
        given = dict(word.partition("=")[::2] for word in others)
        if wrong := [key for key in given if key not in _KEYS or not given[key]]:
            problems.append(FileProblem(f"line {number}", f"{wrong[0]!r} is not one of kernel=PATTERN, source=PATTERN"))
        elif name:
            found.append(Suppression(name, **given))
    if problems:
        raise FileFormatError(str(path), problems)
    return tuple(found)


class FindingList:
    """Findings without those that are suppressed. Equal ones are counted together."""

    def __init__(self, suppressions: tuple[Suppression, ...] = ()) -> None:
        self.found: list[Finding] = []
        self.suppressed = 0
        self._suppressions = suppressions
        self._numbers: dict[object, int] = {}

    def add(self, finding: Finding) -> bool:
        """Add a finding; return whether it is new."""
        if any(suppression.matches(finding) for suppression in self._suppressions):
            self.suppressed += finding.count
            return False
        places = tuple((place.source, place.address) for place in finding.places)
        key = (finding.name, finding.gpu, finding.kernel, places or finding.message)
        if key in self._numbers:
            at = self._numbers[key]
            self.found[at] = replace(self.found[at], count=self.found[at].count + finding.count)
            return False
        self._numbers[key] = len(self.found)
        self.found.append(finding)
        return True
