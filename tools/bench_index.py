"""Measure a signed index on loopback: requests, bytes and time of a hit for many clients, and a million keys.

    python tools/bench_index.py            # 20,000 keys and 200 clients of nginx (a minute), then a million keys
    python tools/bench_index.py --server python --keys 500 --clients 8 --million 20000

Each client has its own copy of the index and its own store. It begins cold, and then looks up kernels of 200 KB at
random, with a random pause between two: clients compile or compute in the meantime. Times are of `Tiers.find_entries`
without the local store: index, shard, request, digest.
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

from tilewright.base.digest import digest_text
from tilewright.building.index.local_copy import LocalCopy
from tilewright.building.index.publish import sign_index, write_keys, write_table
from tilewright.building.index.remote_index import BLOBS, IndexRemote
from tilewright.building.index.shards import BlobRecord, find_record, hash_bytes, make_shards
from tilewright.building.index.signing import PrivateKey, create_private_key, sign_payload
from tilewright.building.index.transport import Fetcher, parse_address
from tilewright.building.index.trust import FORMAT, INDEX, Known, TrustedKeys, verify_index

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
    pin: str
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
    records, large = [], []
    rng = random.Random(1)
    for number in range(keys):
        key = digest_text(f"bench {number}")
        blob = rng.randbytes(BLOB_BYTES if number % LARGE_EVERY == 0 else 500)
        path = folder / BLOBS / key[:2] / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob)
        records.append(BlobRecord(key, len(blob), hash_bytes(blob)))
        if number % LARGE_EVERY == 0:
            large.append(key)
    write_table(folder, records)
    root_key, index_key = create_private_key(root / "root.key"), create_private_key(root / "index.key")
    write_keys(folder, "bench", [root_key.public], [index_key.public], 1, [root_key], 365)
    sign_index(folder, index_key, 14)
    return Site(folder, root_key.public, large)


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
    remote = IndexRemote(url, (site.pin,), Fetcher(parse_address(url)), LocalCopy(folder))
    rng = random.Random(str(folder))
    start.wait()
    time.sleep(rng.uniform(0, 2 * pause_s))
    wanted = rng.sample(site.large, min(KERNELS, len(site.large)))
    cold = _time_hit(remote, wanted[0])
    first = (remote.fetcher.requests, remote.fetcher.received)
    remote.get_sizes(wanted)  # from here on, the copy has the shards
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


def measure_table(count: int) -> dict[str, float]:
    """Measure an index with many keys: making it, its size, and a look-up in one shard."""
    records = [BlobRecord(digest_text(f"key {number}"), BLOB_BYTES, bytes(32)) for number in range(count)]
    started = time.process_time()
    table, shards = make_shards(records)
    made_s = time.process_time() - started
    keys = [record.key for record in records[:: max(1, count // 10_000)]]
    started = time.process_time()
    for key in keys:
        if find_record(shards[table.find_row(key).digest], key) is None:
            raise SystemExit(f"{key} is missing")
    found_s = time.process_time() - started
    signer = _make_signer()
    trusted = TrustedKeys("bench", 1, time.time() + 1e6, (), 1, (signer.public,), "")
    facts = {"format": FORMAT, "role": INDEX, "name": "bench", "version": 1, "expires": int(time.time() + 1e6)}
    facts |= {"bits": table.bits, "shards": table.to_text()}
    raw = json.dumps(sign_payload(INDEX, facts, [signer]).to_json()).encode()
    verify_index(raw, trusted, Known())  # imports
    started = time.process_time()
    verify_index(raw, trusted, Known())
    verified_s = time.process_time() - started
    tracemalloc.start()
    verify_index(raw, trusted, Known())
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "keys": count,
        "verify_index_cpu_ms": 1e3 * verified_s,
        "client_peak_kib": (most + len(raw) + max(map(len, shards.values()))) / 1024,
        "make_cpu_s": made_s,
        "shards": len(shards),
        "largest_shard_bytes": max(map(len, shards.values())),
        "index_bytes": len(table.to_text()),
        "all_shards_bytes": sum(map(len, shards.values())),
        "lookup_us": 1e6 * found_s / len(keys),
        "publisher_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _make_signer() -> PrivateKey:
    with tempfile.TemporaryDirectory() as folder:
        return create_private_key(Path(folder) / "key")


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
