"""Two users with one shared folder, and with one local store: real processes with user ids of their own."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stores import exit_code, forked, key_of, noticed, put, whole

from tilewright.base.errors import StoreError
from tilewright.building.store.local import Store
from tilewright.building.store.maintenance import remove_unused_entries, verify_entries
from tilewright.building.store.remote_folder import FolderRemote
from tilewright.building.store.tiers import Tiers

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

SEED = 36_2026
USERS, GROUP = (60_001, 60_002), 60_000
KEYS = [key_of(number) for number in range(4)]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that a group may write to, where all may go: a test's own is only for root."""
    root = Path(tempfile.mkdtemp(prefix="tilewright-users-"))
    root.chmod(0o755)
    for name, user in (("shared", 0), *((str(user), user) for user in USERS)):
        (root / name).mkdir()
        os.chown(root / name, user, GROUP)
    (root / "shared").chmod(0o2770)
    yield root
    shutil.rmtree(root)


def become(user: int, umask: int, work: Callable[[], object]) -> int:
    """Run `work` in a process of a user."""

    def work_as_user() -> object:
        os.setgroups([GROUP])
        os.setgid(GROUP)
        os.setuid(user)
        os.umask(umask)
        return work()

    return forked(work_as_user)


def make_code(key: str) -> bytes:
    return random.Random(key).randbytes(3000)


@pytest.mark.parametrize("steps", [40, pytest.param(2000, marks=pytest.mark.deep)])
def test_users_share_a_folder_whatever_their_umask_is(steps: int, shared: Path) -> None:
    """Both build, read, damage and remove shared kernels, and clean up their own stores."""
    pids = [
        become(user, umask, lambda user=user: _work(shared, user, steps))
        for user, umask in zip(USERS, (0o022, 0o077), strict=True)
    ]
    assert [exit_code(pid) for pid in pids] == [0, 0]
    for user in USERS:  # what one of them builds now, the other one takes
        for owner in (user, *USERS):
            assert exit_code(become(owner, 0o077, lambda u=user, o=owner: _pass_on(shared, u, o))) == 0
    assert list((shared / "shared" / "v1" / "new").iterdir()) == []


def _work(shared: Path, user: int, steps: int) -> None:
    chance = random.Random(f"{SEED} {user}")
    tiers = Tiers(Store(shared / str(user) / "store"), FolderRemote(shared / "shared"))
    counts: Counter[str] = Counter()
    with noticed() as messages:
        for _ in range(steps):
            key, what = chance.choice(KEYS), chance.choice(("build", "build", "read", "read", "damage", "remove", "gc"))
            blob = shared / "shared" / "v1" / "blobs" / key[:2] / key
            if what == "build" and tiers.claim(key):
                entry = tiers.find_entries([key]).get(key) or put(tiers.local, key, make_code(key))
                tiers.publish(entry)
                tiers.release(key)
            elif what == "read":
                counts["found"] += bool(tiers.find_entries([key]))
            elif what == "damage" and blob.exists():
                new = blob.with_name(f"{key}.{user}")  # in place only its owner may change it
                new.write_bytes(random.Random(key).randbytes(chance.randrange(3000)))
                new.chmod(0o660)
                new.replace(blob)
            elif what == "remove":
                blob.unlink(missing_ok=True)
            else:
                remove_unused_entries(tiers.local, max_bytes=0)
            assert tiers.local.get(key) is None or whole(tiers.local, key, make_code(key))
            counts[what] += 1
            tiers.rubbish.keys.clear()
    wrong = [message for message in messages if "serves an invalid blob" not in message]
    assert wrong == []
    assert verify_entries(tiers.local) == []
    assert counts["found"] > 0


def _pass_on(shared: Path, builder: int, user: int) -> bool:
    key = key_of(f"of {builder}")
    tiers = Tiers(Store(shared / str(user) / "store"), FolderRemote(shared / "shared"))
    if user == builder:
        assert tiers.claim(key)
        tiers.publish(put(tiers.local, key, make_code(key)))
        tiers.release(key)
    return set(tiers.find_entries([key])) == {key} and whole(tiers.local, key, make_code(key))


def test_the_store_of_another_user_is_our_error(shared: Path) -> None:
    first, second = USERS
    store = Store(shared / str(first) / "store")
    assert exit_code(become(first, 0o022, lambda: whole(store, put(store, KEYS[0], b"x").key, b"x"))) == 0
    (shared / str(first)).chmod(0o755)
    store.root.chmod(0o777)  # even if its owner lets all write

    def use() -> None:
        uses: list[Callable[[], object]] = [lambda: store.get(KEYS[0]), lambda: store.put_failure(KEYS[1], "log", {})]
        uses += [lambda: remove_unused_entries(store), lambda: verify_entries(store), lambda: store.remove(KEYS[0])]
        for each in uses:
            with pytest.raises(StoreError, match="Set TILEWRIGHT_STORE to a folder of your own"):
                each()

    assert exit_code(become(second, 0o022, use)) == 0


def test_the_store_of_root_is_read_by_all_and_written_by_none(shared: Path) -> None:
    store = Store(shared / "image")
    put(store, KEYS[0], b"x" * 100)
    put(store, KEYS[1], b"y" * 100)
    for path in (store.root, *store.root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (store.layout.entry_folder(KEYS[1]) / "kernel.so").write_bytes(b"damaged")

    def use() -> None:
        assert whole(store, KEYS[0], b"x" * 100)
        with noticed() as messages:
            assert store.get(KEYS[1]) is None
        assert "cannot be moved" in messages[0]
        assert [finding.key for finding in verify_entries(store)] == [KEYS[1]]
        uses: list[Callable[[], object]] = [
            lambda: store.put_failure(KEYS[2], "log", {}),
            lambda: store.remove(KEYS[0]),
        ]
        for each in (*uses, lambda: remove_unused_entries(store, max_bytes=0)):
            with pytest.raises(StoreError, match="Permission denied"):
                each()

    assert exit_code(become(USERS[0], 0o022, use)) == 0
    assert whole(store, KEYS[0], b"x" * 100)
