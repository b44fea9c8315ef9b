"""PyTorch's own flash attention on Tilewright's kernels: an implementation for `torch.nn.attention`.

PyTorch calls it by the operators `aten::_flash_attention_forward` and `aten::_scaled_dot_product_flash_attention`, for
tensors on a GPU. For tensors in host memory, which PyTorch itself has no such operators for, they are computed by the
emulated device of `tilewright.torch.emulate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tilewright.base.errors import UnsupportedError
from tilewright.torch.attention_operators import NO_WINDOW
from tilewright.torch.unsupported import reject_unsupported

NAME = "tilewright"
_FUNCTION = f"the flash attention {NAME!r}"
# Of the arguments that are not supported; others have None.
_DEFAULTS = {"dropout_p": 0.0, "return_debug_mask": False}
# The first version with the function (its documentation, stored in November 2025 for that release).
_FIRST_TORCH = "2.10"
# torch names AMD's GPUs CUDA as well.
_DISPATCH_KEYS = ("CUDA", "CPU")


def register_flash_attention() -> None:
    """Add the implementation "tilewright" to PyTorch's flash attention. Calling it twice changes nothing.

    It is used after `torch.nn.attention.activate_flash_attention_impl("tilewright")`.
    """
    register = getattr(torch.nn.attention, "register_flash_attention_impl", None)
    if register is None:
        raise UnsupportedError(
            f"torch {torch.__version__} has no torch.nn.attention.register_flash_attention_impl: torch {_FIRST_TORCH} "
            "is the first that has it. Call tilewright.torch.attention, which needs no registration"
        )
    register(NAME, register_fn=_activate)


@dataclass
class _Handle:
    """The operators, which are torch's again when the library is dropped."""

    library: Any

    def remove(self) -> None:
        """Restore torch's operators."""
        if self.library is not None:
            self.library._destroy()
        self.library = None


def _activate() -> _Handle:
    make_library: Any = torch.library.Library  # has no types
    library = make_library("aten", "IMPL")
    for name, implementation in _IMPLEMENTATIONS.items():
        for key in _DISPATCH_KEYS:
            library.impl(name, implementation, key)
    return _Handle(library)


def _read_window(left: int | None, right: int | None) -> list[int]:
    return [NO_WINDOW[0] if left is None else left, NO_WINDOW[1] if right is None else right]


def _compute(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    scale: float | None,
    window: list[int],
    alibi_slopes: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result and the LSE of tensors (batch, seqlen, heads, size), or packed ones (tokens, heads, size)."""
    # Dropout needs its seed in the backward pass: as a tensor on the GPU, the host would have to wait for it.
    reject_unsupported(_FUNCTION, {"dropout_p": dropout_p, "return_debug_mask": return_debug_mask}, _DEFAULTS)
    found: tuple[torch.Tensor, torch.Tensor] = torch.ops.tilewright.attention(
        query, key, value, alibi_slopes, cum_seq_q, cum_seq_k, max_q, max_k, is_causal, window, scale, 0.0, 0.0, 0,
        False,
    )  # fmt: skip
    return found


def _differentiate(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    is_causal: bool,
    scale: float | None,
    window: list[int],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    deterministic = torch.are_deterministic_algorithms_enabled()
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = torch.ops.tilewright.attention_gradient(
        grad_out, query, key, value, out, logsumexp, None, cum_seq_q, cum_seq_k, max_q, max_k, is_causal, window,
        scale, 0.0, 0.0, 0, deterministic,
    )  # fmt: skip
    return found


def _match_strides(like: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """A result with the strides of another tensor, which torch.compile expects from PyTorch's operators."""
    return result if result.stride() == like.stride() else torch.empty_like(like).copy_(result)


def _make_unused(like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The state of random numbers, their offset and the debug mask, which PyTorch's operators return, too."""
    state = torch.zeros(2, dtype=torch.uint64, device=like.device)
    return state, torch.zeros((), dtype=torch.uint64, device=like.device), like.new_empty(0)


def _flash_forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[torch.Tensor, ...]:
    reject_unsupported(_FUNCTION, {"seqused_k": seqused_k, "block_table": block_table, "num_splits": num_splits})
    window = _read_window(window_size_left, window_size_right)
    out, lse = _compute(
        query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, scale, window,
        alibi_slopes,
    )  # fmt: skip
    return _match_strides(query, out), lse, *_make_unused(query)


def _flash_forward_in_place(out: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
    result, lse, *_ = _flash_forward(*arguments, **options)
    out.copy_(result)
    return lse


def _flash_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: torch.Tensor,  # noqa: ARG001  (the arguments of the operator)
    unused: torch.Tensor,  # noqa: ARG001
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[torch.Tensor, ...]:
    reject_unsupported(_FUNCTION, {"dropout_p": dropout_p}, _DEFAULTS)
    window = _read_window(window_size_left, window_size_right)
    found = _differentiate(
        grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, is_causal, scale, window
    )
    return tuple(map(_match_strides, (query, key, value), found))


def _sdpa_forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Tensors are (batch, heads, seqlen, size). The other lengths that PyTorch expects are those of packed tensors."""
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    lengths = (q.shape[1], k.shape[1])
    out, lse = _compute(q, k, v, None, None, *lengths, dropout_p, is_causal, return_debug_mask, scale, list(NO_WINDOW))
    return _match_strides(query, out.transpose(1, 2)), lse, None, None, *lengths, *_make_unused(query)


def _sdpa_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: torch.Tensor | None,  # noqa: ARG001  (the arguments of the operator)
    cum_seq_k: torch.Tensor | None,  # noqa: ARG001
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: torch.Tensor,  # noqa: ARG001
    philox_offset: torch.Tensor,  # noqa: ARG001
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    reject_unsupported(_FUNCTION, {"dropout_p": dropout_p}, _DEFAULTS)
    d_o, q, k, v, o = (tensor.transpose(1, 2) for tensor in (grad_out, query, key, value, out))
    found = _differentiate(d_o, q, k, v, o, logsumexp, None, None, max_q, max_k, is_causal, scale, list(NO_WINDOW))
    return tuple(
        _match_strides(like, each.transpose(1, 2)) for like, each in zip((query, key, value), found, strict=True)
    )


_IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "_flash_attention_forward": _flash_forward,
    "_flash_attention_forward_no_dropout_inplace": _flash_forward_in_place,
    "_flash_attention_backward": _flash_backward,
    "_scaled_dot_product_flash_attention": _sdpa_forward,
    "_scaled_dot_product_flash_attention_backward": _sdpa_backward,
}
