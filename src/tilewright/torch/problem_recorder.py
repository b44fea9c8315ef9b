"""Records the products, convolutions and attentions of a model as problems, with all sizes that it computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tilewright.arch.dtype_names import read_dtype_name
from tilewright.base.atomic_write import create_folder, write_text
from tilewright.base.errors import TilewrightError
from tilewright.base.short_text import join_counts
from tilewright.ops import find_op, fmha, gemm, grouped_conv, infer_problem_op
from tilewright.ops.problem_list import to_csv

_Problems = Iterator[Any]


@dataclass
class RecordedProblems:
    """Problems by op, each once in the order of its first call. `counts` has the number of calls of each problem.

    `skipped` has the operators that no problem can describe, such as products of integers, with their numbers.
    """

    counts: dict[Any, int] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def problems(self) -> dict[str, list[Any]]:
        """Op → its problems."""
        found: dict[str, list[Any]] = {}
        for problem in self.counts:
            found.setdefault(infer_problem_op(problem).name, []).append(problem)
        return found

    def save(self, folder: Path | str, *, repeated: bool = False) -> list[Path]:
        """Write a list of problems for each op, `gemm.csv` …; `repeated` as often as they were called."""
        folder = Path(folder)
        create_folder(folder)
        written = []
        for op, problems in self.problems.items():
            listed = [problem for problem in problems for _ in range(self.counts[problem] if repeated else 1)]
            written.append(folder / f"{op}.csv")
            write_text(written[-1], to_csv(find_op(op), listed))
        return written

    def __repr__(self) -> str:
        counts = join_counts(*((len(found), f"{op} problems") for op, found in self.problems.items()))
        return f"RecordedProblems({counts or 'none'}, {sum(self.counts.values()):,} calls)"


@contextmanager
def record_problems() -> Iterator[RecordedProblems]:
    """Record every product, convolution and attention that torch computes inside the `with` block.

    The model computes as before. On torch's device `meta` it takes no time and no memory:
    `with torch.device("meta"): model = Model()`.
    """
    recorded = RecordedProblems()
    products = _OperatorRecorder(recorded)
    with products, _AttentionRecorder(recorded, products):
        yield recorded


class _OperatorRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records operators that reach a device, those of gradients too."""

    def __init__(self, recorded: RecordedProblems) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorded = recorded
        self.paused = False  # inside an attention, whose products are not problems of their own

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = func._schema.name
        if named not in _READERS and func._can_decompose():
            with self:  # in inference mode, operators arrive that consist of others
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        result = func(*args, **(kwargs or {}))
        if named in _READERS and not self.paused:
            _add_problems(self.recorded, named, _READERS[named], args, result)
        return result


class _AttentionRecorder(TorchFunctionMode):
    """Records calls of torch's attention before they are divided into products."""

    def __init__(self, recorded: RecordedProblems, products: _OperatorRecorder) -> None:
        super().__init__()
        self.recorded = recorded
        self.products = products

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False))
        given |= kwargs or {}
        _add_problems(self.recorded, "scaled_dot_product_attention", _read_attention, (given,), None)
        self.products.paused = True
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.products.paused = False


def _add_problems(
    recorded: RecordedProblems,
    named: str,
    read: Callable[[Sequence[Any], Any], _Problems],
    args: Sequence[Any],
    result: Any,
) -> None:
    try:
        for problem in list(read(args, result)):
            recorded.counts[problem] = recorded.counts.get(problem, 0) + 1
    except TilewrightError as error:
        recorded.skipped[f"{named}: {error}"] += 1


def _read_product(a: torch.Tensor, b: torch.Tensor, **more: Any) -> _Problems:
    """One product of matrices, or of batches of them."""
    *batch, m, k = a.shape
    if 0 in (*a.shape, *b.shape):
        return
    layout = _find_layout(a) + _find_layout(b) + "r"
    dtype = _name_type(a)
    yield gemm.Problem(m=m, n=b.shape[-1], k=k, dtype=dtype, layout=layout, batch=batch[0] if batch else 1, **more)


