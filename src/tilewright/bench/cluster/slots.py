"""The device slots of a cluster: one per GPU of each node, or per CPU if no GPU is needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ClusterError

GPU, CPU = "gpu", "cpu"


@dataclass(frozen=True)
class Node:
    """A living node of the cluster, and the resources that Ray may allocate there."""

    id: str
    host: str
    cpus: int
    gpus: int


@dataclass(frozen=True, order=True)
class DeviceSlot:
    """One device slot: node, kind, and index on that node."""

    node: str
    kind: str
    index: int

    def __str__(self) -> str:
        return f"{self.kind} {self.index} of node {self.node[:8]}"


def parse_nodes(listed: Iterable[Mapping[str, Any]]) -> dict[str, Node]:
    """The living nodes of `ray.nodes()`, by name."""
    found = {}
    for node in listed:
        if node["Alive"]:
            resources = node["Resources"]
            found[node["NodeID"]] = Node(
                id=node["NodeID"],
                host=node["NodeManagerAddress"],
                cpus=int(resources.get("CPU", 0)),
                gpus=int(resources.get("GPU", 0)),
            )
    return found


def list_slots(nodes: Iterable[Node], kinds: Iterable[str], *, builds: bool) -> set[DeviceSlot]:
    """All slots of these kinds. With `builds`, one CPU of each node that has several is reserved for builds."""
    wanted = set(kinds)
    seats: set[DeviceSlot] = set()
    for node in nodes:
        if GPU in wanted:
            seats.update(DeviceSlot(node.id, GPU, index) for index in range(node.gpus))
        if CPU in wanted:
            free = node.cpus - 1 if builds and node.cpus > 1 else node.cpus
            seats.update(DeviceSlot(node.id, CPU, index) for index in range(free))
    return seats


def count_builders(nodes: Iterable[Node], kinds: Iterable[str]) -> int:
    """The number of CPUs that are left for builds when all slots of these kinds are in use."""
    taken = CPU in set(kinds)
    return sum((1 if node.cpus > 1 else 0) if taken else node.cpus for node in nodes)


def check_nodes(nodes: Collection[Node], kinds: Iterable[str], *, builds: bool, shared: bool) -> None:
    """Reject a cluster that cannot measure anything. `shared`: its machines share a store."""
    if not nodes:
        raise ClusterError("the cluster has no living node: start nodes with `ray start --address HOST:6379`")
    hosts = {node.host for node in nodes}
    if builds and len(hosts) > 1 and not shared:
        raise ClusterError(
            f"the cluster has {len(hosts)} machines and no shared store: a kernel built on one machine could not be "
            "measured on another. Set TILEWRIGHT_REMOTE (docs/store.md)"
        )
    if builds and not count_builders(nodes, kinds):
        cpus = sum(node.cpus for node in nodes)
        raise ClusterError(
            f"devices use all {cpus} CPUs of {len(nodes)} nodes, and none is left for builds. Give a "
            "node at least 2 (ray start --num-cpus 2)"
        )
