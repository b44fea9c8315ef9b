"""A real Redis server on loopback, for tests. Imported as a plugin by tests/conftest.py."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

START_S = 20.0


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as line:
                line.sendall(b"PING\r\n")
                return line.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, empty, that keeps nothing on disk."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.fail("redis-server is not installed. Run: apt-get install redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "redis").mkdir()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path / "redis")]
    started = Server(subprocess.Popen([program, *options], stdout=subprocess.DEVNULL), port)
    try:
        deadline = time.monotonic() + START_S
        while not started.answers():
            assert time.monotonic() < deadline, f"redis-server does not answer after {START_S:g} s"
            time.sleep(0.02)
        yield started
    finally:
        started.process.kill()
        started.process.wait()
