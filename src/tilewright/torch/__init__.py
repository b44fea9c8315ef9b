"""PyTorch operators on Tilewright's kernels, with gradients, `torch.compile`, `torch.export` and autocast.

    import tilewright.torch as twt
    y = twt.linear(x, weight, bias, activation="silu")

On tensors of a GPU, kernels run in torch's current stream. Tensors in host memory are computed by an emulated device,
only inside `with twt.emulate("gfx942"):`.
"""

from tilewright.base.extras import require_packages

require_packages("tilewright.torch", ("torch",), "torch")

from tilewright.torch.attention_operators import attention, cached_attention  # noqa: E402  (after the check of the package)
from tilewright.torch.batch_prefill import mha_batch_prefill_func  # noqa: E402
from tilewright.torch.convolution import conv1d, conv2d, conv3d  # noqa: E402
from tilewright.torch.emulation import emulate  # noqa: E402
from tilewright.torch.flash_attention import (  # noqa: E402
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
)
from tilewright.torch.grouped_matmul import grouped_mm, scaled_grouped_mm  # noqa: E402
from tilewright.torch.inductor import make_inductor_options  # noqa: E402
from tilewright.torch.matmul import bmm, linear, mm  # noqa: E402
from tilewright.torch.mixture_of_experts import fused_moe  # noqa: E402
from tilewright.torch.modules import Conv1d, Conv2d, Conv3d, Linear, replace_modules  # noqa: E402
from tilewright.torch.norms import layer_norm, rms_norm  # noqa: E402
from tilewright.torch.problem_recorder import RecordedProblems, record_problems  # noqa: E402
from tilewright.torch.quantization import quantize_rows  # noqa: E402
from tilewright.torch.routing import topk_sigmoid, topk_softmax  # noqa: E402
from tilewright.torch.scaled_matmul import scaled_mm  # noqa: E402
from tilewright.torch.sorting import sort_by_expert  # noqa: E402
from tilewright.torch.torch_attention import register_flash_attention  # noqa: E402
from tilewright.torch.transformers import register_attention  # noqa: E402

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Linear",
    "RecordedProblems",
    "attention",
    "bmm",
    "cached_attention",
    "conv1d",
    "conv2d",
    "conv3d",
    "emulate",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "fused_moe",
    "grouped_mm",
    "layer_norm",
    "linear",
    "make_inductor_options",
    "mha_batch_prefill_func",
    "mm",
    "quantize_rows",
    "record_problems",
    "register_attention",
    "register_flash_attention",
    "replace_modules",
    "rms_norm",
    "scaled_grouped_mm",
    "scaled_mm",
    "sort_by_expert",
    "topk_sigmoid",
    "topk_softmax",
]
