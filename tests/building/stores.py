"""What the tests of the store share: keys, stores with content, and processes that can be killed."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewright.base import events
from tilewright.base.digest import digest_text
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.store.remote import Remote
from tilewright.building.store.tiers import Tiers

CODE = bytes(range(256)) * 800  # about 200 KB, as a kernel's shared object


def key_of(number: int | str) -> str:
    return digest_text(f"test {number}")


def put(store: Store, key: str, code: bytes = CODE, **facts: Any) -> Artifact:
    """An artifact of two files, from files outside of the store."""
    store.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    source = store.root.parent / f"source-{os.getpid()}-{key[:8]}"
    source.write_bytes(code)
    try:
        return store.put(key, {"kernel.so": source, "kernel.hpp": source}, {"slug": "gemm-x", **facts})
    finally:
        source.unlink()


def whole(store: Store, key: str, code: bytes = CODE) -> bool:
    """Whether the entry is there with exactly this content."""
    found = store.get(key)
    return isinstance(found, Artifact) and all(found.verify_file(name).read_bytes() == code for name in found.files)


@contextmanager
def noticed() -> Iterator[list[str]]:
    """The messages that are noticed inside the block."""
    messages: list[str] = []

    def listen(event: events.Event) -> None:
        if isinstance(event, events.Notice):
            messages.append(event.message)

    with events.add_listener(listen):
        yield messages


_running: set[int] = set()


@atexit.register
def _end_all() -> None:
    """A test that failed must leave no process behind."""
    for pid in list(_running):
        kill(pid)


def forked(work: Callable[[], Any]) -> int:
    """Run `work` in another process; its id. Exit code 0 means that it returned something true or None."""
    pid = os.fork()
    if pid:
        _running.add(pid)
        return pid
    try:
        answer = work()
        os._exit(0 if answer is None or answer else 3)
    except BaseException:
        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(1)


def exit_code(pid: int) -> int:
    _, status = os.waitpid(pid, 0)
    _running.discard(pid)
    return os.waitstatus_to_exitcode(status)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    _running.discard(pid)


def eventually(true: Callable[[], Any], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.005)


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def eight_at_once(work: Callable[[int], Any]) -> None:
    """Run `work` in eight processes; each must end well."""
    pids = [forked(lambda number=number: work(number)) for number in range(8)]  # type: ignore[misc]
    assert [exit_code(pid) for pid in pids] == [0] * 8


def build_every_key_once(folder: Path, keys: Sequence[str], machine: Callable[[str], Tiers]) -> None:
    """Eight machines want all keys at once: each key is built by one of them, and all machines have all of them."""

    def work(number: int) -> bool:
        tiers = machine(f"machine-{number}")
        for key in keys:
            if tiers.claim(key):
                if tiers.find_entries([key]) == {}:
                    (folder / f"built-{key}-{number}").touch()
                    tiers.publish(put(tiers.local, key, b"x" * 100))
                tiers.release(key)
            else:
                assert tiers.wait_for(key, 30) is not None
        return all(whole(tiers.local, key, b"x" * 100) for key in keys)

    eight_at_once(work)
    assert len(list(folder.glob("built-*"))) == len(keys)


def one_of_eight_wins_each(folder: Path, keys: Sequence[str], connect: Callable[[], Remote]) -> None:
    """Eight processes claim all keys at once: each key goes to exactly one."""

    def work(number: int) -> None:
        remote = connect()
        for key in keys:
            if remote.claim(key, f"holder {number}", 60):
                (folder / f"won-{key}-{number}").touch()

    eight_at_once(work)
    assert len(list(folder.glob("won-*"))) == len(keys)
