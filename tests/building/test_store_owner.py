"""A store that others own or may write to is refused: code is loaded from it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from stores import key_of, noticed, put, whole

from tilewright.base import knobs
from tilewright.base.errors import StoreError
from tilewright.base.shared_files import require_own
from tilewright.building.store.local import Store
from tilewright.building.store.maintenance import remove_unused_entries, verify_entries
from tilewright.building.store.remote_folder import FolderRemote
from tilewright.building.store.tiers import Tiers

KEY, OTHER = key_of(1), key_of(2)
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    put(store, KEY)
    return store


def refused(store: Store, message: str) -> None:
    for use in (
        lambda: store.get(KEY),
        lambda: store.read(KEY),
        lambda: list(store.list_entries()),
        lambda: put(store, OTHER),
        lambda: store.put_failure(OTHER, "no", {}),
        lambda: store.remove(KEY),
        lambda: store.try_lock_build(KEY),
        lambda: remove_unused_entries(store),
        lambda: verify_entries(store),
        lambda: Tiers(store).find_entries([KEY]),
    ):
        with pytest.raises(StoreError, match=message):
            use()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
@pytest.mark.parametrize("below", ["", "v1"])
def test_a_store_that_others_may_write_to(store: Store, below: str, mode: int) -> None:
    folder = store.root / below
    folder.chmod(mode)
    refused(store, rf"{folder} belongs to .*uid {os.geteuid()}.* mode {mode:04o}.*chmod go-w {folder}")
    folder.chmod(0o755)
    assert whole(store, KEY), "others may read it"


@as_root
@pytest.mark.parametrize("below", ["", "v1"])
def test_a_store_of_another_user(store: Store, below: str) -> None:
    folder = store.root / below
    os.chown(folder, NOBODY, NOBODY)
    refused(store, rf"{folder} belongs to .*uid {NOBODY}\) and has mode 0700.*Set TILEWRIGHT_STORE to a folder of your")


@as_root
@pytest.mark.parametrize("name", ["", "kernel.so"])
def test_an_entry_of_another_user_is_not_used(store: Store, name: str) -> None:
    """Left from a time when the folder could be written by all."""
    os.chown(store.layout.entry_folder(KEY) / name, NOBODY, NOBODY)
    assert [finding.kind for finding in verify_entries(store)] == ["foreign file"]
    with noticed() as messages:
        assert store.get(KEY) is None
    assert f"uid {NOBODY}" in messages[0]
    put(store, KEY)
    assert whole(store, KEY)


@pytest.mark.parametrize("name", ["", "kernel.so"])
def test_an_entry_that_others_may_write_to_is_not_used(store: Store, name: str) -> None:
    (store.layout.entry_folder(KEY) / name).chmod(0o777)
    assert [finding.kind for finding in verify_entries(store)] == ["foreign file"]
    with noticed():
        assert store.get(KEY) is None


def test_a_store_of_root_serves_everybody(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an image that was made with a filled store."""
    if os.geteuid() != 0:
        pytest.skip("only root has files of root")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert store.get(KEY) is not None


def test_a_folder_that_we_make_is_ours_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store = Store(tmp_path / "a" / "b" / "store")
        store.put_failure(KEY, "no", {})
    finally:
        os.umask(old)
    for folder in (store.root.parent, store.root, store.root / "v1"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert store.get(KEY) is not None


def test_a_shared_folder_may_be_of_anybody(tmp_path: Path) -> None:
    """What comes from there is checked, and signed if there is a secret: that is its trust."""
    share = FolderRemote(tmp_path / "share")
    share.folder.mkdir()
    share.folder.chmod(0o2777)
    if os.geteuid() == 0:
        os.chown(share.folder, NOBODY, NOBODY)
    one, two = (Tiers(Store(tmp_path / name), share, b"k" * 32) for name in ("one", "two"))
    one.publish(put(one.local, KEY))
    assert set(two.find_entries([KEY])) == {KEY}


def test_the_folder_is_named_with_its_knob(tmp_path: Path) -> None:
    (tmp_path / "emulator").mkdir()
    (tmp_path / "emulator").chmod(0o777)
    if os.geteuid() == 0:
        os.chown(tmp_path / "emulator", NOBODY, NOBODY)
        with pytest.raises(StoreError, match="TILEWRIGHT_CACHE"):
            Store(tmp_path / "emulator", knobs.CACHE_DIR.name).get(KEY)
    with pytest.raises(StoreError, match="mode 0777"):
        require_own(tmp_path / "emulator", knobs.CACHE_DIR.name)
    require_own(tmp_path / "nothing", knobs.CACHE_DIR.name)
