"""Serve the folder of an index on this machine, for tests: files, ETags, nothing else."""

from __future__ import annotations

import hashlib
import http.server
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"


class _Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if path.name.startswith(".") or not path.is_file():
            self.send_error(404)
            return
        body = path.read_bytes()
        etag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
        same = self.headers.get("If-None-Match") == etag
        self.send_response(304 if same else 200)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", "0" if same else str(len(body)))
        self.end_headers()
        if not same:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing: this layer has no output."""


def make_server(folder: Path, port: int) -> http.server.ThreadingHTTPServer:
    """Make a server for a folder, on loopback only. Port 0 is any free one."""

    def handle(*args: Any) -> _Handler:
        return _Handler(*args, directory=str(folder))

    return http.server.ThreadingHTTPServer((LOOPBACK, port), handle)
