"""The plan of `attention_gradient`."""

from __future__ import annotations

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.ops.array_plan import ArrayPlan, ArraySpec, check_same_type, match_results
from tilewright.ops.fmha.array_operands import (
    find_memory,
    get_pair_shape,
    get_query_shape,
    make_launch,
    make_plain_result,
    pack,
    prepare_bias,
)
from tilewright.ops.fmha.array_options import AttentionOptions
from tilewright.ops.fmha.array_sizes import Operands, find_types, format_shape, read_sizes
from tilewright.ops.fmha.problem import Problem

# The number of arguments, after which results are counted.
RESULT = 10


def plan_gradient(
    arch: Arch,  # noqa: ARG001  (planners of other functions depend on it)
    q: ArraySpec,
    k: ArraySpec,
    v: ArraySpec,
    output_gradient: ArraySpec,
    out: ArraySpec,
    lse: ArraySpec,
    bias: ArraySpec | None,
    alibi_slopes: ArraySpec | None,
    cu_seqlens_q: ArraySpec | None,
    cu_seqlens_k: ArraySpec | None,
    *rest: ArraySpec | AttentionOptions | None,
) -> ArrayPlan:
    """One launch of three kernels. `rest` are the arrays for the gradients, and the options."""
    *outs, options = rest
    assert isinstance(options, AttentionOptions)
    options.check()
    given = Operands(
        q=q,
        k=k,
        v=v,
        bias=bias,
        alibi_slopes=alibi_slopes,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
    )
    sizes = read_sizes(given, options)
    dtype = find_types(q, out)
    check_same_type(q, output_gradient, out)
    _check_shapes((output_gradient, out), (*q.shape[:-1], sizes.hdim_v))
    _check_shapes((lse,), get_query_shape(sizes))
    if lse.dtype != "fp32":
        raise TensorError("lse must be float32: pass the one that attention returned")
    if options.bias_gradient and bias is None:
        raise InvalidValueError("bias_gradient is set, but bias is None: pass the bias of the forward call")
    memory = find_memory(options.layout, q, k, v, output_gradient, out)
    made = match_results(outs, ("dq", "dk", "dv", "dbias")[: 3 + options.bias_gradient], "gradients")
    dq, dk, dv = (
        memory.make_result(made[place], f"d{like.name}", RESULT + place, q.dtype, like.shape)
        for place, like in enumerate((q, k, v))
    )
    dbias = None
    if options.bias_gradient and bias is not None:
        dbias = make_plain_result(made[3], "dbias", RESULT + 3, bias.dtype, get_pair_shape(sizes))
    results = (dq, dk, dv) if dbias is None else (dq, dk, dv, dbias)
    if sizes.empty:
        return ArrayPlan(results, zeros=True)
    added, addend = prepare_bias(given, options, sizes, dtype)
    problem = Problem(
        family="backward",
        dtype=dtype,
        layout=memory.layout,
        bias=added,
        bias_gradient=options.bias_gradient,
        deterministic=options.deterministic,
        **sizes.describe(),
        **options.describe_scores(sizes.length_q, sizes.length_k),
    )
    tables = {"seqstart_q": cu_seqlens_q, "seqstart_k": cu_seqlens_k}
    inputs = {"q": q, "k": k, "v": v, "o": out, "d_o": output_gradient}
    gradients = {"dq": dq, "dk": dk, "dv": dv}
    launch = make_launch(
        problem,
        {
            **{name: memory.view(array) for name, array in inputs.items()},
            **{"lse": pack(lse), "bias": addend, "dbias": dbias},
            **{name: None if table is None else pack(table) for name, table in tables.items()},
            **{name: memory.view_result(array) for name, array in gradients.items()},
        },
    )
    return ArrayPlan(results, (launch,))


def _check_shapes(arrays: tuple[ArraySpec, ...], shape: tuple[int, ...]) -> None:
    for array in arrays:
        if array.shape != shape:
            wanted = "×".join(map(str, shape))
            raise TensorError(f"{array.name} is {format_shape(array)}, must be {wanted}")
