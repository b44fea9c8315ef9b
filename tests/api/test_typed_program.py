"""A program that uses every public name: a type checker accepts it, and knows what each call returns."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright as tw

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """\
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright.bench import Limits, SweepResult, TimeStats, TimingSettings, TuneResult

space = tw.gemm.space(dtype="fp16", layout="rcr", block=[(64, 64, 32)])
problem = tw.gemm.Problem(m=64, n=64, k=64, dtype="fp16", layout="rcr")
convolution, attention, norm, scaled = tw.grouped_conv.OP, tw.fmha.OP, tw.norm.OP, tw.gemm_quant.OP
grouped = tw.grouped_gemm.OP, tw.grouped_matmul
routing = tw.topk.OP, tw.topk_softmax, tw.topk_sigmoid, tw.moe_sorting.OP, tw.sort_by_expert
files = tw.load_kernel_set("mine.toml"), tw.read_problems("gemm", "shapes.csv")
registry: tw.Registry = tw.build("fp16_rcr_essential", "MI300X", jobs=2, limit=None)
registry = tw.build([space, "fp16_rcr_essential"], ["gfx942", "gfx950"])
kernel = registry.kernels[0]
named = tw.parse_kernel(kernel.slug), tw.kernel_of(kernel.config, "gfx942"), tw.render(kernel).text
verdicts, nearest = tw.explain(kernel.config, "gfx942"), tw.suggest(kernel.config, "gfx942")
reasons = tw.fits(kernel.config, problem, "gfx942")
device: tw.Device = tw.devices()[0]
gpus = tw.arch_names(), tw.load("MI300X").compute.units, tw.__version__
for name, each in tw.sets("gemm", gpu="gfx942").items():
    print(name, each.doc)
chosen = tw.kernels("gemm", "gfx942", dtype="fp16", pipeline=["mem", "compv3"]).build()
best = tw.select_kernel(problem, "MI300X", pad=True).best.kernel
record = tw.measure(best, {"m": 64, "n": 64, "k": 64}, device, settings=TimingSettings(cold=True))
limits = Limits(seconds=5)
swept: SweepResult = tw.sweep([space], [problem], ["gpu:0", device], out=Path("out"), budget=0.1, limits=limits)
for row in swept.rows:
    print(row["us"])
tuned: TuneResult = tw.tune("fp16_rcr_all", "shapes.csv", "gpu:0", budget=500)
registry = registry.with_tuned(tuned.table)
sources = tw.generate([kernel], "kernels", jobs=2).kernels, tw.wrap("kernels", Path("wrappers"), ["cmake"]).written
folder = tw.pack(registry, "my_pack", name="mine").folder
checked = tw.verify(kernel, registry.artifact(kernel), device, [problem])
timed: TimeStats = tw.time_plan(registry, problem, "gpu:0")
viewed, inspected = tw.view_on, tw.inspect_kernel(kernel)
functions = tw.matmul, tw.scaled_matmul, tw.conv, tw.conv_input_gradient, tw.conv_weight_gradient, tw.list_used_kernels
norms = tw.rms_norm, tw.layer_norm, tw.smooth_quantize
functions_of_attention = tw.attention, tw.attention_gradient, tw.append_to_cache
settings = tw.options, tw.set_options, tw.warm
try:
    registry.run(problem, np.zeros((64, 64)), np.zeros((64, 64)), device="emulated:gfx942")
except tw.errors.TensorError as error:
    raise SystemExit(str(error)) from error
except tw.TilewrightError:
    raise
reveal_type(record.times)
reveal_type(tuned.problems[0].winner.us)
reveal_type(swept.failures[0].message)
reveal_type(folder)
"""


def test_the_program_uses_every_public_name() -> None:
    """A new public name belongs into the program, too."""
    assert set(tw.__all__) <= set(re.findall(r"tw\.(\w+)", PROGRAM))


# With the settings of `make check` most of the work is in its cache. As a user has it, nothing is.
OF_CHECK = ("--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache"))
OF_USERS = ("--strict", "--config-file=", "--cache-dir", str(ROOT / ".mypy_cache" / "users"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "inside"),
    [(OF_CHECK, True), pytest.param(OF_USERS, False, marks=pytest.mark.deep)],
    ids=["check", "users"],
)
def test_a_type_checker_accepts_the_program(options: tuple[str, ...], inside: bool, tmp_path: Path) -> None:
    assert (Path(tw.__file__).parent / "py.typed").is_file()  # without it, a checker ignores an installed package
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", *options, str(program)]
    folder = ROOT if inside else tmp_path
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    assert not re.findall(r"program\.py:.* error: .*", done.stdout), done.stdout
    said = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert [each.removeprefix("builtins.") for each in said] == [
        "tilewright.bench.record.TimeStats | None",
        "float",
        "str",
        "pathlib.Path",
    ], done.stdout
