"""Every rule judges 2,000 fixed configs of its op as before: the same verdicts, messages, fields and nearest values."""

from __future__ import annotations

import pytest

from tilewright.ops import OPS, find_op
from tilewright.ops.op import Op
from verdict_digests import NUMBER, compute_digests, describe_changes, read_configs, read_digests

CONFIGS, DIGESTS = read_configs(), read_digests()
ALL_CONFIGS = {"moe_sorting": 7 * 16 * 2 * 2}  # an op with fewer: GPUs, tiles and two flags


@pytest.mark.parametrize("op_name", sorted(CONFIGS))
def test_rules_judge_as_before(op_name: str) -> None:
    changes = describe_changes(DIGESTS[op_name], compute_digests(op_name, CONFIGS[op_name]))
    hint = "If this is intended, run tools/verdict_digests.py --write, and tell it in CHANGELOG.md."
    assert not changes, "\n".join([*changes, hint])


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_rule_rejects_some_of_the_configs(op: Op) -> None:
    assert len(CONFIGS[op.name]) == ALL_CONFIGS.get(op.name, NUMBER)
    assert {rule.code for rule in op.rules if not rule.since} == set(DIGESTS[op.name])
    least = {"P411": 2}  # few of the drawn head sizes are illegal
    assert [code for code, (count, _) in DIGESTS[op.name].items() if count < least.get(code, 8)] == []


def test_a_changed_message_and_a_changed_verdict_name_the_rule() -> None:
    rows = CONFIGS["gemm"][:40]
    computed = compute_digests("gemm", rows)
    first, second, *_ = computed
    changed = {**computed, first: [computed[first][0], "another"]}
    del changed[second]

    told = describe_changes(computed, changed)

    assert len(told) == 2
    assert told[0].startswith(f"{first} rejects other configs than before")
    assert told[1].startswith(f"{second} rejects 0 of 2000 configs instead of")
    assert not describe_changes(computed, compute_digests("gemm", rows))


# GPUs without the types of an op: these have no matrix instructions for 8-bit floats.
WITHOUT = {"gemm_quant": ("gfx908", "gfx90a", "gfx1100")}


def test_the_configs_hold_legal_ones_of_every_gpu() -> None:
    from tilewright import arch as archs
    from tilewright.ops.rule import is_legal

    for name, rows in CONFIGS.items():
        op = find_op(name)
        legal = {gpu for gpu, values in rows[-150:] if is_legal(op.rules, op.make_config(**values), archs.load(gpu))}
        assert legal == set(archs.arch_names()) - set(WITHOUT.get(name, ()))