def _name_type(tensor: torch.Tensor) -> str:
    return str(read_dtype_name(tensor.dtype))


def _find_layout(matrix: torch.Tensor) -> str:
    """Row-major, or column-major as a transposed weight. Other matrices are copied to rows first."""
    return "c" if matrix.stride(-2) == 1 and matrix.stride(-1) != 1 else "r"


def _read_sum(args: Sequence[Any], _: Any) -> _Problems:
    """A product and a bias, which one kernel adds."""
    bias, a, b = args[:3]
    return _read_product(a, b, elementwise="MultiDAdd", num_d=1, num_row_d=int(bias.dim() < 2))


def _read_convolution(args: Sequence[Any], result: Any) -> _Problems:
    images, weight, _, stride, padding, dilation, transposed, _, groups = args[:9]
    if transposed:  # the gradient of the input of another convolution, whose input is this one's result
        yield _make_convolution("backward_data", result, weight, stride, padding, dilation, groups)
    else:
        yield _make_convolution("forward", images, weight, stride, padding, dilation, groups)


def _read_convolution_gradient(args: Sequence[Any], _: Any) -> _Problems:
    gradient, images, weight, _, stride, padding, dilation, transposed, _, groups, wanted = args[:11]
    if transposed:
        images = gradient
    directions = ("forward" if transposed else "backward_data", "backward_weight")
    for direction, needed in zip(directions, wanted[:2], strict=True):
        if needed:
            yield _make_convolution(direction, images, weight, stride, padding, dilation, groups)


def _make_convolution(
    direction: str,
    images: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Any:
    return grouped_conv.Problem(
        direction=direction,
        n=images.shape[0],
        g=groups,
        c=images.shape[1],
        k=weight.shape[0],
        input_size=tuple(images.shape[2:]),
        filter_size=tuple(weight.shape[2:]),
        stride=tuple(stride),
        dilation=tuple(dilation),
        pad=tuple(padding),
        dtype=_name_type(images),
    )


def _read_attention(args: Sequence[Any], _: Any) -> _Problems:
    given = args[0]
    query, key, value = given["query"], given["key"], given["value"]
    with_gradient = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
    yield _make_attention(
        "forward",
        query,
        key,
        value,
        mask="top_left" if given.get("is_causal") else "none",
        bias="none" if given.get("attn_mask") is None else "elementwise",
        p_drop=float(given.get("dropout_p", 0.0)),
        scale=given.get("scale") or 0.0,
        lse=with_gradient,
    )


def _read_attention_gradient(args: Sequence[Any], _: Any) -> _Problems:
    yield _make_attention("backward", *args[1:4])


def _make_attention(family: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **more: Any) -> Any:
    heads, batch = (query.shape[-3] if query.dim() > 2 else 1), query.shape[:-3].numel()
    return fmha.Problem(
        family=family,
        dtype=_name_type(query),
        batch=batch,
        heads=heads,
        kv_heads=key.shape[-3] if key.dim() > 2 else 1,
        seqlen_q=query.shape[-2],
        seqlen_k=key.shape[-2],
        hdim_q=query.shape[-1],
        hdim_v=value.shape[-1],
        layout="bshd" if query.dim() > 2 and query.stride(-3) < query.stride(-2) else "bhsd",
        **more,
    )


# Operators of torch that are problems, by name.
_READERS: Mapping[str, Callable[[Sequence[Any], Any], _Problems]] = {
    "aten::mm": lambda args, _: _read_product(*args[:2]),
    "aten::bmm": lambda args, _: _read_product(*args[:2]),
    "aten::addmm": _read_sum,
    "aten::baddbmm": lambda args, _: _read_product(*args[1:3]),
    "aten::convolution": _read_convolution,
    "aten::convolution_backward": _read_convolution_gradient,
    **{
        f"aten::_scaled_dot_product_{name}_backward": _read_attention_gradient
        for name in (
            *("flash_attention", "flash_attention_for_cpu", "efficient_attention", "fused_attention_overrideable"),
            "cudnn_attention",
        )
    },
}
