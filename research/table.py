"""Lines of the table that `research/evaluate.py` prints: data, split, method, figures, target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.learn.efficiency import Efficiency


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's rank correlation of estimated and measured times, for sets without a known best kernel."""

    rank: float
    rows: int

    def to_json(self) -> dict[str, float | int]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Line:
    """One method on one set of problems. `reached` is None without a target."""

    data: str
    split: str
    method: str
    result: Efficiency | Correlation
    target: str = ""
    reached: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "split": self.split,
            "method": self.method,
            "result": self.result.to_json(),
            "target": self.target,
            "reached": self.reached,
        }


@dataclass(frozen=True, slots=True)
class Target:
    """The figures that a line must reach, as shares of one: `Target({"mean": 0.965, "p10": 0.92})`."""

    least: Mapping[str, float]

    def line(self, data: str, split: str, method: str, result: Efficiency | Correlation) -> Line:
        figures = result.to_json()
        reached = all(figures[name] >= least for name, least in self.least.items())
        return Line(data, split, method, result, self.text, reached)

    @property
    def text(self) -> str:
        shown = {name: least if name == "rank" else 100 * least for name, least in self.least.items()}
        return ", ".join(f"{name.replace('p10', 'P10')} ≥ {least:g}" for name, least in shown.items())


@dataclass(frozen=True, slots=True)
class Remark:
    """An additional table: deviations of an estimate, a learning curve, or excluded rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
