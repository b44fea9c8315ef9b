"""Run a Ray cluster with several nodes on this machine, for tests and measurements."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewright.base.knobs import STORE
from tilewright.bench.cluster.session import import_ray

OBJECT_STORE_BYTES = 80 * 2**20  # Ray needs at least 75 MB
# Ray notices a killed node within about two seconds instead of 15.
HEALTH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
# The dashboard, the autoscaler's monitor and the log monitor are Python processes that take a second each to start.
HEAD = {"include_dashboard": False, "no_monitor": True, "include_log_monitor": False, "_system_config": HEALTH}


@contextmanager
def ray_nodes(*cpus: int, stores: Path | None = None) -> Iterator[tuple[Any, list[Any]]]:
    """Start a cluster with a node for each number of processors, and connect this process to it.

    The first node is the head, which must not be killed. With `stores`, each node has its own artifact store there, as
    separate machines do.
    """
    # Usage reports and the metrics exporter would each take seconds to start.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_enable_metrics_collection"] = "0"  # noqa: SIM112  (Ray's spelling)
    from ray.cluster_utils import Cluster

    ray = import_ray()
    cluster: Any = Cluster()
    try:
        nodes: list[Any] = []
        for number, each in enumerate(cpus):
            if stores is not None:
                os.environ[STORE.name] = str(stores / f"node{number}")
            nodes.append(add_node(cluster, each, **({} if nodes else HEAD)))
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield cluster, nodes
    finally:
        ray.shutdown()
        cluster.shutdown()


def add_node(cluster: Any, cpus: int, **options: Any) -> Any:
    """Add a node."""
    return cluster.add_node(num_cpus=cpus, object_store_memory=OBJECT_STORE_BYTES, **options)


def kill_node(cluster: Any, node: Any) -> None:
    """Kill all processes of a node at once, as if its machine had lost power."""
    cluster.remove_node(node, allow_graceful=False)
