"""Where devices of a cluster are: a seat for each GPU of each node, and for processors where no GPU is asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ClusterError

GPU, CPU = "gpu", "cpu"


@dataclass(frozen=True)
class Node:
    """A living node of the cluster and what Ray may give away there."""

    id: str
    host: str
    cpus: int
    gpus: int


@dataclass(frozen=True, order=True)
class Seat:
    """A place for one device: of which node, of which kind, and the how-manieth there."""

    node: str
    kind: str
    index: int

    def __str__(self) -> str:
        return f"{self.kind} {self.index} of node {self.node[:8]}"


def nodes_of(listed: Iterable[Mapping[str, Any]]) -> dict[str, Node]:
    """The living nodes of `ray.nodes()`, by their names."""
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


def seats_of(nodes: Iterable[Node], kinds: Iterable[str], *, builds: bool) -> set[Seat]:
    """All seats of the kinds asked for. With `builds`, one processor of each node that has several is left for them."""
    wanted = set(kinds)
    seats: set[Seat] = set()
    for node in nodes:
        if GPU in wanted:
            seats.update(Seat(node.id, GPU, index) for index in range(node.gpus))
        if CPU in wanted:
            free = node.cpus - 1 if builds and node.cpus > 1 else node.cpus
            seats.update(Seat(node.id, CPU, index) for index in range(free))
    return seats


def builders_of(nodes: Iterable[Node], kinds: Iterable[str]) -> int:
    """How many processors are left for builds beside the seats of these kinds."""
    taken = CPU in set(kinds)
    return sum((1 if node.cpus > 1 else 0) if taken else node.cpus for node in nodes)


def check_nodes(nodes: Collection[Node], kinds: Iterable[str], *, builds: bool, shared: bool) -> None:
    """Refuse a cluster on which nothing could be measured. `shared`: its machines have a store that they share."""
    if not nodes:
        raise ClusterError("the cluster has no living node: start some with `ray start --address HOST:6379`")
    hosts = {node.host for node in nodes}
    if builds and len(hosts) > 1 and not shared:
        raise ClusterError(
            f"the cluster has {len(hosts)} machines and no store that they share: a kernel built on one could not be "
            "measured on another. Set TILEWRIGHT_REMOTE (docs/store.md)"
        )
    if builds and not builders_of(nodes, kinds):
        cpus = sum(node.cpus for node in nodes)
        raise ClusterError(
            f"all {cpus} processors of {len(nodes)} nodes are taken by devices, and none is left for builds. Give a "
            "node at least 2 (ray start --num-cpus 2)"
        )
