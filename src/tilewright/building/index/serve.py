"""Serve the folder of an index on this machine, for tests."""

from __future__ import annotations

import http.server
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"


class _Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes

    def log_message(self, *_: Any) -> None:
        """Print nothing: this layer has no output."""


def make_server(folder: Path, port: int) -> http.server.ThreadingHTTPServer:
    """Make a server for a folder, on loopback only. Port 0 is any free one."""

    def handle(*args: Any) -> _Handler:
        return _Handler(*args, directory=str(folder))

    return http.server.ThreadingHTTPServer((LOOPBACK, port), handle)
