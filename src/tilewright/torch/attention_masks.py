"""Masks of Transformers as kernels compute them: a window, the number of keys, and packed sequences.

Transformers describes a mask by a function of indices and the tokens that are padding. Kernels compute windows of
sequences without gaps, so that the tokens of a batch with padding, or of several sequences in a row, are gathered.
A mask that is not of this form is an error: what kernels would compute is compared with the function itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tilewright.base.errors import UnsupportedError
from tilewright.torch.attention_operators import NO_WINDOW
from tilewright.torch.unsupported import reject_unsupported

CAUSAL = (-1, 0)
# Arguments for the masks of other implementations: when these may be left out, and how they are stored.
_UNUSED_OPTIONS = ("allow_is_causal_skip", "allow_is_bidirectional_skip", "dtype", "config")
# Elements of a mask that are compared at once: 16 MiB for each intermediate result of 32 bits.
_COMPARED = 2**22

Window = tuple[int, int]
# The row of the batch and the index in it, of each token.
TokenIndices = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class PackedCall:
    """Sequences that are computed by one call: where their queries and keys are in the batch."""

    queries: TokenIndices
    keys: TokenIndices
    query_starts: torch.Tensor
    key_starts: torch.Tensor
    longest_query: int
    longest_key: int
    window: Window


@dataclass(frozen=True)
class BatchMask:
    """What the queries of a batch see. Transformers passes it to attention as it passes masks of other kinds.

    Without calls, all queries and the first `keys` keys of each row are one sequence. With them, queries that are in no
    call have a result of zero.
    """

    shape: tuple[int, int, int, int]
    window: Window
    keys: int
    calls: tuple[PackedCall, ...] | None = None

    @property
    def ndim(self) -> int:
        """Four, by which Transformers knows that the mask need not be made from the padding of the batch."""
        return len(self.shape)

    def contiguous(self) -> BatchMask:
        """The mask itself: generation calls this for prepared masks."""
        return self


@dataclass(frozen=True)
class _Pattern:
    """A mask function of Transformers for the indices of one call of attention."""

    function: Callable[..., Any]
    batch: int
    queries: int
    keys: int
    first_query: int
    first_key: int
    uses_vmap: bool
    device: torch.device

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """That of the mask as Transformers' other implementations have it."""
        return (self.batch, 1, self.queries, self.keys)

    @property
    def own_keys(self) -> slice:
        """The keys of the queries themselves."""
        start = self.first_query - self.first_key
        return slice(start, start + self.queries)

    def evaluate(self, rows: slice) -> torch.Tensor:
        """The mask of some queries, (batch, queries, keys)."""
        from transformers.masking_utils import sdpa_mask  # noqa: PLC0415  (an extra)

        mask: torch.Tensor = sdpa_mask(
            batch_size=self.batch, q_length=rows.stop - rows.start, kv_length=self.keys,
            q_offset=self.first_query + rows.start, kv_offset=self.first_key, mask_function=self.function,
            allow_is_causal_skip=False, use_vmap=self.uses_vmap, device=self.device,
        )  # fmt: skip
        return mask[:, 0]

    def number_sequences(self) -> torch.Tensor:
        """The number of each key's sequence in its row: another one begins where a token does not see the last one."""
        numbers = torch.zeros((self.batch, self.keys), dtype=torch.int64, device=self.device)
        if not self.uses_vmap and self.keys > 1:
            row = torch.arange(self.batch, device=self.device)[:, None]
            token = torch.arange(1, self.keys, device=self.device)[None] + self.first_key
            starts = ~self.function(row, torch.zeros_like(row), token, token - 1)
            numbers[:, 1:] = starts.expand(self.batch, -1).cumsum(-1)
        return numbers


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | torch.Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: torch.Tensor | BatchMask | None = None,
    local_size: int | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **others: Any,
) -> BatchMask:
    """The function that Transformers calls for the mask of a forward pass.

    `attention_mask` (batch, tokens) has the padding; with static caches, keys after the tokens so far are not written.
    """
    from transformers import masking_utils  # noqa: PLC0415  (an extra)

    if isinstance(attention_mask, BatchMask):
        return attention_mask
    reject_unsupported("the mask of attention", {name: others[name] for name in others if name not in _UNUSED_OPTIONS})
    # Static caches count on the device.
    pattern = _Pattern(
        mask_function or masking_utils.causal_mask_function, batch_size, q_length, kv_length, int(q_offset), kv_offset,
        use_vmap, torch.device(device),
    )  # fmt: skip
    so_far = pattern.own_keys.stop
    valid = None if attention_mask is None else _slice_padding(attention_mask, kv_offset, so_far, kv_length)
    if pattern.function is masking_utils.bidirectional_mask_function:
        return _pack(pattern, NO_WINDOW, kv_length, valid, None)
    if so_far > kv_length:
        raise UnsupportedError(f"the batch has {so_far} tokens, but its cache returns {kv_length} keys")
    if pattern.function is masking_utils.causal_mask_function and valid is None:
        # A single query sees all keys: kernels without a mask are faster.
        return BatchMask(pattern.shape, CAUSAL if q_length > 1 else NO_WINDOW, so_far)
    if valid is None:
        valid = torch.ones((batch_size, kv_length), dtype=torch.bool, device=device)
    if q_length == 1:
        return _pack(pattern, NO_WINDOW, so_far, pattern.evaluate(slice(0, 1))[:, 0] & valid, None)
    if pattern.function is masking_utils.causal_mask_function:
        return _pack(pattern, CAUSAL, so_far, valid, None)
    sequences = pattern.number_sequences()
    windows = [CAUSAL, NO_WINDOW]
    if local_size is not None:
        windows += [(local_size - 1, 0), (local_size, local_size)]
    for window in windows:
        keys = kv_length if window[1] else so_far
        if _is_computed(pattern, window, keys, valid, sequences):
            return _pack(pattern, window, keys, valid, sequences)
    raise UnsupportedError(
        "attention with tilewright computes causal masks, windows, padding and packed sequences; this model's mask is "
        "another one, or has padding between tokens and a window: pad on the left, or use "
        'attn_implementation="sdpa"'
    )


