"""Of each task one process is at work: shards of two counts have tasks in common, and are not swept at once."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from tilewright.base.errors import JournalError
from tilewright.bench.plan import Shard
from tilewright.bench.sweep_file import COUNT, lock_shard


def test_shards_of_one_count_are_swept_at_once(tmp_path: Path) -> None:
    refused = pytest.raises(JournalError, match="another process is sweeping shard 2/2")
    with (
        lock_shard(tmp_path, Shard(1, 2)),
        lock_shard(tmp_path, Shard(2, 2)),
        refused,
        lock_shard(tmp_path, Shard(2, 2)),
    ):
        pass


@pytest.mark.parametrize(("now", "then"), [((1, 1), (1, 2)), ((1, 2), (1, 1)), ((3, 3), (2, 4))])
def test_another_count_is_refused_while_one_is_swept(
    tmp_path: Path, now: tuple[int, int], then: tuple[int, int]
) -> None:
    with lock_shard(tmp_path, Shard(*now)):
        said = rf"is sweeping shards I/{now[1]} into .* which have tasks in common with shard {then[0]}/{then[1]}"
        with pytest.raises(JournalError, match=said), lock_shard(tmp_path, Shard(*then)):
            pass
        other = Shard(1 + now[0] % now[1], now[1])
        if other != Shard(*now):
            with lock_shard(tmp_path, other):
                pass
    with lock_shard(tmp_path, Shard(*then)):
        pass


def test_what_a_process_that_died_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / COUNT).write_bytes(b"\xff 7 shards and more, much more than a number")
    with lock_shard(tmp_path, Shard(1, 2)):
        assert (tmp_path / COUNT).read_text() == "2\n"


def test_of_many_that_begin_at_once_all_inside_are_of_one_count(tmp_path: Path) -> None:
    """Each holds the lock until all have tried, so whoever is inside is there together with all others inside."""
    inside: list[int] = []
    tried = threading.Barrier(12)
    start = threading.Barrier(12)

    def begin(count: int, number: int) -> None:
        start.wait()
        try:
            with lock_shard(tmp_path, Shard(number, count)):
                inside.append(count)
                tried.wait()
        except JournalError:
            tried.wait()

    for _ in range(20):
        inside.clear()
        threads = [
            threading.Thread(target=begin, args=(count, number))
            for count, number in itertools.product((4, 5, 6), (1, 2, 3, 4))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(inside)) == 1


def test_a_folder_that_cannot_be_locked_is_told(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be written"), lock_shard(tmp_path / "none", Shard(1, 1)):
        pass
