"""The manifest of a pack: round trip, damage, and what it may not say."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pack_parts import GPUS, small_pack

from tilewright.base.errors import FileFormatError, PackError, UnknownValueError
from tilewright.building.pack.manifest import KIND, MANIFEST, SCHEMA, ManifestFile, read_pack


def test_a_pack_is_read_as_it_was_written(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)

    assert read_pack(tmp_path) == pack
    assert read_pack(tmp_path).gpus == GPUS
    assert pack.library_path("gfx1201") == tmp_path / "lib/libgfx1201.so"
    assert len(pack.to_text().splitlines()) == 5 + len(pack.kernels), "one kernel a line"
    with pytest.raises(UnknownValueError, match=r"GPU of the pack 'gfx950'.* Known: gfx90a, gfx1201"):
        pack.library_path("gfx950")


def test_all_damaged_files_are_named(tmp_path: Path) -> None:
    small_pack(tmp_path)
    (tmp_path / "lib/libgfx90a.so").write_text("lib/libgfx90a.sX")
    (tmp_path / "include/a.h").unlink()

    with pytest.raises(PackError) as caught:
        read_pack(tmp_path)

    assert "2 problem(s)" in str(caught.value)
    assert "lib/libgfx90a.so has 16 bytes with blake2b" in str(caught.value)
    assert "include/a.h is missing" in str(caught.value)


def test_a_folder_without_a_manifest_is_no_pack(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(PackError, match=r"is not a pack: no manifest\.json exists"):
            read_pack(folder)


def _set(*path: str, value: Any) -> Callable[[Any], None]:
    def change(table: Any) -> None:
        for part in path[:-1]:
            table = table[int(part) if part.isdigit() else part]
        table[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (_set("schema", value=2), "schema"),
        (_set("schema", value="1"), "schema"),
        (_set("kind", value="generated"), "kind"),
        (_set("name", value="a b"), "name"),
        (_set("extra", value=1), "extra: unknown key"),
        (_set("files", "0", "path", value="../outside"), r"files\.0\.path"),
        (_set("files", "0", "path", value="/etc/passwd"), r"files\.0\.path"),
        (_set("files", "0", "size", value=-1), r"files\.0\.size"),
        (_set("libraries", "gfx90a", "blake2b", value="x"), r"libraries\.gfx90a\.blake2b"),
        (_set("kernels", "0", "arch", value="gfx942"), "gfx942 has kernels but no library"),
        (_set("kernels", "0", "arch", value="gfx1201"), "gfx90a has a library but no kernels"),
        (_set("kernels", "0", "slug", value="op-gfx1201-x"), "op-gfx1201-x occurs 2 times"),
    ],
)
def test_what_a_manifest_may_not_say(change: Callable[[Any], None], what: str, tmp_path: Path) -> None:
    small_pack(tmp_path)
    table = json.loads((tmp_path / MANIFEST).read_text())
    change(table)
    (tmp_path / MANIFEST).write_text(json.dumps(table))

    with pytest.raises(FileFormatError, match=what):
        read_pack(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00"])
def test_what_is_no_manifest_at_all(text: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(text)

    with pytest.raises(FileFormatError, match=MANIFEST):
        read_pack(tmp_path)


def test_the_schema_reads_what_the_manifest_writes() -> None:
    fields = ManifestFile.model_fields

    assert fields["schema_number"].annotation.__args__ == (SCHEMA,)
    assert fields["kind"].annotation.__args__ == (KIND,)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", [MANIFEST, "include/a.h"])
def test_what_is_no_file_is_neither_waited_for_nor_followed(tmp_path: Path, name: str) -> None:
    small_pack(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(PackError, match="not a regular file"):
        read_pack(tmp_path)


def test_any_change_of_a_manifest_is_an_error_or_a_pack(tmp_path: Path) -> None:
    small_pack(tmp_path)
    whole = (tmp_path / MANIFEST).read_bytes()
    draw = random.Random(5)
    tokens = (b"1e400", b"9" * 400, b"NaN", b"[" * 3000, b"{", b'"', b"\xff", b"null", b"\\ud800", b"Infinity", b"-1")
    refused = 0
    for _ in range(400):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 2)):
            place = draw.randrange(len(changed))
            changed[place : place + draw.randint(0, 8)] = draw.choice(tokens)
        (tmp_path / MANIFEST).write_bytes(changed)
        try:
            read_pack(tmp_path)
        except (PackError, FileFormatError):
            refused += 1
    assert refused > 300
