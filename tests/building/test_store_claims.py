"""Claims in a shared folder: one holder at a time, by the file server's clock, and never for ever."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest
from stores import eventually, exit_code, forked, key_of, kill, one_of_eight_wins_each, put

from tilewright.base.errors import InvalidValueError
from tilewright.building.store import remote_folder, tiers
from tilewright.building.store.local import Store
from tilewright.building.store.remote import CLAIM_TTL_S
from tilewright.building.store.remote_folder import FolderRemote
from tilewright.building.store.tiers import Tiers

KEY = key_of(1)


@pytest.fixture
def shared(tmp_path: Path) -> FolderRemote:
    (tmp_path / "shared").mkdir()
    return FolderRemote(tmp_path / "shared")


def claim_path(shared: FolderRemote) -> Path:
    return shared.folder / "v1" / "claims" / KEY[:2] / KEY


def test_one_holder_at_a_time(shared: FolderRemote) -> None:
    assert not shared.is_claimed(KEY)
    assert shared.claim(KEY, "one", 60)
    assert shared.is_claimed(KEY)
    assert not shared.claim(KEY, "two", 60)
    shared.release(KEY, "two")
    assert shared.is_claimed(KEY)
    assert shared.claim(KEY, "one", 60)
    shared.release(KEY, "one")
    assert not shared.is_claimed(KEY)
    assert shared.claim(KEY, "two", 60)


def test_the_same_holder_prolongs_its_claim(shared: FolderRemote) -> None:
    shared.claim(KEY, "one", 60)
    long_ago = time.time() - 50
    os.utime(claim_path(shared), (long_ago, long_ago))
    shared.claim(KEY, "one", 60)
    assert time.time() - claim_path(shared).stat().st_mtime < 20


def test_an_expired_claim_passes_on(shared: FolderRemote) -> None:
    assert shared.claim(KEY, "one", 0.1)
    assert not shared.claim(KEY, "two", 60)
    time.sleep(0.2)
    assert not shared.is_claimed(KEY)
    assert shared.claim(KEY, "two", 60)
    shared.release(KEY, "one")
    assert shared.is_claimed(KEY)
    assert list((shared.folder / "v1" / "new").iterdir()) == []


def test_age_is_judged_by_the_server_and_not_by_this_machine(
    shared: FolderRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.claim(KEY, "one", 60)
    for shift in (-1e6, 1e6):
        now = time.time
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda now=now, shift=shift: now() + shift)
            assert FolderRemote(shared.folder).is_claimed(KEY)


@pytest.mark.parametrize("text", [b"", b"rubbish", b"\xff\xfe\xfd"])
def test_a_claim_that_cannot_be_read_expires_too(
    shared: FolderRemote, text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_path(shared).parent.mkdir(parents=True)
    claim_path(shared).write_bytes(text)
    assert not shared.claim(KEY, "two", 60)
    monkeypatch.setattr(remote_folder, "_UNREADABLE_TTL_S", -1.0)
    assert shared.claim(KEY, "two", 60)


@pytest.mark.parametrize("ttl", ["inf", "nan", "-inf", "1e300", "-5", "0", "1" * 400, "121"])
def test_no_claim_counts_for_longer_than_ours(shared: FolderRemote, ttl: str) -> None:
    claim_path(shared).parent.mkdir(parents=True)
    claim_path(shared).write_text(f"{ttl} nobody")
    assert not shared.claim(KEY, "two", 60)
    long_ago = time.time() - CLAIM_TTL_S - 1
    os.utime(claim_path(shared), (long_ago, long_ago))
    assert not shared.is_claimed(KEY)
    assert shared.claim(KEY, "two", 60)


def test_a_claim_of_the_future_counts_for_nothing(shared: FolderRemote) -> None:
    assert shared.claim(KEY, "one", 60)
    far = time.time() + 1e6
    os.utime(claim_path(shared), (far, far))
    assert not shared.is_claimed(KEY)
    assert shared.claim(KEY, "two", 60)


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, math.inf, math.nan, CLAIM_TTL_S + 1])
def test_a_time_that_no_claim_may_have(shared: FolderRemote, ttl_s: float) -> None:
    with pytest.raises(InvalidValueError, match="above 0 and at most 120 s"):
        shared.claim(KEY, "one", ttl_s)
    assert not shared.is_claimed(KEY)


@pytest.mark.parametrize("what", ["dangling", "loop", "fifo", "device"])
@pytest.mark.parametrize("suffix", ["", ".takeover"])
def test_a_claim_that_is_no_file_stops_nobody(
    shared: FolderRemote, what: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither makes a thread spin or hang, nor is it followed; it expires like one that cannot be read."""
    claim_path(shared).parent.mkdir(parents=True)
    path = claim_path(shared).with_name(KEY + suffix)
    if suffix:
        shared.claim(KEY, "dead", 0.01)
        time.sleep(0.05)
    if what == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to({"dangling": "/nonexistent/x", "loop": path.name, "device": "/dev/zero"}[what])
    tiers_of = Tiers(Store(shared.folder.parent / "store"), shared)
    assert not tiers_of.claim(KEY)
    assert tiers_of.link.allows_calls, "the call came to an end"
    tiers_of.release(KEY)
    monkeypatch.setattr(remote_folder, "_UNREADABLE_TTL_S", -1.0)
    if suffix:
        assert not tiers_of.claim(KEY)
    assert tiers_of.claim(KEY)
    assert claim_path(shared).is_file()
    assert not claim_path(shared).is_symlink()


