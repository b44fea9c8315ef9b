"""Metadata that the owner's keys signed but that has any content: it is used, or refused with an error of ours."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hostile_index import KEYS, World, published
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from securesystemslib.formats import encode_canonical
from tuf.api.metadata import MetaFile

from tilewright.base.errors import RemoteError
from tilewright.building.index.transport import AbsentError
from tilewright.building.index.trusted import TrustedIndex

ODD = (None, True, -1, 0, 1.5, 10**30, "", "x", "\ud800", [], {}, [1], {"x": 1}, "9" * 5000, [[[[[[[[]]]]]]]])
ROLES = ("2.root", "timestamp", "snapshot", "targets", "bin-5")


@dataclass(frozen=True)
class FileTransport:
    """Files by name, as a host without limits."""

    files: dict[str, bytes]

    def get(self, name: str, most: int, *, exact: bool = False) -> bytes:
        if name not in self.files:
            raise AbsentError(f"{name} does not exist")
        return self.files[name]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with published(tmp_path_factory.mktemp("content")) as world:
        world.rotate()
        yield world


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield from list_paths(value[key], (*path, key))


def replace(value: Any, path: Sequence[Any], odd: Any) -> Any:
    if not path:
        return odd
    value[path[0]] = replace(value[path[0]], path[1:], odd)
    return value


def sign_content(world: World, role: str, content: Any) -> bytes:
    """Sign what python-tuf would not serialize, too."""
    signer = {"2.root": world.roots[0], "timestamp": world.timestamp}.get(role, world.index)
    try:
        text = (encode_canonical(content) or "").encode()
    except Exception:
        text = b"no canonical form"
    signature = signer.sign(text)
    return json.dumps({"signatures": [signature.to_dict()], "signed": content}).encode()


def make_files(world: World, role: str, content: Any) -> dict[str, bytes]:
    """The files of the host; `role` has changed content, and the roles above it list its digest."""
    files = {f"metadata/{path.name}": path.read_bytes() for path in (world.folder / "metadata").iterdir()}
    order = ("bin-5", "targets", "snapshot", "timestamp")
    raw = sign_content(world, role, content)
    snapshot = json.loads(world.read("snapshot.json"))["signed"]
    if role == "2.root":
        return files | {"metadata/2.root.json": raw}
    for name in order[order.index(role) :]:
        if name in ("bin-5", "targets"):
            version = snapshot["meta"][f"{name}.json"]["version"]
            if name == role:
                files[f"metadata/{version}.{name}.json"] = raw
                snapshot["meta"][f"{name}.json"] = MetaFile.from_data(version, raw, ["sha256"]).to_dict()
        elif name == "snapshot":
            raw = raw if name == role else sign_content(world, "snapshot", snapshot)
            timestamp = json.loads(world.read("timestamp.json"))["signed"]
            version = timestamp["meta"]["snapshot.json"]["version"]
            files[f"metadata/{version}.snapshot.json"] = raw
            timestamp["meta"]["snapshot.json"] = MetaFile.from_data(version, raw, ["sha256"]).to_dict()
        else:
            files["metadata/timestamp.json"] = raw if name == role else sign_content(world, "timestamp", timestamp)
    return files


def look_up(world: World, role: str, path: Sequence[Any], odd: Any) -> None:
    content = replace(json.loads(world.read(f"{role}.json"))["signed"], path, odd)
    transport = FileTransport(make_files(world, role, content))
    with tempfile.TemporaryDirectory() as copy:
        TrustedIndex(world.read("1.root.json"), Path(copy), transport, 0.0).find(KEYS[:2])


@pytest.mark.parametrize("role", ROLES)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_signed_content_raises_only_our_error(role: str, world: World, data: st.DataObject) -> None:
    content = json.loads(world.read(f"{role}.json"))["signed"]
    path = data.draw(st.sampled_from(list(list_paths(content))))
    with suppress(RemoteError):
        look_up(world, role, path, data.draw(st.sampled_from(ODD)))