def _slice_padding(mask: torch.Tensor, first: int, so_far: int, keys: int) -> torch.Tensor:
    """Whether each key is a token, (batch, keys). The mask is for all tokens so far, or only for these keys."""
    if mask.shape[1] != so_far:
        mask = mask[:, first:]
    mask = mask[:, :keys].bool()
    return torch.nn.functional.pad(mask, (0, keys - mask.shape[1]))


def _is_computed(pattern: _Pattern, window: Window, keys: int, valid: torch.Tensor, sequences: torch.Tensor) -> bool:
    """Whether kernels with this window compute the pattern for all tokens, and without a window for all queries."""
    valid = valid & (torch.arange(valid.shape[1], device=valid.device) < keys)
    positions = valid.cumsum(1, dtype=torch.int32)
    rows = max(1, _COMPARED // max(1, valid.numel()))
    for start in range(0, pattern.queries, rows):
        block = slice(start, min(start + rows, pattern.queries))
        own = slice(pattern.own_keys.start + block.start, pattern.own_keys.start + block.stop)
        before = positions[:, own, None] - positions[:, None]
        sees = (sequences[:, own, None] == sequences[:, None]) & valid[:, None]
        for limit, distance in zip(window, (before, -before), strict=True):
            sees = sees & (distance <= limit) if limit >= 0 else sees
        differs = sees != (pattern.evaluate(block) & valid[:, None])
        if bool((differs if window == NO_WINDOW else differs & valid[:, own, None]).any()):
            return False
    return True


def _pack(
    pattern: _Pattern, window: Window, keys: int, valid: torch.Tensor | None, sequences: torch.Tensor | None
) -> BatchMask:
    """The mask with the calls that it needs: none without padding, for one sequence in each row.

    The last query of each row is computed also if it is padding: generation goes on from there.
    """
    if valid is None or (bool(valid[:, :keys].all()) and (sequences is None or not bool(sequences.any()))):
        return BatchMask(pattern.shape, window, keys)
    valid = valid[:, :keys]
    if sequences is None:
        sequences = torch.zeros_like(valid, dtype=torch.int64)
    # Sequences of different rows have different numbers.
    first = torch.arange(pattern.batch, device=valid.device)[:, None] * (keys + 1)
    queries = torch.ones((pattern.batch, pattern.queries), dtype=torch.bool, device=valid.device)
    if window == NO_WINDOW and not bool(sequences.any()):  # queries need not be keys, as in cross-attention
        calls = [_make_call(queries, first.expand_as(queries), valid, first.expand_as(valid), window)]
    else:
        numbers = sequences[:, :keys] + first
        tokens = queries if window == NO_WINDOW else valid[:, pattern.own_keys]
        last = torch.zeros_like(queries)
        last[:, -1] = ~tokens[:, -1]
        seen = pattern.evaluate(slice(pattern.queries - 1, pattern.queries))[:, 0, :keys] & valid
        calls = [
            _make_call(tokens, numbers[:, pattern.own_keys], valid, numbers, window),
            _make_call(last, first.expand_as(queries), seen, first.expand_as(valid), NO_WINDOW),
        ]
    return BatchMask(pattern.shape, window, keys, tuple(call for call in calls if call is not None))


def _make_call(
    queries: torch.Tensor, query_numbers: torch.Tensor, valid: torch.Tensor, key_numbers: torch.Tensor, window: Window
) -> PackedCall | None:
    """The call for some queries and the keys of their sequences; None if they have no keys."""
    sequences = torch.unique_consecutive(query_numbers[queries])
    sequences = sequences[torch.isin(sequences, key_numbers[valid])]
    if not sequences.numel():
        return None
    queries = queries & torch.isin(query_numbers, sequences)
    valid = valid & torch.isin(key_numbers, sequences)
    query_starts, longest_query = _find_starts(query_numbers[queries], sequences)
    key_starts, longest_key = _find_starts(key_numbers[valid], sequences)
    return PackedCall(
        queries.nonzero(as_tuple=True), valid.nonzero(as_tuple=True), query_starts, key_starts, longest_query,
        longest_key, window,
    )  # fmt: skip


def _find_starts(numbers: torch.Tensor, sequences: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Where each sequence begins among its tokens, and the length of the longest one."""
    starts = torch.searchsorted(numbers, sequences, out_int32=True)
    starts = torch.nn.functional.pad(starts, (0, 1), value=numbers.numel())
    return starts, int(starts.diff().max())
