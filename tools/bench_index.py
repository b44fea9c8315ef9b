"""Measure a signed index on loopback: requests, bytes and time of a hit for many clients, and a million keys.

    python tools/bench_index.py            # 20,000 keys and 200 clients of nginx (a minute), then a million keys
    python tools/bench_index.py --server python --keys 500 --clients 8 --million 20000

Each client has its own copy of the index and its own store. It begins cold, and then looks up kernels of 200 KB at
random, with a random pause between two: clients compile or compute in the meantime. Times are of `Tiers.find_entries`
without the local store: bin, request, digest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuf.api.metadata import TargetFile

from tilewright.base.digest import digest_text
from tilewright.building.index.keys import create_private_key
from tilewright.building.index.publish import publish_targets, sign_timestamp, write_blob, write_root
from tilewright.building.index.remote_index import RECHECK_S, IndexRemote
from tilewright.building.index.transport import AbsentError, Fetcher, parse_address
from tilewright.building.index.trusted import TrustedIndex, get_blob_path

BLOB_BYTES = 200_000  # a usual kernel
KERNELS = 10  # different kernels that a client needs
LARGE_EVERY = 20  # one blob of 20 has that size; the others are small, to save disk space
NGINX = """
{user} daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  sendfile on; keepalive_requests 100000;
  server {{ listen 127.0.0.1:{port}; root {site}; }} }}
"""


@dataclass(frozen=True)
class Site:
    """A published index with synthetic blobs."""

    folder: Path
    root: bytes
    large: Sequence[str]


@dataclass(frozen=True)
class ClientResult:
    """The cost of one client: its first hit from an empty copy, and later hits."""

    cold_requests: int
    cold_bytes: int
    cold_s: float
    hits_s: Sequence[float]
    requests: int


def publish(root: Path, keys: int) -> Site:
    """Publish synthetic blobs under `keys` keys."""
    folder = root / "site"
    targets, large = [], []
    rng = random.Random(1)
    for number in range(keys):
        key = digest_text(f"bench {number}")
        blob = rng.randbytes(BLOB_BYTES if number % LARGE_EVERY == 0 else 500)
        targets.append(write_blob(folder, get_blob_path(key), blob))
        if number % LARGE_EVERY == 0:
            large.append(key)
    key_file = create_private_key(root / "key")
    pinned = write_root(folder, *([key_file.public_key],) * 3, 1, [key_file], 365)
    publish_targets(folder, targets, key_file, 90)
    sign_timestamp(folder, key_file, 14)
    return Site(folder, pinned.read_bytes(), large)


@contextlib.contextmanager
def serve(site: Site, root: Path, kind: str) -> Iterator[str]:
    """Serve a site from a process of its own; yields its address."""
    if kind == "nginx":
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        port = random.randrange(20000, 30000)
        user = "user root;" if os.geteuid() == 0 else ""  # otherwise its worker could not read the folder
        config = root / "nginx.conf"
        config.write_text(NGINX.format(user=user, folder=root, port=port, site=site.folder), encoding="utf-8")
        command = [program, "-c", str(config)]
    else:
        port = 0
        command = [sys.executable, "-m", "tilewright", "index", "serve", str(site.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if kind == "nginx":
                time.sleep(1.0)
                yield f"http://127.0.0.1:{port}/"
            else:
                assert process.stdout is not None
                yield process.stdout.readline().strip()
        finally:
            process.terminate()


def run_client(site: Site, url: str, folder: Path, hits: int, pause_s: float, start: threading.Barrier) -> ClientResult:
    """Run one client: a cold hit, then `hits` warm ones."""
    fetcher = Fetcher(parse_address(url))
    remote = IndexRemote(url, TrustedIndex(site.root, folder, fetcher, RECHECK_S), fetcher)
    rng = random.Random(str(folder))
    start.wait()
    time.sleep(rng.uniform(0, 2 * pause_s))
    wanted = rng.sample(site.large, min(KERNELS, len(site.large)))
    cold = _time_hit(remote, wanted[0])
    first = (remote.fetcher.requests, remote.fetcher.received)
    remote.get_sizes(wanted)  # from here on, the copy has the bins
    start.wait()
    before = remote.fetcher.requests
    times = []
    for _ in range(hits):
        time.sleep(rng.uniform(0, 2 * pause_s))
        times.append(_time_hit(remote, rng.choice(wanted)))
    requests = remote.fetcher.requests - before
    remote.abandon()
    return ClientResult(*first, cold, times, requests)


def _time_hit(remote: IndexRemote, key: str) -> float:
    started = time.perf_counter()
    found = remote.fetch(remote.get_sizes([key]))
    taken = time.perf_counter() - started
    if len(found.get(key, b"")) != BLOB_BYTES:
        raise SystemExit(f"{key} was not found")
    return taken


def measure_clients(root: Path, keys: int, clients: int, hits: int, pause_s: float, server: str) -> dict[str, float]:
    """Measure many clients at once, in threads of this process."""
    site = publish(root, keys)
    results: list[ClientResult] = []
    with serve(site, root, server) as url:
        start = threading.Barrier(clients)

        def run(number: int) -> None:
            results.append(run_client(site, url, root / f"client-{number}", hits, pause_s, start))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if len(results) != clients:
        raise SystemExit(f"{clients - len(results)} of {clients} clients failed")
    times = sorted(value for result in results for value in result.hits_s)
    return {
        "clients": clients,
        "keys": keys,
        "cold_requests": statistics.mean(result.cold_requests for result in results),
        "cold_bytes": statistics.mean(result.cold_bytes for result in results),
        "cold_p50_ms": 1e3 * statistics.median(result.cold_s for result in results),
        "hits": len(times),
        "requests_per_hit": sum(result.requests for result in results) / len(times),
        "hit_p50_ms": 1e3 * times[len(times) // 2],
        "hit_p99_ms": 1e3 * times[int(len(times) * 0.99)],
    }


class FolderTransport:
    """A site as a host, with the bytes that it sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.received = 0

    def get(self, name: str, most: int, *, exact: bool = False) -> bytes:  # noqa: ARG002  (of the protocol)
        if not (self.folder / name).exists():
            raise AbsentError(name)
        raw = (self.folder / name).read_bytes()
        self.received += len(raw)
        return raw


