"""A connection to Ray: to a running cluster, or to one that is started on this machine for one sweep.

It also finds the GPUs of the nodes, and checks that all nodes run the same versions.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import Any

from tilewright.base import knobs
from tilewright.base.errors import ClusterError, MissingExtraError
from tilewright.bench.cluster.actor import DeviceActor, DeviceInfo
from tilewright.bench.cluster.slots import GPU, Node, list_slots, parse_nodes
from tilewright.bench.executor import WorkerConfig
from tilewright.bench.gpu_model import parse_versions


def describe_differences(versions: str, node: Mapping[str, str]) -> str:
    """A description of the differences; empty if there are none. `versions` are a task's, from `format_versions`.

    Only names that both sides have are compared: the compiler is that of the building node, and part of the store key.
    """
    wanted = parse_versions(versions)
    return ", ".join(
        f"{name} {there} instead of {wanted[name]}" for name, there in node.items() if wanted.get(name, there) != there
    )


AUTO, LOCAL = "auto", "local"
# Tasks and records are small and are sent inside messages, so Ray's object store stays empty. Ray's minimum is
# 75 MB.
OBJECT_STORE_BYTES = 100 * 2**20
_CONNECT_S = 10.0


def import_ray() -> Any:
    """The `ray` module. Raises `MissingExtraError` with install instructions."""
    try:
        import ray  # noqa: PLC0415  (an extra, and half a second)
    except ImportError as error:
        raise MissingExtraError("a cluster needs ray. Get it with: pip install 'tilewright[cluster]'") from error
    return ray


class RaySession:
    """A connection to Ray. An existing connection of the program is reused, and left open."""

    def __init__(self, address: str) -> None:
        self._ray = import_ray()
        self._own = not self._ray.is_initialized()
        if not self._own:
            return
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == LOCAL:
            # Ray sends usage statistics by default; clusters that we start do not.
            knobs.set_variables({"RAY_USAGE_STATS_ENABLED": "0"})
            quiet |= {"num_cpus": knobs.job_count(), "include_dashboard": False}
            quiet |= {"object_store_memory": OBJECT_STORE_BYTES}
        elif address != AUTO:
            _check_reachable(address)
        try:
            self._ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise ClusterError(f"no Ray cluster at {address!r}: {_extract_first_line(error)}. {_ADVICE}") from error

    def list_nodes(self) -> dict[str, Node]:
        """The living nodes."""
        return parse_nodes(self._ray.nodes())

    def close(self) -> None:
        """Leave the cluster; a cluster that was started for this session ends."""
        if self._own:
            self._ray.shutdown()


def read_shared_environment() -> Mapping[str, str]:
    """The settings that all nodes must share: where built kernels are stored. Others are each node's own."""
    return {knob.name: value for knob in (knobs.REMOTE, knobs.REMOTE_MODE) if (value := knob.get()) is not None}


_ADVICE = (
    "Start one with `ray start --head` and pass its address (--cluster HOST:6379; --cluster auto on one of its "
    "machines), or use --cluster local for this machine alone"
)


def _check_reachable(address: str) -> None:
    """Fail fast on an unreachable address: Ray itself retries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ClusterError(f"{address!r} is not a cluster address: use {AUTO}, {LOCAL}, HOST:6379 or ray://HOST:10001")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        raise ClusterError(f"no Ray cluster at {address!r}: {error}. {_ADVICE}") from error


def _extract_first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def probe_cluster_gpu(address: str) -> DeviceInfo:
    """The description of the cluster's first GPU. The others are compared with it when they are used."""
    ray = import_ray()
    session = RaySession(address)
    try:
        nodes = session.list_nodes()
        seats = sorted(list_slots(nodes.values(), [GPU], builds=False))
        if not seats:
            raise ClusterError(
                f"none of the cluster's {len(nodes)} nodes has a GPU that Ray knows of. Start nodes with `ray start "
                "--num-gpus N`, or name another device"
            )
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415  (part of an extra)

        actor = (
            ray.remote(DeviceActor)
            .options(num_gpus=1, scheduling_strategy=NodeAffinitySchedulingStrategy(seats[0].node, soft=False))
            .remote(GPU, WorkerConfig(), 0, {})
        )
        try:
            told: DeviceInfo = ray.get(actor.describe_device.remote())
        except ray.exceptions.RayTaskError as error:
            raise ClusterError(f"{seats[0]} cannot be used: {error.cause}") from error
        finally:
            ray.kill(actor)
        return told
    finally:
        session.close()
