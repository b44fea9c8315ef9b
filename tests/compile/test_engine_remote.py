"""Machines that share a Redis server or a folder, and a server that dies, stops or serves rubbish."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from engine import all_load, answer, at_work_in, build, environment, eventually, heard, notices, scale, sound, start

from built_kernels import in_tier_ci
from redis_server import Server
from tilewright.base import knobs
from tilewright.building import builder as builder_module
from tilewright.building.builder import BuildResult
from tilewright.building.compile_job import PRODUCTS, make_compile_job
from tilewright.building.store import remote as blob_module
from tilewright.building.store import remote_folder
from tilewright.building.store import tiers as tiers_module
from tilewright.building.store.artifact import FileDigest
from tilewright.building.store.local import Store
from tilewright.building.store.manifest import ARTIFACT, FAILURE, LOG, Core, format_core
from tilewright.building.store.remote import open_remote
from tilewright.building.store.remote_folder import FolderRemote
from tilewright.building.store.tiers import Tiers
from tilewright.building.toolchain import find_toolchain

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("engine")]

FACTORS = list(range(1, 5 if in_tier_ci() else 7))
MACHINES = pytest.mark.parametrize("machine_count", [3, pytest.param(8, marks=pytest.mark.deep)])
# A remote that fails costs 0.5 to 2 s, once per process and half minute (docs/store.md).
REMOTE_COSTS_S = 5.0
Warm = Callable[[Path], Path]


def machines(
    ck: Path, tmp_path: Path, url: str, count: int, factors: list[int], warm: Warm
) -> list[subprocess.Popen[str]]:
    """Builds that begin together, each with a store of its own. One job each: there are many of them."""
    gate = tmp_path / "gate"
    processes = []
    for number in range(count):
        surroundings = environment(ck, warm(tmp_path / f"machine-{number}"), **{knobs.REMOTE.name: url})
        processes.append(start(surroundings, factors, jobs=1, gate=str(gate)))
    gate.touch()
    return processes


def all_named(found: dict[str, Any], factors: list[int]) -> bool:
    return [entry["name"] for entry in found["results"].values()] == [scale(factor).slug for factor in factors]


def _fleet(ck: Path, tmp_path: Path, url: str, machine_count: int, warm: Warm) -> None:
    answers = [answer(process) for process in machines(ck, tmp_path, url, machine_count, FACTORS, warm)]
    assert all(all_named(found, FACTORS) for found in answers)
    # Exactly: a claim is taken before the last look-up, and given up only after what was built is there. A claim ends
    # after 120 s without its machine, and none of these takes a third of that to claim again.
    assert sum(found["compiled"] for found in answers) == len(FACTORS)
    assert sum(found["device_steps"] for found in answers) == len(FACTORS)
    for number in range(machine_count):
        sound(tmp_path / f"machine-{number}")


@pytest.mark.deep  # CI has the fleet with a folder, and the claims of Redis in tests/building/test_store_redis.py
@pytest.mark.service
@MACHINES
def test_a_fleet_builds_each_kernel_once_through_redis(
    ck: Path, tmp_path: Path, server: Server, machine_count: int, warm: Warm
) -> None:
    _fleet(ck, tmp_path, server.url, machine_count, warm)


@MACHINES
def test_a_fleet_builds_each_kernel_once_through_a_folder(
    ck: Path, tmp_path: Path, machine_count: int, warm: Warm
) -> None:
    (tmp_path / "share").mkdir()
    _fleet(ck, tmp_path, f"folder:{tmp_path / 'share'}", machine_count, warm)
    left = [path for path in (tmp_path / "share" / "v1").rglob("*") if path.is_file() and "blobs" not in path.parts]
    assert left == [], "claims and drafts are given up"


def test_a_build_that_takes_longer_than_a_claim(tmp_path: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not built yet is claimed again, so the other machine waits instead of building it too."""
    for module in (tiers_module, builder_module):
        monkeypatch.setattr(module, "CLAIM_TTL_S", 3.0)
    monkeypatch.setattr(builder_module, "MOST_CLAIMED_PER_JOB", 12)
    built = _two_machines(tmp_path, range(4101, 4113), warm)
    assert built[0].wall_s > 4, "too fast to show anything"
    assert [one.compiled for one in built] == [12, 0]
    assert all_load(built[1])


