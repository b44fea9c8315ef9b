"""Builds with a signed index behind them: nothing is compiled that it has, and builds go on when the host is stolen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engine import build, heard, notices

from tilewright.building.index.local_copy import LocalCopy
from tilewright.building.index.publish import build_index, sign_index, write_keys
from tilewright.building.index.remote_index import IndexRemote
from tilewright.building.index.serve import make_server
from tilewright.building.index.signing import create_private_key
from tilewright.building.index.transport import Fetcher, parse_address
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


def machine(root: Path, url: str, pin: str) -> Tiers:
    remote = IndexRemote(url, (pin,), Fetcher(parse_address(url)), LocalCopy(root / "copy"))
    return Tiers(Store(root / "store"), remote, writes=False, link=CircuitBreaker(), limits=INTERNET)


def test_builds_use_an_index_and_go_on_without_it(tmp_path: Path, warm: Callable[[Path], Path]) -> None:
    site = tmp_path / "site"
    for name in ("publisher", "b/store", "c/store"):
        warm(tmp_path / name)
    publisher = build(tmp_path / "publisher", FACTORS)
    assert publisher.compiled == len(FACTORS)
    root, index = create_private_key(tmp_path / "root.key"), create_private_key(tmp_path / "index.key")
    assert build_index(site, Store(tmp_path / "publisher")).added == len(FACTORS)
    write_keys(site, "test", [root.public], [index.public], 1, [root], 365)
    sign_index(site, index, 14)
    with served(site) as url:
        found = build(machine(tmp_path / "a", url, root.public), FACTORS)
        assert found.compiled == 0
        keys = {a.key: a for a in publisher.artifacts.values()}
        assert {a.key: a.files for a in found.artifacts.values()} == {key: a.files for key, a in keys.items()}

        # A thief of the host swaps the two kernels: neither is used, and both are compiled.
        blobs = [site / "blobs" / key[:2] / key for key in keys]
        contents = [blob.read_bytes() for blob in blobs]
        for blob, content in zip(blobs, reversed(contents), strict=True):
            blob.write_bytes(content)
        with heard() as events:
            attacked = build(machine(tmp_path / "b", url, root.public), FACTORS)
        assert attacked.compiled == len(FACTORS) and attacked.failures == {}
        said = [text for text in notices(events) if url in text]
        assert len(said) == 1 and "the signed index lists" in said[0]
    with heard() as events:
        offline = build(machine(tmp_path / "c", url, root.public), [1])
    assert offline.compiled == 1
    assert len([text for text in notices(events) if "does not work" in text]) == 1