def test_a_machine_that_comes_late_takes_nothing_over(shared: FolderRemote) -> None:
    """Two machines find a claim expired; the slower one must not take away the claim of the faster."""
    shared.claim(KEY, "dead", 0.01)
    time.sleep(0.02)
    assert shared.claim(KEY, "fast", 60)
    assert not shared._take_over(claim_path(shared), "slow", "60 slow")
    assert shared.claim(KEY, "fast", 60)
    assert [path.name for path in claim_path(shared).parent.iterdir()] == [KEY]


def test_a_machine_that_dies_while_taking_over_stops_nobody(
    shared: FolderRemote,
) -> None:
    shared.claim(KEY, "dead", 0.01)
    time.sleep(0.02)
    right = claim_path(shared).with_name(f"{KEY}.takeover")
    right.write_text("60 dead too")
    assert not shared.claim(KEY, "two", 60)
    assert right.exists()
    long_ago = time.time() - 100
    os.utime(right, (long_ago, long_ago))
    assert not shared.claim(KEY, "two", 60)
    assert shared.claim(KEY, "two", 60)


def test_eight_processes_and_expired_claims(shared: FolderRemote, tmp_path: Path) -> None:
    keys = [key_of(number) for number in range(20)]
    for key in keys:
        shared.claim(key, "dead", 0.01)
    time.sleep(0.02)
    one_of_eight_wins_each(tmp_path, keys, lambda: FolderRemote(shared.folder))


def test_a_dead_holder_does_not_stop_the_others(
    shared: FolderRemote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "CLAIM_TTL_S", 0.5)
    holder, waiter = (Tiers(Store(tmp_path / name), shared) for name in ("holder", "waiter"))

    def die() -> None:
        assert holder.claim(KEY)
        (tmp_path / "claimed").touch()
        time.sleep(600)

    pid = forked(die)
    eventually((tmp_path / "claimed").exists)
    kill(pid)
    assert not waiter.claim(KEY)
    started = time.monotonic()
    assert waiter.wait_for(KEY, 60) is None
    assert time.monotonic() - started < 30
    assert waiter.claim(KEY)


def test_waiting_ends_with_the_entry_or_with_patience(shared: FolderRemote, tmp_path: Path) -> None:
    holder, waiter = (Tiers(Store(tmp_path / name / "store"), shared) for name in ("holder", "waiter"))
    assert holder.claim(KEY)
    started = time.monotonic()
    assert waiter.wait_for(KEY, 0.3) is None
    assert 0.3 <= time.monotonic() - started < 30

    def build() -> None:
        time.sleep(0.2)
        holder.publish(put(holder.local, KEY))

    pid = forked(build)
    assert waiter.wait_for(KEY, 30) is not None
    assert exit_code(pid) == 0