def test_a_claim_that_says_it_never_ends(tmp_path: Path, shared_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_folder, "_UNREADABLE_TTL_S", 1.0)
    key = make_compile_job(scale(4301), find_toolchain()).key
    path = tmp_path / "share" / "v1" / "claims" / key[:2] / key
    path.parent.mkdir(parents=True)
    path.write_text("inf nobody:0:0")
    built = build(Tiers(Store(shared_store), FolderRemote(tmp_path / "share")), [4301])
    assert built.compiled == 1
    assert not path.exists()


def test_claims_that_are_renewed_for_ever(tmp_path: Path, shared_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that claims and never builds: the others wait for it once, not once per kernel, and then build."""
    monkeypatch.setattr(builder_module, "REMOTE_WAIT_S", 1.5)
    remote = FolderRemote(tmp_path / "share")
    remote.folder.mkdir()
    keys = [make_compile_job(scale(factor), find_toolchain()).key for factor in (4311, 4312, 4313)]
    over = threading.Event()

    def claim_all() -> None:
        while not over.wait(0.05):
            for key in keys:
                remote.claim(key, "nobody:0:0", 60)

    for key in keys:
        remote.claim(key, "nobody:0:0", 60)
    renewing = threading.Thread(target=claim_all)
    renewing.start()
    try:
        with heard() as listed:
            built = build(Tiers(Store(shared_store), FolderRemote(tmp_path / "share")), [4311, 4312, 4313])
    finally:
        over.set()
        renewing.join()
    assert built.compiled == 3
    assert built.wall_s > 1.5, "they were waited for"
    assert sum("3 kernels are claimed by other machines" in message for message in notices(listed)) == 1


@pytest.mark.parametrize("count", [10, pytest.param(16, marks=pytest.mark.deep)])
def test_machines_share_the_work(tmp_path: Path, warm: Warm, count: int) -> None:
    """A machine claims a few kernels at a time, so that another finds some to build."""
    built = _two_machines(tmp_path, range(4201, 4201 + count), warm)
    assert sum(one.compiled for one in built) == count
    assert min(one.compiled for one in built) >= count // 4
    assert all(all_load(one) for one in built)


def _two_machines(tmp_path: Path, factors: range, warm: Warm) -> list[BuildResult]:
    """What both built: the second begins when the first has shared a kernel."""
    (tmp_path / "share").mkdir()
    stores = [warm(tmp_path / "one"), warm(tmp_path / "two")]
    with ThreadPoolExecutor(2) as pool:
        remotes = [Tiers(Store(store), FolderRemote(tmp_path / "share")) for store in stores]
        first = pool.submit(build, remotes[0], factors, jobs=1)
        eventually(lambda: list((tmp_path / "share").glob("v1/blobs/*/*")))
        second = pool.submit(build, remotes[1], factors, jobs=1)
        return [job.result() for job in (first, second)]


@pytest.mark.service
@pytest.mark.parametrize("what", [signal.SIGSTOP, pytest.param(signal.SIGKILL, marks=pytest.mark.deep)])
def test_a_server_that_goes_in_the_middle(
    ck: Path, tmp_path: Path, server: Server, what: signal.Signals, warm: Warm
) -> None:
    processes = machines(ck, tmp_path, server.url, 2, FACTORS, warm)
    eventually(lambda: list(tmp_path.glob("machine-*/v1/entries/*/*/kernel.so")), 60)
    server.process.send_signal(what)
    try:
        answers = [answer(process) for process in processes]
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert all(all_named(found, FACTORS) for found in answers)
    assert any("does not work" in message for found in answers for message in found["notices"])
    alone = answer(start(environment(ck, warm(tmp_path / "alone")), FACTORS, jobs=1))
    for number, found in enumerate(answers):
        # Both machines now compile all of it at once, on the cores that `alone` has to itself.
        assert found["wall_s"] < 4 * alone["wall_s"] + REMOTE_COSTS_S
        sound(tmp_path / f"machine-{number}")


@pytest.mark.service
def test_a_server_that_is_stopped_from_the_start(shared_store: Path, server: Server) -> None:
    usual = build(shared_store, [4000, 4001])
    server.process.send_signal(signal.SIGSTOP)
    try:
        with heard() as listed:
            built = build(Tiers(Store(shared_store), open_remote(server.url)), [4002, 4003])
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert built.compiled == 2
    assert all_load(built)
    assert built.wall_s < 3 * usual.wall_s + REMOTE_COSTS_S
    assert len(notices(listed)) == 1


def _rubbish(tmp_path: Path, remote: Any, store: Path, factors: list[int]) -> None:
    keys = [make_compile_job(scale(factor), find_toolchain()).key for factor in factors]
    for key, blob in zip(keys, (b"rubbish", b"\0" * 5000, b"TWENTRY1" + b"\xff" * 300), strict=True):
        remote.push(key, blob)
    with heard() as listed:
        built = build(Tiers(Store(store), remote), factors)
    assert built.compiled == len(factors)
    assert all_load(built)
    assert sum("serves an invalid blob" in message for message in notices(listed)) == len(factors)
    other = build(Tiers(Store(tmp_path / "other"), remote), factors)
    assert other.compiled == 0, "the rubbish was replaced"
    assert all_load(other)


@pytest.mark.service
def test_a_server_with_rubbish(tmp_path: Path, shared_store: Path, server: Server) -> None:
    _rubbish(tmp_path, open_remote(server.url), shared_store, [4010, 4011, 4012])


@pytest.mark.deep  # CI has the same with a server
def test_a_folder_with_rubbish(tmp_path: Path, shared_store: Path) -> None:
    (tmp_path / "share").mkdir()
    _rubbish(tmp_path, FolderRemote(tmp_path / "share"), shared_store, [4020, 4021, 4022])


def _forged(key: str, facts: dict[str, Any], files: dict[str, bytes], kind: str = ARTIFACT) -> bytes:
    """A blob with every digest right, as anybody who may write to the remote can make one."""
    core = Core(key, kind, {n: FileDigest(len(c), blob_module._compute_digest(c)) for n, c in files.items()}, facts)
    text = format_core(core).encode()
    body = blob_module._HEAD.pack(blob_module.MAGIC, 0, len(text)) + text + b"".join(files[n] for n in sorted(files))
    return body + blob_module._compute_seal(key, body)


def test_entries_of_another_make_are_built_again(tmp_path: Path, shared_store: Path) -> None:
    """Their digests are right, but they are not what a build of this kernel makes."""
    remote = FolderRemote(tmp_path / "share")
    remote.folder.mkdir()
    slug = [scale(factor).slug for factor in range(4320, 4325)]
    keys = [make_compile_job(scale(factor), find_toolchain()).key for factor in range(4320, 4325)]
    products = dict.fromkeys(PRODUCTS, b"x")
    for key, blob in zip(
        keys,
        (
            _forged(keys[0], {}, products),
            _forged(keys[1], {"slug": slug[1], "resources": []}, {"a": b"x"}),
            _forged(keys[2], {"slug": slug[2], "resources": [5]}, products),
            _forged(keys[3], {"slug": slug[0], "resources": []}, products),
            _forged(keys[4], {"slug": slug[4], "errors": 7}, {LOG: b"no"}, FAILURE),
        ),
        strict=True,
    ):
        remote.push(key, blob)
    with heard() as listed:
        built = build(Tiers(Store(shared_store), remote), range(4320, 4325))
    assert built.compiled == 5
    assert all_load(built)
    assert sum("is not used: it" in message for message in notices(listed)) == 5
    assert build(Tiers(Store(tmp_path / "other"), remote), range(4320, 4325)).compiled == 0


def test_failures_travel_and_what_the_machine_caused_does_not(tmp_path: Path, shared_store: Path, warm: Warm) -> None:
    (tmp_path / "share").mkdir()
    remote = FolderRemote(tmp_path / "share")
    first = build(Tiers(Store(warm(tmp_path / "one")), remote), [666, 4030], limit_s=60)
    assert (len(first.failures), first.compiled) == (1, 1)
    timed_out = build(Tiers(Store(tmp_path / "one"), remote), [4031], limit_s=0.02)
    assert len(timed_out.failures) == 1
    second = build(Tiers(Store(shared_store), remote), [666, 4030, 4031])
    assert second.compiled == 1
    assert [failure.log for failure in second.failures.values()] == [failure.log for failure in first.failures.values()]
    assert at_work_in(tmp_path / "one") == []


def test_what_travels_names_no_folder_of_its_machine(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    build(Tiers(Store(tmp_path / "one"), FolderRemote(tmp_path / "share")), [4040, 666])
    blobs = [path for path in (tmp_path / "share" / "v1" / "blobs").rglob("*") if path.is_file()]
    assert len(blobs) == 2, "precompiled headers stay at home"
    assert all(str(tmp_path).encode() not in blob.read_bytes() for blob in blobs)
