"""The options of attention for arrays that are not arrays: checked, and as fields of a problem."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.fmha.problem import LAYOUTS

NO_LIMIT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOptions:
    """The options of one call."""

    causal: bool = False
    window: tuple[int, ...] | None = None
    scale: float | None = None
    softcap: float | None = None
    dropout: float = 0.0
    seed: int = 0
    offset: int = 0
    layout: str = "bshd"
    max_seqlen_q: int | None = None
    max_seqlen_k: int | None = None
    num_splits: int | None = None
    return_lse: bool = False
    deterministic: bool = False
    bias_gradient: bool = False

    def check(self) -> None:
        """Require values that are valid for any arrays."""
        choose("layout of attention", self.layout, LAYOUTS)
        self._check_types()
        if not 0 <= self.dropout < 1:
            raise InvalidValueError(f"dropout is {self.dropout}, must be at least 0 and below 1")
        if self.scale == 0:
            raise InvalidValueError("scale is 0: all keys would have the same weight. Leave it out for 1/√head_size")
        if self.softcap is not None and self.softcap < 0:
            raise InvalidValueError(f"softcap is {self.softcap}, must be at least 0; 0 leaves scores as they are")
        if self.window is not None and (len(self.window) != 2 or min(self.window) < NO_LIMIT):
            raise InvalidValueError(
                f"window is {self.window}, must be two numbers of keys, left and right of a query; -1 means all"
            )
        for name in ("max_seqlen_q", "max_seqlen_k"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InvalidValueError(f"{name} is {value}, must be at least 0")
        if self.num_splits is not None and self.num_splits < 0:
            raise InvalidValueError(f"num_splits is {self.num_splits}, must be at least 0; 0 does not split keys")

    def _check_types(self) -> None:
        for name in ("scale", "softcap", "dropout", "num_splits"):
            value = getattr(self, name)
            if not isinstance(value, Real) and not (value is None and name != "dropout"):
                raise InvalidValueError(f"{name} is {value!r}, must be a number")
        for name in ("causal", "return_lse", "deterministic", "bias_gradient"):
            if getattr(self, name) not in (True, False):
                raise InvalidValueError(f"{name} is {getattr(self, name)!r}, must be True or False")

    def describe_scores(self, seqlen_q: int, seqlen_k: int) -> dict[str, Any]:
        """The fields of a problem that change scores and weights. Options without an effect are left out."""
        fields = self._describe_mask(seqlen_q, seqlen_k)
        if self.scale is not None:
            fields["scale"] = float(self.scale)
        if self.softcap:
            fields["logits_cap"] = float(self.softcap)
        if self.dropout:
            fields |= {"p_drop": float(self.dropout), "drop_seed": self.seed, "drop_offset": self.offset}
        return fields

    def _describe_mask(self, seqlen_q: int, seqlen_k: int) -> dict[str, Any]:
        """The mask. A limit that hides no key is dropped: kernels without a mask are faster."""
        left, right = self.window or (NO_LIMIT, NO_LIMIT)
        if self.causal:
            right = 0
        # The last query is next to the last key, so it has all others on its left; the first query has seqlen_q - 1 on
        # the right of that place.
        if left >= seqlen_k - 1:
            left = NO_LIMIT
        if right >= seqlen_q - 1:
            right = NO_LIMIT
        if (left, right) == (NO_LIMIT, NO_LIMIT):
            return {}
        return {"mask": "bottom_right", "window_left": left, "window_right": right}