def measure_table(count: int) -> dict[str, float]:
    """Measure an index with many keys: publishing it, adding to it, and look-ups."""
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as name:
        root = Path(name)
        folder = root / "site"
        key = create_private_key(root / "key")
        pinned = write_root(folder, *([key.public_key],) * 3, 1, [key], 365).read_bytes()
        started = time.process_time()
        first = publish_targets(folder, [make_target(number) for number in range(count)], key, 90)
        published_s = time.process_time() - started
        started = time.process_time()
        second = publish_targets(folder, [make_target(count + n) for n in range(100)], key, 90)
        added_s = time.process_time() - started
        publisher_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sign_timestamp(folder, key, 14)
        metadata = folder / "metadata"
        return {
            "keys": count,
            "publish_cpu_s": published_s,
            "bins": first.bins,
            "add_100_cpu_s": added_s,
            "bins_signed_again": second.signed,
            "publisher_peak_mib": publisher_peak,
            "snapshot_bytes": (metadata / "2.snapshot.json").stat().st_size,
            "largest_bin_bytes": max(path.stat().st_size for path in metadata.glob("1.bin-*.json")),
            "all_bins_bytes": sum(path.stat().st_size for path in metadata.glob("1.bin-*.json")),
            **measure_look_ups(folder, pinned, root / "copy", count),
        }


def make_target(number: int) -> TargetFile:
    return TargetFile(BLOB_BYTES, {"sha256": f"{number:064x}"}, get_blob_path(digest_text(f"key {number}")))


def measure_look_ups(folder: Path, pinned: bytes, copy: Path, count: int) -> dict[str, float]:
    """The first look-up of a machine, that of its next process, and later ones."""
    keys = [digest_text(f"key {number}") for number in range(0, count, max(1, count // 200))]
    transport = FolderTransport(folder)

    def time_look_up(index: TrustedIndex, wanted: Sequence[str]) -> float:
        started = time.process_time()
        if len(index.find(wanted)) != len(wanted):
            raise SystemExit("a key was not found")
        return time.process_time() - started

    results = {"cold_cpu_ms": 1e3 * time_look_up(TrustedIndex(pinned, copy, transport, RECHECK_S), keys[:1])}
    results["cold_bytes"] = transport.received
    warm = TrustedIndex(pinned, copy, transport, RECHECK_S)
    results["next_process_cpu_ms"] = 1e3 * time_look_up(warm, keys[:1])
    results["lookup_in_new_bin_ms"] = 1e3 * time_look_up(warm, keys[1:]) / len(keys[1:])
    results["lookup_in_same_bin_us"] = 1e6 * time_look_up(warm, keys[-50:]) / 50
    tracemalloc.start()
    TrustedIndex(pinned, copy, transport, RECHECK_S).find(keys[:1])
    results["client_peak_kib"] = tracemalloc.get_traced_memory()[1] / 1024
    tracemalloc.stop()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--hits", type=int, default=20, help="warm look-ups per client")
    parser.add_argument("--pause", type=float, default=1.0, help="mean pause of a client between two look-ups, in s")
    parser.add_argument("--server", choices=("nginx", "python"), default="nginx")
    parser.add_argument(
        "--million", type=int, default=1_000_000, help="keys of the large table; alone with --clients 0"
    )
    options = parser.parse_args()
    if not options.clients:
        print(json.dumps(measure_table(options.million), indent=1))
        return
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        root = Path(folder)
        clients = measure_clients(root, options.keys, options.clients, options.hits, options.pause, options.server)
    print(json.dumps({"server": options.server, **clients}, indent=1))
    print(json.dumps(measure_table(options.million), indent=1))


if __name__ == "__main__":
    main()
