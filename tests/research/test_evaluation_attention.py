"""The choice between one attention kernel and parts of the keys, on public measurements."""

from __future__ import annotations

import pytest

from research import attention
from research.sources import DATA
from research.table import Correlation, Line, Remark
from tilewright.learn.efficiency import Efficiency

needs_data = pytest.mark.skipif(
    not (DATA / "aiter_attention_backends").is_dir(), reason="../shared/data/aiter_attention_backends is not there"
)


def shape(**values: object) -> attention.Shape:
    plain = {"sequences": 1, "tokens": 1, "queries": 1, "keys": 1000, "heads": 64, "kv_heads": 8, "hdim": 64}
    times = {"us_2d": 1.0, "us_3d": 1.0, "us_paged": 1.0}
    return attention.Shape(**{"kind": "decode, all keys", "window": -1, **plain, **times, **values})  # type: ignore[arg-type]


def test_segments_fill_the_gpu_within_limits() -> None:
    """Four blocks for each of 304 units: one token of one sequence has 8 blocks, 64 have 768."""
    assert shape().segments == 128
    assert shape(sequences=8, tokens=8).segments == 16
    assert shape(sequences=64, tokens=64).segments == 8


def test_few_sequences_are_cut_and_many_are_not() -> None:
    few, many = shape(keys=8192), shape(sequences=512, tokens=512)
    assert attention.estimate_3d(few) < attention.estimate_2d(few) / 4
    assert attention.estimate_2d(many) < attention.estimate_3d(many)
    assert not attention.aiter_uses_2d(few) and attention.aiter_uses_2d(many)


@pytest.mark.slow
@needs_data
def test_the_estimate_chooses_better_than_any_single_kernel() -> None:
    lines = attention.run(bounded=True)
    found = {(line.split, line.method): line.result for line in lines if isinstance(line, Line)}
    decode = {method: result for (split, method), result in found.items() if split == "decode, all keys"}
    means = {method: result.mean for method, result in decode.items() if isinstance(result, Efficiency)}
    assert means["analytical"] > 0.97
    assert means["analytical"] > max(mean for method, mean in means.items() if method != "analytical")
    for split in ("decode, window", "prefill, all keys", "prefill, window"):
        result = found[split, "analytical"]
        assert isinstance(result, Efficiency) and result.mean > 0.99
    correlations = [result for result in found.values() if isinstance(result, Correlation)]
    assert len(correlations) == 3 and all(each.rank > 0.85 for each in correlations)
    assert isinstance(lines[-1], Remark)
