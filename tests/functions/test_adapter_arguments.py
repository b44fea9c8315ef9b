"""Every argument that an adapter of another library receives is used, is an error, or is ignored for a reason."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright.base.errors import InvalidValueError, TilewrightError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402  (needs torch)
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from transformers import masking_utils  # noqa: E402  (needs transformers)
from transformers.modeling_flash_attention_utils import FlashAttentionKwargs  # noqa: E402
from transformers.utils.generic import TransformersKwargs  # noqa: E402

from tests.functions.reference_operators import compute_by_torch  # noqa: E402
from tilewright import torch as twt  # noqa: E402

SOURCES = Path(twt.__file__).parent
ADAPTERS = (
    *("attention_masks", "batch_prefill", "flash_attention", "inductor", "mixture_of_experts", "torch_attention"),
    *("transformers", "vllm"),
)
# Arguments that no statement uses.
UNUSED = {
    "mha_batch_prefill_func.deterministic": "kernels have no order that changes",
    "fused_moe.block_size_M": "chooses among aiter's kernels",
    "fused_moe.moe_sorting_dispatch_policy": "chooses among aiter's kernels",
    "_flash_backward.rng_state": "dropout is an error",
    "_flash_backward.unused": "PyTorch's forward operator returns it, and it is empty",
    "_sdpa_backward.cum_seq_q": "the forward operator returns None",
    "_sdpa_backward.cum_seq_k": "the forward operator returns None",
    "_sdpa_backward.philox_seed": "dropout is an error",
    "_sdpa_backward.philox_offset": "dropout is an error",
    "get_quant_method.prefix": "the method of a layer is that of its type",
}


def list_functions() -> Iterator[ast.FunctionDef]:
    for name in ADAPTERS:
        for node in ast.walk(ast.parse((SOURCES / f"{name}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield node


def list_loaded(function: ast.FunctionDef) -> set[str]:
    body = (node for statement in function.body for node in ast.walk(statement))
    return {node.id for node in body if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def test_every_unused_argument_has_a_reason() -> None:
    unused = set()
    for function in list_functions():
        parameters = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
        names = {each.arg for each in parameters} - {"self", "cls"} - list_loaded(function)
        unused |= {f"{function.name}.{name}" for name in names}
    assert unused == {*UNUSED}


def test_other_keywords_are_rejected_or_passed_on() -> None:
    functions = [function for function in list_functions() if function.args.kwarg is not None]
    assert {function.name for function in functions} >= {"compute_attention", "make_mask"}
    for function in functions:
        assert function.args.kwarg is not None
        name = function.args.kwarg.arg
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        passed = any(
            keyword.arg is None and ast.unparse(keyword.value) == name for c in calls for keyword in c.keywords
        )
        rejected = any(ast.unparse(call.func) == "reject_unsupported" and name in ast.unparse(call) for call in calls)
        assert passed or rejected, f"{function.name} drops **{name}"


# Keywords of models, which they pass to attention with all others.
OF_MODELS = {
    *("num_items_in_batch", "output_hidden_states", "output_router_logits", "position_ids", "seq_idx", "use_cache"),
    *("cache_position", "return_dict"),
}
# Those that attention with tilewright computes.
COMPUTED = {
    *("attention_mask", "dropout", "scaling", "sliding_window", "softcap", "is_causal", "deterministic"),
    *("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "query", "key", "value"),
}


# The names of attention functions in models.
CALL = re.compile(r"(?<!def )\b(attention_interface|attention_fn|attention_function|attn_interface)\(")


def list_passed_keywords() -> set[str]:
    """The keywords that the models of the installed Transformers pass to their attention function."""
    names = {*TransformersKwargs.__annotations__, *FlashAttentionKwargs.__annotations__, "use_cache", "cache"}
    for file in sorted((Path(transformers.__file__).parent / "models").glob("*/modeling_*.py")):
        source = file.read_text(encoding="utf-8")
        for match in CALL.finditer(source):
            end = match.end()
            while (text := source[match.start() : end]).count("(") != text.count(")"):
                end += 1
            call = ast.parse(text.strip(), mode="eval").body
            assert isinstance(call, ast.Call)
            names |= {keyword.arg for keyword in call.keywords if keyword.arg is not None}
    return names


def attend(**options: Any) -> Any:
    twt.register_attention()
    attention = transformers.AttentionInterface()["tilewright"]
    q, k, v = (torch.randn(1, 2, 6, 16, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2, 3))
    return attention(torch.nn.Module(), q, k, v, None, **options)[0]


def test_every_keyword_of_transformers_models_is_computed_or_an_error() -> None:
    passed = list_passed_keywords()
    assert passed >= {"scaling", "sliding_window", "s_aux", "position_bias", "softcap", "deterministic"}
    with compute_by_torch():
        plain = attend()
        for name in sorted((passed | {"head_mask", "colour"}) - COMPUTED):
            if name in OF_MODELS:
                assert torch.equal(attend(**{name: torch.ones(2)}), plain)
                continue
            with pytest.raises(InvalidValueError, match=name):
                attend(**{name: torch.ones(2)})


CHANGED = {
    "scaling": {"scaling": 0.5},
    "sliding_window": {"sliding_window": 2},
    "softcap": {"softcap": 0.5},
    "is_causal": {"is_causal": True},
    "cu_seq_lens_q": {
        **dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k"), torch.tensor([0, 2, 6])),
        **dict.fromkeys(("max_length_q", "max_length_k"), torch.tensor(4)),
    },
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_keyword_of_transformers_changes_the_result(name: str) -> None:
    with compute_by_torch():
        assert (attend(**CHANGED[name]) - attend()).abs().max() > 1e-3


def test_every_keyword_of_a_mask_is_known() -> None:
    """Those that Transformers passes to its own mask functions."""
    passed = set()
    for node in ast.walk(ast.parse(inspect.getsource(masking_utils))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "mask_interface":
            passed |= {keyword.arg for keyword in node.keywords if keyword.arg is not None}
    assert "kv_offset" in passed
    twt.register_attention()
    make_mask = masking_utils.AttentionMaskInterface()["tilewright"]
    sizes = {"batch_size": 1, "q_length": 4, "kv_length": 4}
    assert make_mask(**sizes, **dict.fromkeys(passed - sizes.keys() - {"q_offset", "kv_offset", "device"})).keys == 4
    with pytest.raises(InvalidValueError, match="colour"):
        make_mask(**sizes, colour=3)


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Records operators with the numbers and the shapes that they get."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [(tuple(x.shape), x.dtype) if isinstance(x, torch.Tensor) else x for x in (*args, kwargs)]
        self.calls.append(f"{func}{given}")
        return func(*args, **(kwargs or {}))


def record(function: Callable[..., Any], arguments: dict[str, Any]) -> tuple[list[str], Any]:
    """The operators of a call, and the form of its result; tensors have no values."""
    with FakeTensorMode() as mode:
        fake = {n: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for n, x in arguments.items()}
        with Recorder() as recorder:
            result = function(**fake)
    return recorder.calls, [(each.shape, each.dtype) for each in torch.utils._pytree.tree_leaves(result)]


HALF = torch.zeros(2, 8, 4, 32).half()
PACKED = torch.zeros(16, 4, 32).half()
STARTS = torch.tensor([0, 8, 16]).int()
EXPERTS = {
    **{"hidden_states": torch.zeros(5, 64).half(), "w1": torch.zeros(4, 64, 64).half()},
    **{"w2": torch.zeros(4, 64, 32).half(), "topk_weight": torch.zeros(5, 2), "topk_ids": torch.zeros(5, 2).int()},
}
LENGTHS = {"cu_seqlens_q": STARTS, "cu_seqlens_k": STARTS, "max_seqlen_q": 8, "max_seqlen_k": 8}
CALLS: dict[str, dict[str, Any]] = {
    "flash_attn_func": dict.fromkeys("qkv", HALF),
    "flash_attn_varlen_func": {**dict.fromkeys("qkv", PACKED), **LENGTHS},
    "flash_attn_with_kvcache": dict.fromkeys(("q", "k_cache", "v_cache"), HALF),
    "fused_moe": EXPERTS,
}
# Other values than the default ones. The signatures of flash-attn 2.8 are compared in test_torch_operators.py; that of
# fused_moe is in aiter/fused_moe.py at the commit 00062184 of 2026.
OTHER: dict[str, Any] = {
    **{"dropout_p": 0.5, "softmax_scale": 0.3, "causal": True, "window_size": (3, 0), "softcap": 2.0},
    **{"alibi_slopes": torch.zeros(4), "deterministic": True, "return_attn_probs": True, "num_splits": 2},
    **{"block_table": torch.zeros(2, 1).int(), "cache_seqlens": 5, "cache_batch_idx": STARTS, "cache_leftpad": STARTS},
    **{"k": HALF, "v": HALF, "rotary_cos": HALF, "rotary_sin": HALF, "return_softmax_lse": True},
    **{"expert_mask": torch.ones(4).int(), "activation": "gelu", "quant_type": "per_token", "doweight_stage1": True},
    **dict.fromkeys(("w1_scale", "w2_scale", "a1_scale", "a2_scale", "bias1", "bias2"), torch.zeros(4, 64)),
    **{"num_local_tokens": STARTS, "dtype": torch.bfloat16, "hidden_pad": 8, "intermediate_pad": 8, "splitk": 2},
    **{"swiglu_alpha": 1.0, "swiglu_limit": 1.0},
}
NOT_CHANGED = {
    **dict.fromkeys(("flash_attn_func.dropout_p", "flash_attn_varlen_func.dropout_p"), "fake tensors have no seed"),
    "flash_attn_with_kvcache.rotary_interleaved": "only with rotary_cos",
    "fused_moe.swiglu_alpha": "only with the activation swiglu",
    "fused_moe.swiglu_limit": "only with the activation swiglu",
    **UNUSED,
}


def list_optional_arguments() -> list[tuple[str, str]]:
    signatures = {name: inspect.signature(getattr(twt, name)).parameters for name in CALLS}
    optional = [(name, each) for name, found in signatures.items() for each in found if each not in CALLS[name]]
    return [each for each in optional if ".".join(each) not in NOT_CHANGED]


@pytest.mark.parametrize(("name", "parameter"), list_optional_arguments())
def test_an_argument_reaches_an_operator_or_is_an_error(name: str, parameter: str) -> None:
    function, given = getattr(twt, name), CALLS[name]
    if parameter == "cache_seqlens":  # a number is made a tensor of its length on the device
        given = {**given, "q": HALF[:, :1]}
    before = record(function, given)
    try:
        after = record(function, {**given, parameter: OTHER[parameter]})
    except TilewrightError:
        return
    assert after != before, f"{name} ignores {parameter}"


@pytest.mark.parametrize("name", [
    "_flash_attention_forward", "_flash_attention_forward_no_dropout_inplace", "_flash_attention_backward",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward",
])  # fmt: skip
def test_the_operators_of_pytorch_have_our_arguments(name: str) -> None:
    from tilewright.torch.torch_attention import _IMPLEMENTATIONS

    schema = getattr(torch.ops.aten, name).default._schema
    found = inspect.signature(_IMPLEMENTATIONS[name])
    positional = [None] * sum(not each.kwarg_only for each in schema.arguments)
    found.bind(*positional, **{each.name: None for each in schema.arguments if each.kwarg_only})
    if "inplace" not in name:  # it passes all but `out` on
        assert list(found.parameters) == [each.name for each in schema.arguments]


# Of vLLM 0.33: vllm/model_executor/layers/linear.py and quantization/base_config.py.
VLLM = {
    "apply": ["self", "layer", "x", "bias"],
    "get_name": ["self"],
    "get_supported_act_dtypes": ["self"],
    "get_min_capability": ["cls"],
    "get_config_filenames": [],
    "from_config": ["cls", "config"],
    "get_quant_method": ["self", "layer", "prefix"],
}


def test_the_methods_for_vllm_have_its_arguments() -> None:
    found = {f.name: [each.arg for each in f.args.args] for f in list_functions() if f.name in VLLM}
    assert found == VLLM
