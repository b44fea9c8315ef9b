"""Attention kernels, simulated: tiles of keys one after another in fp32, with weights rounded to their type.

Exponentials and logarithms are off by up to what the hardware may be off, at random.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from simulated_sums import F, shares_of, stored

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.dropout import draw_keep_mask, dropout_scale, keep_probability
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_forward import (
    allocate_outputs,
    build_visibility_mask,
    compute_alibi_distances,
    split_keys,
)
from tilewright.ops.fmha.sequences import iterate_sequences, repeat_kv_heads, select_rows
from tilewright.ops.fmha.tensors import list_tensors

LOG2E = F(np.log2(np.e))


class Simulated:
    """A kernel for an architecture with tiles of so many keys. It may overlook a key, or not make up for dropout."""

    def __init__(self, problem: Problem, arch: Arch, tile: int = 32, seed: int = 0, overlooked: int = -1) -> None:
        self.problem, self.arch, self.tile, self.overlooked = problem, arch, tile, overlooked
        self.generator = np.random.default_rng(seed)
        self.factor = F(dropout_scale(problem)) if problem.p_drop > 0 else F(1)
        self.p_type = DTYPES[problem.dtype].p

    def near(self, values: Any, ulps: float = 1.0) -> Any:
        """fp32 values that are off by up to so many ulps; 1 is what it is."""
        noise = self.generator.uniform(-ulps, ulps, np.shape(values)) * 2.0**-23
        return (np.asarray(values, np.float64) * np.where(np.asarray(values) == 1, 1.0, 1 + noise)).astype(F)

    def cast(self, values: Any, name: str) -> Any:
        return stored(np.asarray(values, F), name, self.arch).astype(F)

    def scores(self, given: Any, sequence: Any) -> Any:
        """In units of the logarithm to the base 2; minus infinity where masked."""
        p = self.problem
        q = select_rows(p, given, "q", sequence).astype(F)
        k = repeat_kv_heads(p, select_rows(p, given, "k", sequence).astype(F))
        s = F(F(p.scale) * LOG2E) * np.matmul(q, k.swapaxes(1, 2))
        if p.bias == "elementwise":
            s = s + LOG2E * select_rows(p, given, "bias", sequence).astype(F)
        elif p.bias == "alibi":
            slopes = np.asarray(given["bias"], F)[sequence.number] * LOG2E
            s = s + slopes[:, None, None] * compute_alibi_distances(p, sequence.queries, sequence.keys).astype(F)
        if p.logits_cap > 0:
            argument = s * F(1 / (LOG2E * F(p.logits_cap)))
            power = self.near(np.exp2((2 * LOG2E * argument).astype(np.float64)))
            s = F(p.logits_cap) * LOG2E * (1 - 2 * self.near(1 / (power + F(1))))
        seen = build_visibility_mask(p, sequence.queries, sequence.keys) & (np.arange(sequence.keys) != self.overlooked)
        return np.where(seen, s, F(-np.inf)).astype(F)

    def attended(self, s: Any, v: Any, keep: Any) -> tuple[Any, Any]:
        """The result and the LSE over some keys."""
        p = self.problem
        heads, queries, keys = s.shape
        m, total = np.full((heads, queries), F(-np.inf)), np.zeros((heads, queries), F)
        o = np.zeros((heads, queries, v.shape[2]), F)
        for first in range(0, keys, self.tile):
            at = slice(first, first + self.tile)
            m_new = np.maximum(m, s[..., at].max(axis=-1))
            base = np.where(np.isfinite(m_new), m_new, F(0))
            e = self.near(np.exp2((s[..., at] - base[..., None]).astype(np.float64)))
            again = self.near(np.exp2((m - base).astype(np.float64)))
            total = again * total + e.sum(axis=-1, dtype=F)
            weights = e
            if p.p_drop > 0:
                weights = np.where(keep[..., at], e * self.factor, F(0))
            if p.static_quant:
                weights = weights * F(p.scale_p)
            weights = self.cast(weights, self.p_type)
            o = o * again[..., None] + np.matmul(weights, v[:, at])
            m = m_new
        inverse = np.where(total > 0, self.near(1 / np.where(total > 0, total, F(1))), F(0))
        with np.errstate(divide="ignore"):
            lse = m / LOG2E + self.near(np.log(total.astype(np.float64)))
        return o * inverse[..., None], lse.astype(F)

    def forward(self, given: Any) -> dict[str, Any]:
        p = self.problem
        made = allocate_outputs(p)
        for sequence in iterate_sequences(p, given):
            s = self.scores(given, sequence)
            v = repeat_kv_heads(p, select_rows(p, given, "v", sequence).astype(F))
            keep = draw_keep_mask(p, sequence.number, *s.shape[1:]) if p.p_drop > 0 else None
            o, lse = self.attended(s, v, keep)
            if p.static_quant:
                o = o * F(p.scale_o)
            select_rows(p, made, "o", sequence)[...] = o
            if "lse" in made:
                select_rows(p, made, "lse", sequence)[...] = lse
        return self.stored(made)

    def splitkv(self, given: Any) -> dict[str, Any]:
        p = self.problem
        made = allocate_outputs(p)
        for sequence in iterate_sequences(p, given):
            s = self.scores(given, sequence)
            v = repeat_kv_heads(p, select_rows(p, given, "v", sequence).astype(F))
            for i, part in enumerate(split_keys(p, sequence.keys)):
                o, lse = self.attended(s[..., part], v[:, part], None)
                select_rows(p, made, "o_acc", sequence)[i] = o
                select_rows(p, made, "lse_acc", sequence)[i] = lse
        return self.stored(made)

    def combine(self, given: Any) -> dict[str, Any]:
        p = self.problem
        made = allocate_outputs(p)
        for sequence in iterate_sequences(p, given):
            o_acc, lse_acc = (select_rows(p, given, name, sequence).astype(F) for name in ("o_acc", "lse_acc"))
            m = lse_acc.max(axis=0)
            base = np.where(np.isfinite(m), m, F(0))
            total = self.near(np.exp((lse_acc - base).astype(np.float64))).sum(axis=0, dtype=F)
            with np.errstate(divide="ignore"):
                lse = self.near(np.log(total.astype(np.float64))) + base
            finite = np.where(np.isfinite(lse), lse, F(0))
            o = (self.near(np.exp((lse_acc - finite).astype(np.float64)))[..., None] * o_acc).sum(axis=0, dtype=F)
            select_rows(p, made, "o", sequence)[...] = o
            if "lse" in made:
                select_rows(p, made, "lse", sequence)[...] = lse
        return self.stored(made)

    def gradients(self, given: Any) -> dict[str, Any]:
        """Of dq_dk_dv, with all of dq in one part, or of the whole backward problem."""
        p, kind = self.problem, DTYPES[self.problem.dtype].qkv
        made = allocate_outputs(p)
        if "d" not in given:
            dots = (given["o"].astype(F) * given["d_o"].astype(F)).sum(axis=-1, dtype=F) * F(keep_probability(p))
            given = {**given, "d": dots.swapaxes(-1, -2) if p.layout == "bshd" else dots}
        for sequence in iterate_sequences(p, given):
            q, d_o = (select_rows(p, given, name, sequence).astype(F) for name in ("q", "d_o"))
            k, v = (repeat_kv_heads(p, select_rows(p, given, name, sequence).astype(F)) for name in ("k", "v"))
            lse, d = (select_rows(p, given, name, sequence).astype(F)[..., None] for name in ("lse", "d"))
            s = self.scores(given, sequence)
            weights = self.near(np.exp2((s - LOG2E * np.where(np.isfinite(lse), lse, F(0))).astype(np.float64)))
            f = self.factor
            keep = draw_keep_mask(p, sequence.number, *s.shape[1:]) if p.p_drop > 0 else np.ones_like(s, dtype=bool)
            by_score = weights * (np.where(keep, np.matmul(d_o, v.swapaxes(1, 2)), F(0)) - d)
            operand = self.cast(by_score, kind)
            dropped = self.cast(np.where(keep, weights, F(0)), kind)
            dv = self.cast(f * np.matmul(dropped.swapaxes(1, 2), d_o), kind)
            dk = self.cast(F(p.scale) * f * np.matmul(operand.swapaxes(1, 2), q), kind)
            shape = (p.kv_heads, p.heads // p.kv_heads)
            select_rows(p, made, "dv", sequence)[...] = dv.reshape(*shape, *dv.shape[1:]).sum(axis=1, dtype=F)
            select_rows(p, made, "dk", sequence)[...] = dk.reshape(*shape, *dk.shape[1:]).sum(axis=1, dtype=F)
            dq = np.zeros_like(q)
            for first in range(0, sequence.keys, self.tile):
                at = slice(first, first + self.tile)
                dq = dq + F(p.scale) * f * np.matmul(operand[..., at], k[:, at])
            if "dq" in made:
                select_rows(p, made, "dq", sequence)[...] = dq
            else:
                select_rows(p, made, "dq_acc", sequence)[0] = dq
            if "dbias" in made:
                select_rows(p, made, "dbias", sequence)[...] = f * by_score
        return self.stored(made)

    def stored(self, made: dict[str, Any]) -> dict[str, Any]:
        kinds = {tensor.name: tensor.dtype for tensor in list_tensors(self.problem)}
        return {name: self.cast(each, kinds[name]) for name, each in made.items()}


def shares(found: dict[str, Any], expected: Any, allowed: Any) -> dict[str, float]:
    """The largest error of each output in shares of its tolerance."""
    worst = {}
    for name, wanted in expected.items():
        same = found[name] == wanted
        error = np.where(same, 0.0, np.abs(found[name].astype(float) - np.where(np.isfinite(wanted), wanted, 0.0)))
        worst[name] = float(shares_of(error, allowed[name].limit).max(initial=0.0))
    return worst
