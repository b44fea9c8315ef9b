"""A real Redis server behind the local store: shared entries, claims, and a server that is slow, gone or lies."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import redis
from stores import (
    CODE,
    build_every_key_once,
    eventually,
    exit_code,
    forked,
    key_of,
    kill,
    noticed,
    one_of_eight_wins_each,
    put,
)

from redis_server import Server
from tilewright.base.errors import RemoteError
from tilewright.building.store import tiers as tiers_module
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.store.remote import MAX_BLOB_BYTES, OPERATION_TIMEOUT_S, open_remote, pack_entry
from tilewright.building.store.remote_redis import RedisRemote
from tilewright.building.store.tiers import CircuitBreaker, Tiers

pytestmark = pytest.mark.service

KEY, OTHER = key_of(1), key_of(2)


def remote_at(server: Server, options: str = "") -> RedisRemote:
    remote = open_remote(server.url + options)
    assert isinstance(remote, RedisRemote)
    return remote


def client_of(server: Server) -> redis.Redis:
    """Another client, of people who know the server better than we do."""
    return redis.Redis(port=server.port)


def machine(tmp_path: Path, server: Server, name: str, secret: bytes | None = None) -> Tiers:
    return Tiers(Store(tmp_path / name / "store"), remote_at(server), secret)


def test_what_one_machine_builds_another_has(tmp_path: Path, server: Server) -> None:
    one, two = machine(tmp_path, server, "one"), machine(tmp_path, server, "two")
    one.publish(put(one.local, KEY))
    one.publish(one.local.put_failure(OTHER, "no", {}))
    found = two.find_entries([KEY, OTHER, key_of(3)])
    assert set(found) == {KEY, OTHER}
    taken = found[KEY]
    assert isinstance(taken, Artifact)
    assert taken.verify_file("kernel.so").read_bytes() == CODE


def test_many_keys(tmp_path: Path, server: Server) -> None:
    one, two = machine(tmp_path, server, "one"), machine(tmp_path, server, "two")
    keys = [key_of(number) for number in range(150)]
    for key in keys:
        one.publish(one.local.put_failure(key, "x" * 100, {}))
    assert set(two.find_entries([*keys, *(key_of(f"absent {n}") for n in range(2000))])) == set(keys)


def test_entries_can_expire(server: Server) -> None:
    remote = remote_at(server, "?ttl_s=1000")
    remote.push(KEY, b"x")
    left = client_of(server).ttl(f"tilewright:v1:blob:{KEY}")
    assert 900 < int(left) <= 1000  # type: ignore[arg-type]
    remote_at(server).push(KEY, b"x")
    assert client_of(server).ttl(f"tilewright:v1:blob:{KEY}") == -1


@pytest.mark.parametrize("rubbish", [b"garbage", b"\0" * 100_000, b"TWENTRY1" + b"\xff" * 100])
def test_rubbish_counts_as_absent(tmp_path: Path, server: Server, rubbish: bytes) -> None:
    tiers = machine(tmp_path, server, "one")
    client_of(server).set(f"tilewright:v1:blob:{KEY}", rubbish)
    with noticed() as messages:
        assert tiers.find_entries([KEY]) == {}
    assert len(messages) == 1
    assert KEY in messages[0]
    tiers.publish(put(tiers.local, KEY))
    assert set(machine(tmp_path, server, "two").find_entries([KEY])) == {KEY}


def test_a_value_over_the_limit_is_never_fetched(tmp_path: Path, server: Server) -> None:
    tiers = machine(tmp_path, server, "one")
    client_of(server).setrange(f"tilewright:v1:blob:{KEY}", MAX_BLOB_BYTES + 10, b"x")
    with noticed() as messages:
        assert tiers.find_entries([KEY]) == {}
    assert "is the limit" in messages[0]
    assert remote_at(server).fetch({KEY: 100}) == {}


def test_a_value_of_another_type_is_an_outage_not_a_crash(tmp_path: Path, server: Server) -> None:
    tiers = machine(tmp_path, server, "one")
    client_of(server).rpush(f"tilewright:v1:blob:{KEY}", "a list")
    with noticed() as messages:
        assert tiers.find_entries([KEY]) == {}
    assert "WRONGTYPE" in messages[0]


def test_signatures(tmp_path: Path, server: Server) -> None:
    ours, theirs = b"o" * 32, b"t" * 32
    builder = machine(tmp_path, server, "builder", ours)
    entry = put(builder.local, KEY)
    remote = remote_at(server)
    for blob, secret, taken in (
        (pack_entry(entry, ours), ours, True),
        (pack_entry(entry, theirs), ours, False),
        (pack_entry(entry), ours, False),
        (pack_entry(entry), None, True),
    ):
        remote.push(KEY, blob)
        reader = machine(tmp_path, server, f"reader-{time.monotonic_ns()}", secret)
        assert (KEY in reader.find_entries([KEY])) == taken
        assert bool(reader.rubbish.keys) != taken


def test_a_server_that_is_stopped_costs_a_bounded_delay(tmp_path: Path, server: Server) -> None:
    tiers = machine(tmp_path, server, "one")
    put(tiers.local, KEY)
    tiers.find_entries([OTHER])
    server.process.send_signal(signal.SIGSTOP)
    try:
        started = time.monotonic()
        with noticed() as messages:
            assert set(tiers.find_entries([KEY, OTHER])) == {KEY}
            first = time.monotonic() - started
            for number in range(20):
                assert tiers.find_entries([key_of(number + 10)]) == {}
                assert tiers.claim(key_of(number + 10))
            tiers.publish(put(tiers.local, OTHER))
        # One call waited. Each of the 41 calls after it would wait as long; a busy machine costs some seconds.
        assert first < 2 * OPERATION_TIMEOUT_S
        assert time.monotonic() - started < first + 5 * OPERATION_TIMEOUT_S
        assert len(messages) == 1
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_a_server_that_was_killed_and_comes_back(tmp_path: Path, server: Server) -> None:
    tiers = Tiers(Store(tmp_path / "one" / "store"), remote_at(server), link=CircuitBreaker(pause_s=0.2))
    entry = put(tiers.local, KEY)
    tiers.publish(entry)
    server.process.kill()
    server.process.wait()
    started = time.monotonic()
    with noticed() as messages:
        assert tiers.find_entries([OTHER]) == {}
        tiers.publish(entry)
        assert tiers.claim(OTHER)
        assert tiers.wait_for(OTHER, 60) is None
    assert time.monotonic() - started < 30  # half of the wait that was allowed
    assert messages[0].startswith(f"the shared store redis://127.0.0.1:{server.port}/0 does not work")
    command = [str(word) for word in server.process.args]  # type: ignore[union-attr]
    server.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        eventually(server.answers)
        eventually(lambda: tiers.link.allows_calls)
        tiers.publish(entry)
        assert set(machine(tmp_path, server, "two").find_entries([KEY])) == {KEY}
    finally:
        server.process.kill()
        server.process.wait()


def test_an_address_that_swallows_packets(tmp_path: Path) -> None:
    """198.51.100.0/24 is for documentation (RFC 5737): nobody answers, or the network refuses at once."""
    tiers = Tiers(Store(tmp_path / "store"), open_remote("redis://198.51.100.1:6379/0"))
    started = time.monotonic()
    with noticed() as messages:
        assert tiers.find_entries([KEY]) == {}
    assert time.monotonic() - started < 10  # Linux gives up after more than two minutes
    assert len(messages) == 1


def test_a_password_is_never_told(tmp_path: Path, server: Server) -> None:
    remote = open_remote(f"redis://user:hunter2@127.0.0.1:{server.port}/0")
    tiers = Tiers(Store(tmp_path / "store"), remote)
    with noticed() as messages:
        assert tiers.find_entries([KEY]) == {}
    assert "hunter2" not in " ".join([remote.describe(), repr(remote), *messages])


def test_claims_have_one_holder_and_expire(server: Server) -> None:
    remote = remote_at(server)
    assert remote.claim(KEY, "one", 0.3)
    assert remote.claim(KEY, "one", 0.3)
    assert not remote.claim(KEY, "two", 60)
    remote.release(KEY, "two")
    assert remote.is_claimed(KEY)
    time.sleep(0.4)
    assert not remote.is_claimed(KEY)
    assert remote.claim(KEY, "two", 60)
    remote.release(KEY, "one")
    assert remote.is_claimed(KEY)
    remote.release(KEY, "two")
    assert not remote.is_claimed(KEY)


@pytest.mark.parametrize("limit_ms", [None, 10**12])
def test_a_claim_without_an_end_counts_for_nothing(server: Server, limit_ms: int | None) -> None:
    remote = remote_at(server)
    client_of(server).set(f"tilewright:v1:claim:{KEY}", "nobody", px=limit_ms)
    assert not remote.is_claimed(KEY)
    assert remote.claim(KEY, "one", 60)
    assert not remote.claim(KEY, "two", 60)
    assert remote.is_claimed(KEY)


def test_a_connection_that_the_server_closed_is_made_again(tmp_path: Path, server: Server) -> None:
    tiers = machine(tmp_path, server, "one")
    with noticed() as messages:
        assert tiers.claim(KEY)
        client_of(server).execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        eventually(tiers.remote.connections._idle[0].is_stale)  # type: ignore[union-attr]
        assert not machine(tmp_path, server, "two").claim(KEY)
        assert tiers.claim(KEY)
    assert messages == []


def test_users_passwords_and_databases(server: Server) -> None:
    people = client_of(server)
    people.execute_command("ACL", "SETUSER", "ann", "on", ">hunter2", "~*", "+@all")
    people.config_set("requirepass", "secret word")
    url = f"127.0.0.1:{server.port}"
    for credentials, database in (("ann:hunter2@", 3), (":secret%20word@", 0)):
        remote = open_remote(f"redis://{credentials}{url}/{database}")
        remote.push(KEY, b"x" * 3_000_000)
        assert remote.get_sizes([KEY, OTHER]) == {KEY: 3_000_000}
        assert remote.fetch({KEY: 3_000_000}) == {KEY: b"x" * 3_000_000}
    for credentials in ("", "ann:wrong@", ":wrong@"):
        with pytest.raises(RemoteError) as caught:
            open_remote(f"redis://{credentials}{url}/0").get_sizes([KEY])
        assert "wrong" not in str(caught.value)


def test_eight_processes_claim_the_same_keys(tmp_path: Path, server: Server) -> None:
    keys = [key_of(number) for number in range(20)]
    build_every_key_once(tmp_path, keys, lambda name: machine(tmp_path, server, name))


def test_exactly_one_of_eight_wins_each_key(tmp_path: Path, server: Server) -> None:
    keys = [key_of(number) for number in range(50)]
    one_of_eight_wins_each(tmp_path, keys, lambda: remote_at(server))


def test_a_dead_holder_does_not_stop_the_others(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers_module, "CLAIM_TTL_S", 0.7)

    def die() -> None:
        assert machine(tmp_path, server, "holder").claim(KEY)
        (tmp_path / "claimed").touch()
        time.sleep(600)

    pid = forked(die)
    eventually((tmp_path / "claimed").exists)
    kill(pid)
    waiter = machine(tmp_path, server, "waiter")
    assert not waiter.claim(KEY)
    started = time.monotonic()
    assert waiter.wait_for(KEY, 60) is None
    assert time.monotonic() - started < 30
    assert waiter.claim(KEY)


def test_a_fork_has_connections_and_a_name_of_its_own(tmp_path: Path, server: Server) -> None:
    tiers = machine(tmp_path, server, "one")
    holder = tiers.holder
    tiers.publish(put(tiers.local, KEY))

    def work() -> bool:
        tiers.local.remove(KEY)
        return tiers.holder != holder and KEY in tiers.find_entries([KEY])

    assert exit_code(forked(work)) == 0
    assert tiers.claim(OTHER)
    assert os.getpid() == int(holder.split(":")[1])
