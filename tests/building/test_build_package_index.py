"""Fetching CK's headers where there is no pip: from an index on this machine, in an environment of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
import venv
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from test_build_ck_fetch import GOOD, make_wheel

from tilewright.base.errors import ToolchainError
from tilewright.building import package_index
from tilewright.building.ck_cache import DEFAULT_TREE, PINNED_TREES
from tilewright.building.package_index import PYPI, WantedFile, download_file, read_index_settings

PACKAGE, WHEEL = PINNED_TREES[DEFAULT_TREE].package, PINNED_TREES[DEFAULT_TREE].file
SOURCES = Path(package_index.__file__).parents[2]


class Index:
    """A server of one index. `pages` are what it answers, by path: kind of content, and content."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, bytes]] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.ranges = True  # whether it supports them
        self.cut: int | None = None  # the number of bytes after which it closes the connection
        pages, asked, index = self.pages, self.asked, self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, self.headers.get("Authorization")))
                kind, content = pages.get(self.path, ("", b""))
                start = int((self.headers.get("Range") or "bytes=0-")[6:-1]) if index.ranges else 0
                if start and start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206 if start else 200 if kind else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                self.wfile.write(content[start:][: index.cut if "/files/" in self.path else None])

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.host}/simple"

    def serve(self, wheel: bytes, digest: str | None, *, as_json: bool = False) -> None:
        """Lists one wheel, with a digest if one is given, among others."""
        self.pages[f"/files/{WHEEL}"] = ("application/octet-stream", wheel)
        if as_json:
            hashes = {"sha256": digest} if digest else {}
            files = [{"filename": WHEEL, "url": f"../../files/{WHEEL}", "hashes": hashes}]
            text = json.dumps({"meta": {"api-version": "1.0"}, "name": PACKAGE, "files": files})
            self.pages[f"/simple/{PACKAGE}/"] = ("application/vnd.pypi.simple.v1+json", text.encode())
            return
        fragment = f"#sha256={digest}" if digest else ""
        text = f'<a href="old.whl">old.whl</a><a href="/files/{WHEEL}{fragment}" data-requires-python="">{WHEEL}</a>'
        self.pages[f"/simple/{PACKAGE}/"] = ("text/html", f"<!DOCTYPE html><body>{text}</body>".encode())


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def wheel(tmp_path: Path) -> bytes:
    return make_wheel(tmp_path / "made.whl", GOOD).read_bytes()


