"""The cost report of a build on a cluster: kernels and CPU seconds for each node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.building.builder import BuildResult

# The states of a node at the end of a build.
USED, LOST, EXCLUDED = "used", "lost", "excluded"


@dataclass(frozen=True)
class NodeReport:
    """The share of one node in a build.

    `cpu_s` is the CPU time of its builder processes and of all compilers, `header_cpu_s` the part for precompiling
    headers. Of a lost node, only finished kernels are known: `cpu_s` is then too low.
    """

    node: str
    host: str
    cpus: int
    state: str = USED
    reason: str = ""  # why it was lost or excluded
    compiled: int = 0
    hits: int = 0  # kernels that it found in a store, because another build had made them in the meantime
    failed: int = 0
    sent_again: int = 0  # kernels that were sent to other nodes because this one was lost
    cpu_s: float = 0.0
    header_cpu_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "cpu_s": round(self.cpu_s, 2), "header_cpu_s": round(self.header_cpu_s, 2)}


@dataclass(frozen=True)
class ClusterReport:
    """The cost of a build on a cluster. `found` kernels were in a store before it began."""

    nodes: tuple[NodeReport, ...]
    kernels: int
    found: int
    coordinator_cpu_s: float
    wall_s: float
    shared_store: str

    @property
    def compiled(self) -> int:
        return sum(node.compiled for node in self.nodes)

    @property
    def hits(self) -> int:
        """The kernels that were not compiled: found before the build began, or by a node."""
        return self.found + sum(node.hits for node in self.nodes)

    @property
    def sent_again(self) -> int:
        return sum(node.sent_again for node in self.nodes)

    @property
    def cpu_s(self) -> float:
        return sum(node.cpu_s for node in self.nodes)

    @property
    def header_cpu_s(self) -> float:
        return sum(node.header_cpu_s for node in self.nodes)

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "kernels": self.kernels,
            "compiled": self.compiled,
            "hits": self.hits,
            "failed": sum(node.failed for node in self.nodes),
            "sent_again": self.sent_again,
            "cpu_s": round(self.cpu_s, 2),
            "header_cpu_s": round(self.header_cpu_s, 2),
            "coordinator_cpu_s": round(self.coordinator_cpu_s, 2),
            "wall_s": round(self.wall_s, 2),
            "shared_store": self.shared_store,
            "nodes": [node.to_json() for node in self.nodes],
        }


@dataclass(frozen=True)
class ClusterBuild:
    """The result of a build on a cluster: the same as that of a build on one machine, and the cost report."""

    built: BuildResult
    report: ClusterReport


def list_reports(nodes: Mapping[str, NodeReport]) -> tuple[NodeReport, ...]:
    """The reports, sorted by host and node."""
    return tuple(sorted(nodes.values(), key=lambda node: (node.host, node.node)))
