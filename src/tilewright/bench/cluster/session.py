"""A connection to Ray: to a running cluster, or to one that is started on this machine for one sweep."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import Any

from tilewright.base import knobs
from tilewright.base.errors import ClusterError, MissingExtraError
from tilewright.bench.cluster.slots import Node, parse_nodes

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