@pytest.fixture
def settings(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Sets variables of pip and uv, and removes all others; no file of pip's is read."""

    def put(**values: str) -> None:
        for name in list(os.environ):
            if name.startswith(("PIP_", "UV_")) or name.lower().endswith("_proxy"):
                clean_knobs.delenv(name)
        for name, value in {"PIP_CONFIG_FILE": "/dev/null", **values}.items():
            clean_knobs.setenv(name, value)

    return put


def fetched(wheel: bytes, folder: Path) -> bytes:
    digest = hashlib.sha256(wheel).hexdigest()
    return download_file(WantedFile(PACKAGE, WHEEL, digest, 2**20), folder, limit_s=60).read_bytes()


PROGRAM = """
import importlib.util, sys
from dataclasses import replace
from tilewright.building import ck_fetch, ck_cache
assert importlib.util.find_spec("pip") is None
pinned = replace(ck_cache.PINNED_TREES["2025-11"], sha256=sys.argv[1])
ck_cache.PINNED_TREES = {"2025-11": pinned}
print(ck_fetch.fetch_ck().folder)
"""


@pytest.fixture
def without_pip(tmp_path: Path) -> Path:
    """The Python of a new environment that has all packages of this one but pip."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (place,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    for folder in dict.fromkeys(path for path in map(Path, sys.path) if path.name == "site-packages"):
        for path in folder.iterdir():
            taken = path.name.startswith(("pip", "_", "tilewright")) or path.suffix == ".pth"
            if not taken and not (place / path.name).exists():
                (place / path.name).symlink_to(path)
    return tmp_path / "venv" / "bin" / "python"


@pytest.mark.slow
def test_headers_are_fetched_without_pip(
    index: Index, wheel: bytes, without_pip: Path, tmp_path: Path, settings: Callable[..., None]
) -> None:
    digest = hashlib.sha256(wheel).hexdigest()
    index.serve(wheel, digest)
    settings(UV_INDEX_URL=index.url)
    surroundings = {**os.environ, "PYTHONPATH": str(SOURCES), "TILEWRIGHT_CACHE": str(tmp_path / "cache")}

    def run(expected: str) -> subprocess.CompletedProcess[str]:
        command = [str(without_pip), "-c", PROGRAM, expected]
        return subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)

    wrong = run("0" * 64)
    assert wrong.returncode != 0
    assert f"another file of this name, with sha256={digest}; expected sha256={'0' * 64}" in wrong.stderr
    assert "TILEWRIGHT_CK to a checkout" in wrong.stderr
    assert "No module named pip" not in wrong.stderr
    done = run(digest)
    assert done.returncode == 0, done.stderr
    assert (Path(done.stdout.strip()) / "include" / "ck_tile" / "core.hpp").read_text() == "// core"


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("stated", [False, True])
def test_both_kinds_of_index(
    index: Index, wheel: bytes, tmp_path: Path, settings: Callable[..., None], as_json: bool, stated: bool
) -> None:
    index.serve(wheel, hashlib.sha256(wheel).hexdigest() if stated else None, as_json=as_json)
    settings(PIP_INDEX_URL=f"{index.url}/")
    assert fetched(wheel, tmp_path) == wheel


def test_another_file_under_the_name_is_refused_and_the_next_index_is_asked(
    index: Index, wheel: bytes, tmp_path: Path, settings: Callable[..., None]
) -> None:
    index.serve(b"something else", None)
    links = tmp_path / "links"
    links.mkdir()
    settings(PIP_INDEX_URL=index.url)
    other = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(ToolchainError, match=f"its file has sha256 {other}, expected"):
        fetched(wheel, tmp_path)
    simple = tmp_path / "simple" / PACKAGE
    simple.mkdir(parents=True)
    (simple / WHEEL).write_bytes(wheel)
    (simple / "index.html").write_text(f'<a href="{WHEEL}">{WHEEL}</a>')
    settings(PIP_EXTRA_INDEX_URL=index.url, PIP_INDEX_URL=(tmp_path / "simple").as_uri())
    assert fetched(wheel, tmp_path) == wheel


def test_each_place_is_told_with_its_reason(
    index: Index, wheel: bytes, tmp_path: Path, settings: Callable[..., None]
) -> None:
    index.pages[f"/many/{PACKAGE}/"] = ("text/html", b'<a href="a-1.whl">a</a><a href="a-2.whl">b</a>')
    index.pages[f"/odd/{PACKAGE}/"] = ("application/vnd.pypi.simple.v1+json", b"[]")
    index.pages[f"/ftp/{PACKAGE}/"] = ("text/html", f'<a href="ftp://x/{WHEEL}">x</a>'.encode())
    root = f"http://{index.host}"
    closed = Index()  # nobody accepts connections there
    closed.server.server_close()
    settings(
        PIP_FIND_LINKS=str(tmp_path),
        PIP_EXTRA_INDEX_URL=f"{root}/many {root}/odd {root}/ftp {closed.url}",
        PIP_INDEX_URL=f"http://me:secret@{index.host}/simple",
    )
    with pytest.raises(ToolchainError) as raised:
        fetched(wheel, tmp_path)
    told = str(raised.value)
    for line in (
        f"{tmp_path}: the folder does not have it",
        f"{root}/many: it lists 2 other files of {PACKAGE}",
        f"{root}/odd: its file list is not that of an index",
        f"{root}/ftp: ftp://x/{WHEEL} is not an http, https or file URL",
        f"{closed.url}: it cannot be reached",
        f"http://***@{index.host}/simple: it does not have the package (HTTP 404)",
    ):
        assert line in told
    assert "secret" not in told


def test_a_password_goes_to_its_own_server_only(
    index: Index, wheel: bytes, tmp_path: Path, settings: Callable[..., None]
) -> None:
    index.serve(wheel, None)
    settings(PIP_INDEX_URL=f"http://me:p%40ss@{index.host}/simple")
    assert fetched(wheel, tmp_path) == wheel
    sent = "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert [who for _, who in index.asked] == [sent, sent]
    index.asked.clear()
    away = f"http://localhost:{index.server.server_port}/files/{WHEEL}"
    index.pages[f"/simple/{PACKAGE}/"] = ("text/html", f'<a href="{away}">x</a>'.encode())
    assert fetched(wheel, tmp_path) == wheel
    assert [who for _, who in index.asked] == [sent, None]


def test_a_file_without_end_is_given_up(
    index: Index, wheel: bytes, tmp_path: Path, settings: Callable[..., None]
) -> None:
    index.serve(bytes(2**20 + 1), None)
    settings(PIP_INDEX_URL=index.url)
    with pytest.raises(ToolchainError, match="more than 1,048,576 bytes"):
        fetched(wheel, tmp_path)


def test_the_settings_of_pip_and_uv(tmp_path: Path, settings: Callable[..., None]) -> None:
    settings()
    assert read_index_settings() == package_index.IndexSettings((), (PYPI,), None)
    file = tmp_path / "pip.conf"
    extra = "extra-index-url =\n  https://b\n  https://c\n"
    file.write_text(f"[global]\nindex-url = https://a/simple\n{extra}cert = /ca.pem\n")
    settings(PIP_CONFIG_FILE=str(file), HOME=str(tmp_path), XDG_CONFIG_DIRS=str(tmp_path))
    found = read_index_settings()
    assert found.indexes[-3:] == ("https://b", "https://c", "https://a/simple")
    assert found.certificates == "/ca.pem"
    settings(UV_INDEX="mine=https://d https://e", UV_DEFAULT_INDEX="https://f", PIP_FIND_LINKS="/w /v")
    expected = package_index.IndexSettings(("/w", "/v"), ("https://d", "https://e", "https://f"), None)
    assert read_index_settings() == expected
    settings(PIP_NO_INDEX="1", PIP_INDEX_URL="https://a")
    assert read_index_settings().indexes == ()
    file.write_text("no section")
    settings(PIP_CONFIG_FILE=str(file))
    with pytest.raises(ToolchainError, match=f"{file} cannot be read"):
        read_index_settings()


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_is_continued(
    *, ranges: bool, index: Index, wheel: bytes, tmp_path: Path, settings: Callable[..., None]
) -> None:
    settings(PIP_INDEX_URL=index.url)
    index.serve(wheel, None)
    index.cut = len(wheel) // 2
    with pytest.raises(ToolchainError, match=f"lost after {index.cut:,} bytes; the next attempt continues"):
        fetched(wheel, tmp_path)
    assert (tmp_path / f"{WHEEL}.part").stat().st_size == index.cut
    index.cut, index.ranges = None, ranges
    pieces: list[int] = []
    wanted = WantedFile(PACKAGE, WHEEL, hashlib.sha256(wheel).hexdigest(), 2**20)
    assert download_file(wanted, tmp_path, 60, pieces.append).read_bytes() == wheel
    assert sum(pieces) == len(wheel)
    assert pieces[0] == (len(wheel) // 2 if ranges else 0)
    assert not (tmp_path / f"{WHEEL}.part").exists()


def test_a_part_that_does_not_fit_is_not_kept(
    index: Index, wheel: bytes, tmp_path: Path, settings: Callable[..., None]
) -> None:
    settings(PIP_INDEX_URL=index.url)
    index.serve(wheel, None)
    part = tmp_path / f"{WHEEL}.part"
    part.write_bytes(b"?" * 10)
    with pytest.raises(ToolchainError, match="its file has sha256"):
        fetched(wheel, tmp_path)
    assert not part.exists()
    part.write_bytes(b"?" * (len(wheel) + 5))  # longer than the file: the server has no such range
    assert fetched(wheel, tmp_path) == wheel
