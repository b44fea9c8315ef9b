"""Modules that compute with Tilewright's operators."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.base.errors import choose
from tilewright.ops.gemm.functions import ACTIVATIONS
from tilewright.torch.convolution import conv1d, conv2d, conv3d
from tilewright.torch.matmul import linear


class Linear(torch.nn.Linear):
    """`torch.nn.Linear` on Tilewright's kernels, with an optional activation in the same kernel."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        activation: str | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        if activation is not None:
            choose("activation", activation, ACTIVATIONS)
        self.activation = activation

    @classmethod
    def from_torch(cls, module: torch.nn.Linear, activation: str | None = None) -> Linear:
        """The same layer on Tilewright's kernels. It shares its parameters with `module`."""
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)
        made.in_features, made.out_features = module.in_features, module.out_features
        made.weight, made.bias = module.weight, module.bias
        made.activation = activation
        return made

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply the layer."""
        return linear(input, self.weight, self.bias, self.activation)


class Conv1d(torch.nn.Conv1d):
    """`torch.nn.Conv1d` on Tilewright's kernels."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply the layer."""
        padding: Any = self.padding
        return conv1d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(torch.nn.Conv2d):
    """`torch.nn.Conv2d` on Tilewright's kernels."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply the layer."""
        padding: Any = self.padding
        return conv2d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(torch.nn.Conv3d):
    """`torch.nn.Conv3d` on Tilewright's kernels."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply the layer."""
        padding: Any = self.padding
        return conv3d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


_REPLACED: dict[type[torch.nn.Module], type[torch.nn.Module]] = {
    torch.nn.Linear: Linear,
    torch.nn.Conv1d: Conv1d,
    torch.nn.Conv2d: Conv2d,
    torch.nn.Conv3d: Conv3d,
}


def replace_modules(model: torch.nn.Module) -> list[str]:
    """Replace the linear layers and convolutions of a model in place. Returns the names of the replaced modules.

    Parameters stay the same objects. Only exact types are replaced, since a derived class may compute something else,
    and convolutions only if they pad with zeros.
    """
    replaced = []
    for name, module in model.named_modules():
        found = _REPLACED.get(type(module))
        if found is not None and getattr(module, "padding_mode", "zeros") == "zeros":
            module.__class__ = found
            if isinstance(module, Linear):
                module.activation = None
            replaced.append(name)
    return replaced
