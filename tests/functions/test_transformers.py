"""Models of Transformers with `attn_implementation="tilewright"` compute what they compute with eager attention.

Kernels are replaced by torch: what is tested is which queries and keys they get. The kernels themselves are tested with
some of these cases in test_transformers_kernels.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functions.reference_operators import compute_by_torch
from tilewright.base.errors import InvalidValueError, UnsupportedError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers.generation.configuration_utils import (  # noqa: E402  (needs transformers)
    ALL_CACHE_IMPLEMENTATIONS,
    DEPRECATED_STATIC_CACHE_IMPLEMENTATIONS,
)

from tilewright import torch as twt  # noqa: E402  (needs torch)

PAGE = Path(__file__).resolve().parents[2] / "docs/start/pytorch.md"
# Sums of up to a hundred terms in float32, in two layers, in another order.
TOLERANCE = 100 * 2 * 2**-24
SIZES = {
    **{"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 64, "pad_token_id": 0},
}
WINDOW = {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1}
EXPERTS = {"num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
TOKENS = torch.randint(1, 64, (3, 9), generator=torch.Generator().manual_seed(1))
RIGHT = torch.tensor([[1] * 9, [1] * 7 + [0] * 2, [1] * 8 + [0]])
PADDINGS = {
    "none": None,
    "left": torch.tensor([[1] * 9, [0] * 3 + [1] * 6, [0] * 8 + [1]]),
    "right": RIGHT,
    "holes": torch.tensor([[1] * 9, [0, 1, 1, 0, 1, 1, 1, 0, 0], [1, 0, 1, 0, 1, 0, 1, 0, 1]]),
}
# Arguments of `generate`. The quantized cache takes its scale from all keys, those of padding too, which in a second
# layer are not eager's: it is tested with one layer.
CACHES: dict[str, dict[str, Any]] = {
    "no cache": {"use_cache": False},
    "dynamic": {"cache_implementation": "dynamic"},
    "static": {"cache_implementation": "static"},
    "quantized (fp8)": {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}},
}
NOT_TESTED = {
    "offloaded": "it moves layers to a GPU and back",
    "offloaded_static": "it moves layers to a GPU and back",
    **dict.fromkeys(DEPRECATED_STATIC_CACHE_IMPLEMENTATIONS, "another name of the static caches"),
}
# Layers with another window than the model, caches and padding that are an error, and why.
REFUSED = {
    ("window", "no cache", "right"): UnsupportedError,  # new tokens come after padding, and windows count it
    ("window", "quantized (fp8)", "none"): ValueError,  # Transformers has no such cache
    ("window", "quantized (fp8)", "left"): ValueError,
    ("window", "quantized (fp8)", "right"): ValueError,
}


@pytest.fixture(autouse=True)
def _use_reference() -> Iterator[None]:
    twt.register_attention()
    with compute_by_torch():
        yield


def make_model(name: str, **changes: Any) -> Any:
    """A model with large weights, so that a wrong mask changes its tokens."""
    torch.manual_seed(0)
    sizes = {**SIZES, **changes}
    kinds = {
        "full": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)),
        "window": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, sliding_window=4)),
        "window in some layers": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes, **WINDOW)),
        "window without keyword": lambda: transformers.Qwen2MoeForCausalLM(
            transformers.Qwen2MoeConfig(**sizes, **WINDOW, **EXPERTS)
        ),
        "chunks": lambda: transformers.Llama4ForCausalLM(
            transformers.Llama4TextConfig(
                **sizes, head_dim=16, attention_chunk_size=4, num_local_experts=2, intermediate_size_mlp=64
            )
        ),
        "softcap": lambda: transformers.Gemma2ForCausalLM(
            transformers.Gemma2Config(**sizes, head_dim=16, sliding_window=4)
        ),
        "encoder": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**sizes)),
        "encoder with window": lambda: transformers.ModernBertForMaskedLM(
            transformers.ModernBertConfig(**sizes, local_attention=4)
        ),
    }
    model = kinds[name]().eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data *= 3
    return model


def compare(mine: Any, theirs: Any) -> None:
    assert mine.shape == theirs.shape
    assert (mine - theirs).abs().max() <= TOLERANCE * theirs.abs().max()


def generate(model: Any, padding: str, **options: Any) -> tuple[Any, Any]:
    """The new tokens, and their logits."""
    result = model.generate(
        TOKENS, attention_mask=PADDINGS[padding], max_new_tokens=6, do_sample=False, output_logits=True,
        return_dict_in_generate=True, **options,
    )  # fmt: skip
    return result.sequences[:, TOKENS.shape[1] :], torch.stack(result.logits)


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("layers", ["full", "window"])
def test_generated_tokens_are_those_of_eager_attention(layers: str, cache: str, padding: str) -> None:
    model = make_model(layers, **({"num_hidden_layers": 1} if "quantized" in cache else {}))
    if (layers, cache, padding) in REFUSED:
        model.set_attn_implementation("tilewright")
        with pytest.raises(REFUSED[layers, cache, padding]):
            generate(model, padding, **CACHES[cache])
        return
    model.set_attn_implementation("eager")
    tokens, logits = generate(model, padding, **CACHES[cache])
    model.set_attn_implementation("tilewright")
    found, found_logits = generate(model, padding, **CACHES[cache])
    assert found.tolist() == tokens.tolist()
    compare(found_logits, logits)


def test_every_cache_of_transformers_is_tested_or_has_a_reason() -> None:
    tested = {options.get("cache_implementation") for options in CACHES.values()}
    assert {*ALL_CACHE_IMPLEMENTATIONS} == {name for name in tested if name} | {*NOT_TESTED}


def compute(model: Any, attention: str, padding: str, gradient: bool) -> list[Any]:
    """The logits of all tokens, and gradients of all parameters."""
    model.set_attn_implementation(attention)
    mask = PADDINGS[padding]
    tokens = torch.ones_like(TOKENS) if mask is None else mask
    with torch.set_grad_enabled(gradient):
        options = {"use_cache": False} if gradient else {}
        logits = model(TOKENS, attention_mask=mask, **options).logits[tokens.bool()]
    if not gradient:
        return [logits]
    model.zero_grad()
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2))
    (logits * weights).sum().backward()
    # A bias of all keys adds a constant to the scores of a query, so that its gradient is zero but for rounding.
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if "key.bias" not in name}
    return [logits.detach(), *(each for each in gradients.values() if each is not None)]


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(
    ("name", "gradient"),
    [
        *((name, True) for name in ("full", "window", "window in some layers", "window without keyword", "encoder")),
        *((name, False) for name in ("chunks", "softcap", "encoder with window")),
    ],
)
def test_logits_and_gradients_are_those_of_eager_attention(name: str, padding: str, gradient: bool) -> None:
    model = make_model(name)
    if padding == "holes" and ("window" in name or name == "softcap"):
        with pytest.raises(UnsupportedError, match="padding between tokens"):
            compute(model, "tilewright", padding, gradient)
        return
    theirs = compute(model, "eager", padding, gradient)
    mine = compute(model, "tilewright", padding, gradient)
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs, strict=True):
        compare(one, other)


@pytest.mark.parametrize("padding", ["left", "right", "holes"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_an_encoder_and_a_decoder_are_those_of_eager_attention(cache: str, padding: str) -> None:
    torch.manual_seed(0)
    config = transformers.BartConfig(
        d_model=64, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=64, max_position_embeddings=64, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    model = transformers.BartForConditionalGeneration(config).eval()
    results = {}
    for attention in ("eager", "tilewright"):
        model.set_attn_implementation(attention)
        options = {"max_new_tokens": 5, "do_sample": False, "cache_implementation": cache}
        tokens = model.generate(TOKENS, attention_mask=PADDINGS[padding], **options)
        with torch.no_grad():
            logits = model(TOKENS, attention_mask=PADDINGS[padding], decoder_input_ids=TOKENS[:, :4]).logits
        results[attention] = (tokens, logits)
    assert torch.equal(results["tilewright"][0], results["eager"][0])
    compare(results["tilewright"][1], results["eager"][1])


PACKED = {"position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1]]), "use_cache": False}
STARTS = torch.tensor([0, 4, 7, 9], dtype=torch.int32)
LENGTHS = {"cu_seq_lens_q": STARTS, "cu_seq_lens_k": STARTS, "max_length_q": 4, "max_length_k": 4}


@pytest.mark.parametrize("lengths", [{}, LENGTHS], ids=["positions", "positions and lengths"])
@pytest.mark.parametrize("layers", ["full", "window"])
def test_packed_sequences_are_those_of_eager_attention(layers: str, lengths: dict[str, Any]) -> None:
    model = make_model(layers)
    logits = {}
    for attention in ("eager", "tilewright"):
        model.set_attn_implementation(attention)
        with torch.no_grad():
            logits[attention] = model(TOKENS[:1], **PACKED, **(lengths if attention == "tilewright" else {})).logits
    compare(logits["tilewright"], logits["eager"])


def test_lengths_alone_are_packed_sequences() -> None:
    """A model without a mask, such as the vision part of Qwen-VL, passes only the lengths."""
    attention = transformers.AttentionInterface()["tilewright"]
    q, k, v = (torch.randn(1, 2, 9, 16, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2, 3))
    found, _ = attention(torch.nn.Module(), q, k, v, None, is_causal=False, **LENGTHS)
    wanted = [
        torch.nn.functional.scaled_dot_product_attention(*(each[:, :, first:last] for each in (q, k, v)))
        for first, last in ((0, 4), (4, 7), (7, 9))
    ]
    compare(found, torch.cat(wanted, 2).transpose(1, 2))


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a mask of four dimensions": ({"attention_mask": torch.ones(3, 1, 9, 9).bool()}, InvalidValueError, "type Tensor"),
    "weights": ({"output_attentions": True}, InvalidValueError, "output_attentions"),
    "other sequences": (
        {"position_ids": PACKED["position_ids"].expand(1, -1), **LENGTHS, "cu_seq_lens_k": STARTS + 1},
        InvalidValueError,
        "not the sequences of position_ids",
    ),
    "some lengths": ({"cu_seq_lens_q": STARTS}, InvalidValueError, "needs all of"),
    "an unknown keyword": ({"colour": 3}, InvalidValueError, "does not support colour, which is 3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_call_that_is_not_supported(name: str) -> None:
    options, error, message = WRONG[name]
    model = make_model("full")
    model.set_attn_implementation("tilewright")
    tokens = TOKENS[:1] if "sequences" in name else TOKENS
    with pytest.raises(error, match=message):
        model(tokens, use_cache=False, **options)


def test_a_prefix_that_sees_itself_is_an_error() -> None:
    from transformers.masking_utils import create_causal_mask

    model = make_model("full")
    model.set_attn_implementation("tilewright")
    with pytest.raises(UnsupportedError, match="sdpa"):
        create_causal_mask(
            config=model.config, inputs_embeds=torch.zeros(1, 9, 64), attention_mask=None, past_key_values=None,
            or_mask_function=lambda batch, head, query, key: (query < 4) & (key < 4),
        )  # fmt: skip


def make_table() -> str:
    """The table of the documentation."""
    columns = [(layers, padding) for layers in ("full", "window") for padding in ("none", "left", "right")]
    lines = [
        "| cache | full attention: no padding | left | right | sliding window: no padding | left | right |",
        "|---|---|---|---|---|---|---|",
    ]
    for cache in CACHES:
        cells = []
        for layers, padding in columns:
            error = REFUSED.get((layers, cache, padding))
            cells.append({None: "equal", UnsupportedError: "error", ValueError: "—"}[error])
        lines.append(f"| {' | '.join((cache, *cells))} |")
    lines.append(f"| {' | '.join(('no cache, gradients', *['equal'] * len(columns)))} |")
    return "\n".join(lines)


def test_the_documentation_has_the_tested_combinations() -> None:
    assert make_table() in PAGE.read_text(encoding="utf-8")
