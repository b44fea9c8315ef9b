"""Precompiled headers: their key, and the headers of the machine that they were made of. Nothing is compiled here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from test_build_key import TOOLCHAIN, gemm

from absent_toolchain import make_absent_job
from tilewright.base import knobs
from tilewright.building import flags
from tilewright.building.flags import COMPAT_COPY
from tilewright.building.header_set import SystemHeaders
from tilewright.building.store.local import Store


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(knobs.CACHE_DIR.name, str(tmp_path / "cache"))


def test_the_folder_of_the_package_is_in_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "store")
    before = make_absent_job(gemm())
    prefixes = (before.device_headers, before.host_headers)
    keys, kernel_key = [prefix.key(store) for prefix in prefixes], before.key
    package = str(flags.COMPAT.parent)
    assert not [word for prefix in prefixes for word in prefix.command(store) if package in word]
    monkeypatch.setattr(flags, "COMPAT", Path(shutil.copy(flags.COMPAT, tmp_path)))
    after = make_absent_job(gemm())
    assert [prefix.key(store) for prefix in (after.device_headers, after.host_headers)] == keys
    flags.COMPAT.write_text("#define ANOTHER\n")
    changed = make_absent_job(gemm())
    assert changed.device_headers.texts[COMPAT_COPY] == "#define ANOTHER\n"
    assert not {changed.device_headers.key(store), changed.host_headers.key(store)} & set(keys)
    assert changed.key != kernel_key


def test_headers_of_the_machine_are_found_in_a_list_for_make(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    prefix = make_absent_job(gemm()).device_headers
    odd = [tmp_path / name for name in ("plain.h", "a b.h", "a#b.h", "a$b.h", "a:b.h")]
    for path in odd:
        path.write_text("")
    listed = " \\\n  ".join(str(path).replace(" ", "\\ ").replace("#", "\\#").replace("$", "$$") for path in odd)
    ours = f"{prefix.folder(store)}/prefix.hpp {TOOLCHAIN.ck_include}/ck_tile/core.hpp"
    read = prefix.find_system_headers(store, f"prefix.pch: {ours} \\\n  {listed}\n")
    assert read.paths == tuple(odd)
    assert read.is_unchanged


def test_headers_read_are_compared_by_content(tmp_path: Path) -> None:
    header = tmp_path / "a.h"
    header.write_text("1")
    read = SystemHeaders((header,), "")
    assert not read.is_unchanged
    known = SystemHeaders.from_json(SystemHeaders((header,), "x").to_json())
    assert known == SystemHeaders((header,), "x")
    assert known.has_changed_since(header.stat().st_ctime - 1)
    assert not known.has_changed_since(header.stat().st_ctime)
    assert SystemHeaders((header,), "").has_changed_since(header.stat().st_ctime), (
        "one was gone when they were digested"
    )
    header.unlink()
    assert not known.is_unchanged
