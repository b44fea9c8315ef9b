"""Many clients of a signed index, small here; `deep` has the size of docs/distribution.md."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench_index import BLOB_BYTES, measure_clients, measure_table


def check_cost(found: dict[str, float], index_bytes: int) -> None:
    # Keys, index, one shard and the blob; then one request for each kernel.
    assert found["cold_requests"] == 4 and found["requests_per_hit"] == 1
    assert BLOB_BYTES < found["cold_bytes"] < BLOB_BYTES + index_bytes


@pytest.mark.slow
def test_clients_need_four_requests_and_then_one(tmp_path: Path) -> None:
    """The server is a process of its own, Python's."""
    check_cost(measure_clients(tmp_path, keys=400, clients=8, hits=5, pause_s=0.02, server="python"), 20_000)


@pytest.mark.deep
@pytest.mark.skipif(
    shutil.which("nginx", path="/usr/sbin:/usr/bin") is None, reason="needs nginx (Debian: nginx-light)"
)
def test_two_hundred_clients_of_nginx(tmp_path: Path) -> None:
    found = measure_clients(tmp_path, keys=20_000, clients=200, hits=10, pause_s=1.0, server="nginx")
    check_cost(found, 30_000)
    assert found["hit_p99_ms"] <= 50.0


def test_a_look_up_reads_one_small_shard() -> None:
    found = measure_table(50_000)
    assert found["largest_shard_bytes"] < 25_000 and found["index_bytes"] < 100_000
    assert found["client_peak_kib"] < 2_000
    assert found["lookup_us"] < 1_000
