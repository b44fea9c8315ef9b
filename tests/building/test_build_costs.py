"""What compiles cost, read from a file that a crash or somebody else has changed."""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path

import pytest

from tilewright.building.compile_costs import costs_file, read_costs
from tilewright.building.store.local import Store

GOOD = {"slug": "gemm-x", "kind": "gemm gfx942", "cpu_s": 12.5}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({**GOOD, "slug": "other", "cpu_s": 10**400}),
        '{"slug":"other","kind":"k","cpu_s":1e999}',
        '{"slug":"other","kind":"k","cpu_s":NaN}',
        '{"slug":"other","kind":"k","cpu_s":-1}',
        '{"slug":"other","kind":"k","cpu_s":true}',
        '{"slug":"other","kind":"k","cpu_s":"5"}',
        '{"slug":["other"],"kind":"k","cpu_s":5}',
        "[" * 100_000,
        '{"slug":"other","kind":"k","cpu_s":' + "9" * 5000 + "}",
        "\ufeff{}",
    ],
)
def test_a_line_that_is_no_record_is_passed_over(store: Store, line: str) -> None:
    costs_file(store).write_text(f"{line}\n{json.dumps(GOOD)}\n", encoding="utf-8")
    costs = read_costs(store)
    assert costs.by_slug == {"gemm-x": 12.5}
    assert (costs.by_kind, costs.mean) == ({"gemm gfx942": 12.5}, 12.5)


def test_any_change_leaves_finite_costs(store: Store) -> None:
    draw = random.Random(3)
    whole = "".join(json.dumps({**GOOD, "slug": f"s{n}"}) + "\n" for n in range(20)).encode()
    tokens = (b"1e400", b"9" * 400, b"NaN", b"[", b"{", b'"', b"\xff", b"null", b"-", b"\n", b"Infinity")
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(5):
            place = draw.randrange(len(changed))
            changed[place : place + draw.randint(0, 5)] = draw.choice(tokens)
        costs_file(store).write_bytes(changed)
        costs = read_costs(store)
        every = [*costs.by_slug.values(), *costs.by_kind.values(), costs.mean or 0.0]
        assert all(math.isfinite(cost) and cost >= 0 for cost in every)


@pytest.mark.timeout(20)
def test_what_is_no_file_costs_only_the_guess(store: Store) -> None:
    os.mkfifo(costs_file(store))
    assert read_costs(store).mean is None
