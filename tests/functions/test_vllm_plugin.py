"""The plugin for vLLM. Most of it needs vLLM, which is no extra of ours: those tests run where it is installed."""

from __future__ import annotations

import importlib.util
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.functions.kernels import ARCH, HALF
from tilewright.base.errors import InvalidValueError, MissingExtraError

torch = pytest.importorskip("torch")
from tilewright import torch as twt  # noqa: E402  (needs torch)
from tilewright.torch import vllm as plugin  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
HAS_VLLM = importlib.util.find_spec("vllm") is not None
needs_vllm = pytest.mark.skipif(not HAS_VLLM, reason="vLLM is not installed")


def test_the_entry_point_is_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    group = "vllm.general_plugins"
    ((name, value),) = project["entry-points"][group].items()
    assert EntryPoint(name, value, group).load() is plugin.register


@pytest.mark.skipif(HAS_VLLM, reason="vLLM is installed")
def test_without_vllm_it_is_an_error() -> None:
    with pytest.raises(MissingExtraError, match="needs vllm"):
        plugin.register()


def make_config() -> Any:
    from vllm.model_executor.layers.quantization import get_quantization_config

    plugin.register()
    plugin.register()  # vLLM may call it several times
    found = get_quantization_config("tilewright")
    assert found is plugin.make_config_type()
    return found.from_config({"quant_method": "tilewright"})


@needs_vllm
def test_vllm_knows_the_method() -> None:
    config = make_config()
    assert config.get_name() == "tilewright"
    assert config.get_supported_act_dtypes() == [torch.float16, torch.bfloat16]
    assert config.get_quant_method(torch.nn.Linear(4, 4), "layer") is None


@needs_vllm
def test_quantized_weights_are_an_error() -> None:
    with pytest.raises(InvalidValueError, match="quantized with awq"):
        type(make_config()).from_config({"quant_method": "awq"})


@needs_vllm
@pytest.mark.compile
def test_a_linear_layer_of_vllm_runs_on_our_kernel() -> None:
    from vllm.model_executor.layers.linear import LinearBase

    torch.manual_seed(0)
    layer = LinearBase(64, 32, params_dtype=torch.float16, quant_config=make_config(), disable_tp=True)
    assert type(layer.quant_method).__name__ == "TilewrightLinearMethod"
    # vLLM creates and loads weights only after it has started its process group.
    layer.weight = torch.nn.Parameter(torch.randn(32, 64).half())
    x = torch.randn(8, 64).half()
    with tw.options(pool=HALF), twt.emulate(ARCH), torch.no_grad():
        found = layer.quant_method.apply(layer, x)
        wanted = torch.nn.functional.linear(x, layer.weight)
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-2)


@needs_vllm
def test_the_registration_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    plugin.make_config_type.cache_clear()
    with caplog.at_level("INFO", logger="vllm.tilewright"):
        plugin.register()
        plugin.register()
    assert caplog.text.count("Tilewright registered quantization='tilewright'") == 1
