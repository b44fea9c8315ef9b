"""Models of toy size on the emulated device: every product, attention and convolution runs on Tilewright's kernels."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from tilewright import torch as twt  # noqa: E402  (needs torch)

pytestmark = [pytest.mark.compile, pytest.mark.deep]
# The largest difference of a tensor, relative to its norm. Eager torch in half precision differs by up to 0.004.
TOLERANCE = 0.02


def make_llama(attention: str) -> Any:
    """A Llama of one layer: two heads of 32 elements share one head of keys and values."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "vocab_size": 80}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
    config = transformers.LlamaConfig(**sizes, **heads, attn_implementation=attention)
    return transformers.LlamaForCausalLM(config).half()


def run_llama(model: Any) -> Any:
    tokens = torch.arange(48).reshape(2, 24) % 80
    return model(input_ids=tokens, use_cache=False).logits


class ResidualBlock(torch.nn.Module):  # type: ignore[misc,name-defined]
    """The basic block of a ResNet that halves the image, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        layers = torch.nn
        self.first = layers.Conv2d(16, 32, 3, stride=2, padding=1, bias=False)
        self.second = layers.Conv2d(32, 32, 3, padding=1, bias=False)
        self.shortcut = layers.Conv2d(16, 32, 1, stride=2, bias=False)
        self.norms = layers.ModuleList(layers.BatchNorm2d(32) for _ in range(3))
        self.classifier = layers.Linear(32, 8)

    def forward(self, images: Any) -> Any:
        relu = torch.nn.functional.relu
        found = self.norms[1](self.second(relu(self.norms[0](self.first(images)))))
        return self.classifier(relu(found + self.norms[2](self.shortcut(images))).mean((2, 3)))


def run_block(model: Any) -> Any:
    images = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(2))
    return model(images.to(next(model.parameters()).dtype))


def compare(name: str, mine: Any, theirs: Any) -> None:
    difference = (mine.double() - theirs.double()).norm() / theirs.double().norm()
    assert difference < TOLERANCE, f"{name} differs by {difference:.4f} of its norm"


def check_model(model: Any, run: Callable[[Any], Any], arch: str) -> list[str]:
    """Compare logits and gradients with eager torch in float32; return the kernels that ran."""
    eager = copy.deepcopy(model).float()
    if hasattr(eager, "set_attn_implementation"):
        eager.set_attn_implementation("eager")
    replaced = twt.replace_modules(model)
    assert replaced
    wanted = run(eager)
    weights = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(3))
    (wanted * weights).sum().backward()
    before = set(tw.list_used_kernels())
    with twt.emulate(arch):
        found = run(model)
        (found * weights.half()).sum().backward()
    compare("the result", found, wanted)
    for (name, mine), theirs in zip(model.named_parameters(), eager.parameters(), strict=True):
        compare(f"the gradient of {name}", mine.grad, theirs.grad)
    return [kernel.slug for kernel in tw.list_used_kernels() if kernel not in before]


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_llama_runs_forward_and_backward(arch: str) -> None:
    twt.register_attention()
    with tw.options(build="auto"):
        kernels = check_model(make_llama("tilewright"), run_llama, arch)
    print("\n".join(kernels))
    assert len(kernels) >= 6


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_residual_block_runs_forward_and_backward(arch: str) -> None:
    kernels = check_model(ResidualBlock().half(), run_block, arch)
    print("\n".join(kernels))
    assert len(kernels) >= 4
