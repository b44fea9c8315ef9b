"""Builds with a signed index behind them: nothing is compiled that it has, and builds go on when the host is stolen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engine import build, heard, notices

from tilewright.building.index.keys import create_private_key
from tilewright.building.index.publish import publish_kernels, sign_timestamp, write_root
from tilewright.building.index.remote_index import RECHECK_S, IndexRemote
from tilewright.building.index.serve import make_server
from tilewright.building.index.transport import Fetcher, parse_address
from tilewright.building.index.trusted import TrustedIndex
from tilewright.building.store.local import Store
from tilewright.building.store.remote import INTERNET
from tilewright.building.store.tiers import CircuitBreaker, Tiers

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("engine")]

FACTORS = [1, 2]


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with make_server(folder, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


def machine(folder: Path, url: str, root: bytes) -> Tiers:
    fetcher = Fetcher(parse_address(url))
    remote = IndexRemote(url, TrustedIndex(root, folder / "copy", fetcher, RECHECK_S), fetcher)
    return Tiers(Store(folder / "store"), remote, writes=False, link=CircuitBreaker(), limits=INTERNET)


def test_builds_use_an_index_and_go_on_without_it(tmp_path: Path, warm: Callable[[Path], Path]) -> None:
    site = tmp_path / "site"
    for name in ("publisher", "b/store", "c/store"):
        warm(tmp_path / name)
    publisher = build(tmp_path / "publisher", FACTORS)
    assert publisher.compiled == len(FACTORS)
    key = create_private_key(tmp_path / "key")
    root = write_root(site, *[[key.public_key]] * 3, 1, [key], 365).read_bytes()
    assert publish_kernels(site, Store(tmp_path / "publisher"), key, 90).added == len(FACTORS)
    sign_timestamp(site, key, 14)
    with served(site) as url:
        found = build(machine(tmp_path / "a", url, root), FACTORS)
        assert found.compiled == 0
        keys = {a.key: a for a in publisher.artifacts.values()}
        assert {a.key: a.files for a in found.artifacts.values()} == {key: a.files for key, a in keys.items()}

        # A thief of the host swaps the two kernels: neither is used, and both are compiled.
        blobs = sorted((site / "blobs").rglob("*.*"))
        contents = [blob.read_bytes() for blob in blobs]
        for blob, content in zip(blobs, reversed(contents), strict=True):
            blob.write_bytes(content)
        with heard() as events:
            attacked = build(machine(tmp_path / "b", url, root), FACTORS)
        assert attacked.compiled == len(FACTORS) and attacked.failures == {}
        said = [text for text in notices(events) if url in text]
        assert len(said) == 1 and "the signed index lists" in said[0]
    with heard() as events:
        offline = build(machine(tmp_path / "c", url, root), [1])
    assert offline.compiled == 1
    assert len([text for text in notices(events) if "does not work" in text]) == 1
