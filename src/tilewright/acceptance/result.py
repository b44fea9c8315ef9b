"""Results of an acceptance run as values: one for each stage, and the verdict of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

# passed: as expected. failed: something disagrees or does not work. skipped: not possible here, see the summary.
StageVerdict = Literal["passed", "failed", "skipped"]
PASSED: StageVerdict = "passed"
FAILED: StageVerdict = "failed"
SKIPPED: StageVerdict = "skipped"

# The stages in their order, with their titles.
STAGES: Mapping[str, str] = {
    "environment": "Environment",
    "load": "Build and load",
    "kernel": "One kernel",
    "agreement": "Agreement with the emulated device",
    "verification": "Verification",
    "timing": "Event timing",
    "graph": "Graph capture through torch",
}
FORMAT = 1  # of acceptance.json


@dataclass(frozen=True)
class StageResult:
    """The result of a stage. `rows` are its single results, `facts` everything else; both are plain values."""

    name: str
    verdict: StageVerdict
    summary: str
    seconds: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    rows: Sequence[Mapping[str, Any]] = ()

    @property
    def title(self) -> str:
        return STAGES[self.name]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "title": self.title,
            "verdict": self.verdict,
            "summary": self.summary,
            "seconds": round(self.seconds, 2),
            "facts": dict(self.facts),
            "rows": [dict(row) for row in self.rows],
        }


@dataclass(frozen=True)
class AcceptanceResult:
    """The results of all stages so far. `complete` is false while stages are missing."""

    device: str
    created: str  # date and time in UTC
    versions: Mapping[str, str]
    stages: tuple[StageResult, ...] = ()
    kernels: tuple[Mapping[str, Any], ...] = ()

    def find_stage(self, name: str) -> StageResult | None:
        """The result of a stage, if it has one."""
        return next((stage for stage in self.stages if stage.name == name), None)

    @property
    def complete(self) -> bool:
        return len(self.stages) == len(STAGES)

    @property
    def ok(self) -> bool:
        """Whether no stage failed."""
        return all(stage.verdict != FAILED for stage in self.stages)

    @property
    def verdict(self) -> str:
        """One sentence about the whole run."""
        failed = [stage.title for stage in self.stages if stage.verdict == FAILED]
        if failed:
            return f"Not accepted: {', '.join(failed)}."
        if not self.complete:
            return f"Incomplete: {len(self.stages)} of {len(STAGES)} stages are done."
        skipped = [stage.title for stage in self.stages if stage.verdict == SKIPPED]
        return "Accepted." if not skipped else f"Accepted, without: {', '.join(skipped)}."

    def to_json(self) -> dict[str, Any]:
        """Plain values: the content of acceptance.json."""
        return {
            "format": FORMAT,
            "device": self.device,
            "created": self.created,
            "verdict": self.verdict,
            "ok": self.ok,
            "complete": self.complete,
            "versions": dict(self.versions),
            "stages": [stage.to_json() for stage in self.stages],
            "kernels": [dict(kernel) for kernel in self.kernels],
        }


def format_hip(number: int) -> str:
    """HIP's version number as text: 60342134 is 6.3.42134 (major · 10⁷ + minor · 10⁵ + patch, hip_version.h)."""
    return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"
