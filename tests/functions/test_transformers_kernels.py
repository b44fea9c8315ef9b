"""Models of Transformers on attention kernels, in fp16 on the emulated device, compared with eager attention.

Heads of 32 elements are for batches without padding, and heads of 64 for packed sequences: CI's list has these kernels.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.functions.attention_kernels import get_kernels
from tests.functions.test_torch_operators import use

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from tilewright import torch as twt  # noqa: E402  (needs torch)

pytestmark = pytest.mark.compile
# Probabilities and results of the kernels are rounded to 11 bits, in one layer, and so are those of eager attention.
TOLERANCE = 4 * 2**-11
# Gradients are compared with those in float32: eager attention's own ones in fp16 differ by up to 3.2 of these steps.
GRADIENT_TOLERANCE = 8 * 2**-11
TOKENS = torch.arange(1, 19).reshape(2, 9)
PADDINGS = {
    "none": None,
    "left": torch.tensor([[1] * 9, [0] * 3 + [1] * 6]),
    "right": torch.tensor([[1] * 9, [1] * 6 + [0] * 3]),
}
GRADIENT_KERNELS = (
    "packed", "packed_plain", "packed_dot_do_o", "packed_gradients", "packed_masked_gradients", "packed_convert_dq",
)  # fmt: skip


def make_model(size: int, attention: str) -> Any:
    """A Llama of one layer: two heads share one head of keys and values."""
    twt.register_attention()
    torch.manual_seed(0)
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": size, "max_position_embeddings": 64}
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64, "pad_token_id": 0}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**heads, **sizes, attn_implementation=attention))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data *= 3
    return model.half().eval()


def compare(mine: Any, theirs: Any, tolerance: float = TOLERANCE) -> None:
    assert mine.shape == theirs.shape
    assert (mine.double() - theirs.double()).abs().max() <= tolerance * theirs.abs().max()


def generate(model: Any, padding: str, cache: str) -> tuple[Any, Any]:
    result = model.generate(
        TOKENS, attention_mask=PADDINGS[padding], cache_implementation=cache, max_new_tokens=3, do_sample=False,
        output_logits=True, return_dict_in_generate=True,
    )  # fmt: skip
    return result.sequences[:, TOKENS.shape[1] :], torch.stack(result.logits)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generated_tokens_are_those_of_eager_attention(cache: str, padding: str) -> None:
    size, names = (32, ("plain", "masked")) if padding == "none" else (64, ("packed", "packed_plain"))
    tokens, logits = generate(make_model(size, "eager"), padding, cache)
    with use(get_kernels(*names)):
        found, found_logits = generate(make_model(size, "tilewright"), padding, cache)
    assert found.tolist() == tokens.tolist()
    compare(found_logits, logits)


def compute_gradients(model: Any, padding: str) -> list[Any]:
    mask = PADDINGS[padding]
    logits = model(TOKENS, attention_mask=mask, use_cache=False).logits[mask.bool()]
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2)).to(logits.dtype)
    (logits * weights).sum().backward()
    return [logits.detach(), *(parameter.grad for parameter in model.parameters())]


@pytest.mark.parametrize("padding", ["left", "right"])
def test_gradients_of_a_batch_with_padding_are_those_of_eager_attention(padding: str) -> None:
    theirs = compute_gradients(make_model(64, "eager").float(), padding)
    with use(get_kernels(*GRADIENT_KERNELS)):
        mine = compute_gradients(make_model(64, "tilewright"), padding)
    for one, other in zip(mine, theirs, strict=True):
        compare(one, other, GRADIENT_TOLERANCE)
