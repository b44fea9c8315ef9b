"""Many clients of a signed index, small here; `deep` has the size of docs/distribution.md."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench_index import BLOB_BYTES, measure_clients, measure_table


def check_cost(measured: dict[str, float], metadata_bytes: int) -> None:
    # Root, timestamp, snapshot, targets, one bin and the blob; then one request for each kernel.
    assert measured["cold_requests"] == 6 and measured["requests_per_hit"] == 1
    assert BLOB_BYTES < measured["cold_bytes"] < BLOB_BYTES + metadata_bytes


@pytest.mark.slow
def test_clients_need_six_requests_and_then_one(tmp_path: Path) -> None:
    """The server is a process of its own, Python's."""
    check_cost(measure_clients(tmp_path, keys=400, clients=8, hits=5, pause_s=0.02, server="python"), 20_000)


@pytest.mark.deep
@pytest.mark.skipif(
    shutil.which("nginx", path="/usr/sbin:/usr/bin") is None, reason="needs nginx (Debian: nginx-light)"
)
def test_two_hundred_clients_of_nginx(tmp_path: Path) -> None:
    found = measure_clients(tmp_path, keys=20_000, clients=200, hits=10, pause_s=1.0, server="nginx")
    check_cost(found, 60_000)
    assert found["hit_p99_ms"] <= 50.0


def test_a_look_up_reads_one_small_bin() -> None:
    measured = measure_table(20_000)
    assert measured["bins"] == 256 and measured["bins_signed_again"] <= 100
    assert measured["largest_bin_bytes"] < 18_000 and measured["snapshot_bytes"] < 40_000
    assert measured["cold_bytes"] < 60_000 and measured["client_peak_kib"] < 4_000
    assert measured["lookup_in_same_bin_us"] < 1_000
