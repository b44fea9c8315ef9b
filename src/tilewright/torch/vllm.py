"""The plugin for vLLM: `quantization="tilewright"` computes linear layers with Tilewright's kernels.

vLLM calls `register` in each of its processes, by the entry point group `vllm.general_plugins`. It has a registry of
linear kernels for quantized weights only, so unquantized layers are offered as a quantization method that leaves
weights as they are. Nothing changes unless you choose it.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import torch

from tilewright.base.errors import InvalidValueError, MissingExtraError
from tilewright.torch.matmul import linear

NAME = "tilewright"


def register() -> None:
    """Add the quantization method "tilewright" to vLLM. Calling it twice changes nothing."""
    if importlib.util.find_spec("vllm") is None:
        raise MissingExtraError("the plugin for vLLM needs vllm: install its build for ROCm, see https://docs.vllm.ai")
    make_config_type()


@functools.cache
def make_config_type() -> type:
    """The class of the method's config, derived from vLLM's. It is registered when it is made."""
    from vllm import envs  # noqa: PLC0415  (not one of our extras)
    from vllm.logger import init_logger  # noqa: PLC0415
    from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod  # noqa: PLC0415
    from vllm.model_executor.layers.quantization import register_quantization_config  # noqa: PLC0415
    from vllm.model_executor.layers.quantization.base_config import QuantizationConfig  # noqa: PLC0415

    class TilewrightLinearMethod(UnquantizedLinearMethod):  # type: ignore[misc]
        """Weights as vLLM creates and loads them, with another product."""

        def apply(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
            weight: Any = layer.weight
            return linear(x, weight, bias)

    class TilewrightConfig(QuantizationConfig):  # type: ignore[misc]
        """Linear layers on Tilewright's kernels, without quantization."""

        def get_name(self) -> str:
            return NAME

        def get_supported_act_dtypes(self) -> list[torch.dtype]:
            return [torch.float16, torch.bfloat16]

        @classmethod
        def get_min_capability(cls) -> int:
            return -1  # no limit: it counts versions of CUDA

        @staticmethod
        def get_config_filenames() -> list[str]:
            return []

        @classmethod
        def from_config(cls, config: dict[str, Any]) -> Any:
            _reject_quantized(config)
            return cls()

        def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:  # noqa: ARG002
            """The method of linear layers; None for others, which vLLM then computes itself."""
            if envs.VLLM_BATCH_INVARIANT:
                raise InvalidValueError(
                    f"VLLM_BATCH_INVARIANT is set, but quantization={NAME!r} selects kernels by the number of tokens, "
                    "so that results may differ in their last bits: unset one of them"
                )
            return TilewrightLinearMethod() if isinstance(layer, LinearBase) else None

    register_quantization_config(NAME)(TilewrightConfig)
    # vLLM shows only loggers below its own name.
    init_logger(f"vllm.{NAME}").info(
        "Tilewright registered quantization=%r: linear layers in float16 and bfloat16, without quantization. "
        "Embeddings, experts and attention stay vLLM's.",
        NAME,
    )
    return TilewrightConfig


def _reject_quantized(config: dict[str, Any]) -> None:
    method = config.get("quant_method", "an unnamed method")
    if method != NAME:
        raise InvalidValueError(
            f"the weights of the model are quantized with {method}: quantization={NAME!r} is for unquantized ones"
        )
