"""A connection to Ray: a cluster that is there, or one that is started on this machine for the time of a sweep."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import Any

from tilewright.base import knobs
from tilewright.base.errors import ClusterError, MissingExtraError
from tilewright.bench.cluster.seats import Node, nodes_of

AUTO, LOCAL = "auto", "local"
# Tasks and records are small and go inside of messages, so Ray's store of large objects stays empty. Ray allows no less
# than 75 MB.
OBJECT_STORE_BYTES = 100 * 2**20
_CONNECT_S = 10.0


def ray_module() -> Any:
    """Ray, or `MissingExtraError` with how to get it."""
    try:
        import ray  # noqa: PLC0415  (an extra, and half a second)
    except ImportError as error:
        raise MissingExtraError("a cluster needs ray. Get it with: pip install 'tilewright[cluster]'") from error
    return ray


class Session:
    """Connected to Ray while it is open. A connection that the program had before is used, and left open."""

    def __init__(self, address: str) -> None:
        self._ray = ray_module()
        self._own = not self._ray.is_initialized()
        if not self._own:
            return
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == LOCAL:
            # Ray of its own accord tells its makers about its use; what we start ourselves does not.
            knobs.hand_down({"RAY_USAGE_STATS_ENABLED": "0"})
            quiet |= {"num_cpus": knobs.job_count(), "include_dashboard": False}
            quiet |= {"object_store_memory": OBJECT_STORE_BYTES}
        elif address != AUTO:
            _check_reachable(address)
        try:
            self._ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise ClusterError(f"no Ray cluster at {address!r}: {_first_line(error)}. {_ADVICE}") from error

    def nodes(self) -> dict[str, Node]:
        """The nodes that live now."""
        return nodes_of(self._ray.nodes())

    def close(self) -> None:
        """Leave the cluster; one that was started for this session ends."""
        if self._own:
            self._ray.shutdown()


def shared_environment() -> Mapping[str, str]:
    """The settings that all nodes must agree on: where built kernels are shared. All others are those of each node."""
    return {knob.name: value for knob in (knobs.REMOTE, knobs.REMOTE_MODE) if (value := knob.get()) is not None}


_ADVICE = (
    "Start one with `ray start --head` and name it (--cluster HOST:6379; --cluster auto on one of its machines), or "
    "use --cluster local for this machine alone"
)


def _check_reachable(address: str) -> None:
    """Ray itself tries for minutes to reach an address where nobody is."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ClusterError(
            f"{address!r} is no address of a cluster: write {AUTO}, {LOCAL}, HOST:6379 or ray://HOST:10001"
        )
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        raise ClusterError(f"no Ray cluster at {address!r}: {error}. {_ADVICE}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
