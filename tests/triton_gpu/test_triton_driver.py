"""The driver: faults, tensors, arguments, choosing a GPU, autotuning. One GPU, small kernels."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="triton is not installed: pip install 'tilewright[triton]'")

import triton  # noqa: E402
import triton_kernels as kernels  # noqa: E402

import tilewright.triton  # noqa: E402
from tilewright.base.errors import DeviceError, TensorError, UnknownValueError  # noqa: E402
from tilewright.emulator import MemoryFault, Mode  # noqa: E402
from tilewright.triton.arguments import flatten_arguments, pack_number  # noqa: E402

pytestmark = pytest.mark.compile
ROOT = Path(__file__).parents[2]


@pytest.fixture
def gpu():
    with tilewright.triton.use("gfx942", mode="strict") as active:
        yield active


def test_faults_name_tensor_and_source_line(gpu) -> None:
    x, out = torch.ones(100), torch.zeros(100)
    with pytest.raises(MemoryFault) as caught:
        kernels.scale_without_mask[(1,)](x, out, 100, 2.0, BLOCK=128)
    message = str(caught.value)
    assert "'x_ptr: float32[100]'" in message
    file, line = re.search(r"source: (.*triton_kernels.py):(\d+):\d+: x = tl.load\(x_ptr \+ at\)", message).groups()
    assert Path(file).read_text().splitlines()[int(line) - 1].strip() == "x = tl.load(x_ptr + at)"
    assert caught.value.place.kernel == "scale_without_mask"


def test_a_fault_leaves_tensors_unchanged(gpu) -> None:
    x, out = torch.ones(100), torch.full((100,), 7.0)
    with pytest.raises(MemoryFault):
        kernels.scale_without_mask[(1,)](x, out, 100, 2.0, BLOCK=128)
    assert torch.equal(out, torch.full((100,), 7.0))
    kernels.scale_without_mask[(1,)](torch.ones(128), out, 100, 2.0, BLOCK=128)  # the GPU works on
    assert torch.equal(out, torch.full((100,), 2.0))


def test_views_share_the_memory_of_their_storage(gpu) -> None:
    storage = torch.arange(300.0)
    kernels.add[(1,)](storage[100:], storage[200:], storage, 100, BLOCK=128)
    assert torch.equal(storage[:100], torch.arange(100.0, 200) + torch.arange(200.0, 300))
    assert torch.equal(storage[100:], torch.arange(100.0, 300))
    shared = torch.ones(50)
    with pytest.raises(MemoryFault, match=re.escape("'x_ptr: float32[50], out_ptr: float32[50]'")):
        kernels.scale_without_mask[(1,)](shared, shared, 50, 2.0, BLOCK=128)


def test_unaligned_views_are_as_aligned_as_in_host_memory(gpu) -> None:
    storage = torch.arange(260.0)
    out = torch.zeros(128)
    for start in (1, 2, 4):
        kernels.scale_without_mask[(1,)](storage[start:], out, 128, 2.0, BLOCK=128)
        assert torch.equal(out, 2 * storage[start : start + 128])


def test_tensors_of_other_devices_are_errors(gpu) -> None:
    with pytest.raises(TensorError, match=r"x_ptr.* is on meta; an emulated GPU takes tensors on cpu"):
        kernels.add[(1,)](torch.ones(8, device="meta"), torch.ones(8), torch.ones(8), 8, BLOCK=128)


def test_arguments_that_are_no_pointers_are_errors(gpu) -> None:
    compiled = kernels.add.warmup(torch.float32, torch.float32, torch.float32, 100, BLOCK=128, grid=(1,))
    out = torch.zeros(100)
    with pytest.raises(TypeError, match="Pointer argument must be either uint64 or have data_ptr method; 'x_ptr' is"):
        compiled[(1, 1, 1)]("text", out, out, 100, 128)
    with pytest.raises(TypeError, match="4 arguments given; the kernel takes 5"):
        compiled[(1, 1, 1)](out, out, out, 100)
    x = torch.ones(100)
    compiled[(1, 1, 1)](x.data_ptr(), x, out, 100, 128)  # an address in a tensor of the launch
    assert torch.equal(out, 2 * x)
    with pytest.raises(TensorError, match="'x_ptr' is the address 0x7b, which is in no tensor of this launch"):
        compiled[(1, 1, 1)](123, x, out, 100, 128)


def test_mapped_tensors_are_reached_by_address(gpu) -> None:
    x, out = torch.arange(128.0), torch.zeros(128)
    address = gpu.map_tensor(x)
    kernels.add_through_address[(1,)](address, out, BLOCK=128)
    assert torch.equal(out, x + 1)
    x += 10  # launches see the tensor as it is
    kernels.add_through_address[(1,)](address, out, BLOCK=128)
    assert torch.equal(out, x + 1)
    with pytest.raises(MemoryFault):
        kernels.add_through_address[(1,)](x.data_ptr(), out, BLOCK=128)


def test_tuples_and_descriptors_are_flattened(gpu) -> None:
    x, out = torch.arange(128.0), torch.zeros(128)
    kernels.add_tuple[(1,)]((x, 5), out, BLOCK=128)
    assert torch.equal(out, x + 5)
    from triton.tools.tensor_descriptor import TensorDescriptor

    matrix, block = torch.arange(32 * 16.0).view(32, 16), torch.zeros(16, 16)
    kernels.copy_block[(1,)](TensorDescriptor.from_tensor(matrix, [16, 16]), block, M=16, N=16)
    assert torch.equal(block, matrix[16:])


def test_an_empty_grid_launches_nothing(gpu) -> None:
    out = torch.zeros(8)
    kernels.add[(0,)](out, out, out, 8, BLOCK=128)
    assert gpu.last_launch is None


def test_launch_hooks_are_called(gpu) -> None:
    seen = []

    def enter(metadata: object) -> None:
        seen.append("enter")

    def leave(metadata: object) -> None:
        seen.append("exit")

    hooks = triton.knobs.runtime
    with hooks.scope():
        hooks.launch_enter_hook.add(enter)
        hooks.launch_exit_hook.add(leave)
        kernels.add[(1,)](*(torch.ones(8) for _ in range(3)), 8, BLOCK=128)
        hooks.launch_enter_hook.remove(enter)
        hooks.launch_exit_hook.remove(leave)
    assert seen == ["enter", "exit"]


def test_the_previous_driver_comes_back() -> None:
    with tilewright.triton.use("gfx942") as outer:
        assert (outer.name, outer.mode) == ("gfx942", Mode.FAST)
        with tilewright.triton.use("gfx1100", mode="strict"):
            assert triton.runtime.driver.active.get_current_target().arch == "gfx1100"
            x, out = torch.ones(100), torch.zeros(100)
            kernels.add[(1,)](x, x, out, 100, BLOCK=128)
            assert torch.equal(out, 2 * x)
        assert triton.runtime.driver.active.get_current_target().arch == "gfx942"
    if not torch.cuda.is_available():
        with pytest.raises(DeviceError, match="no GPU is active for Triton"):
            triton.runtime.driver.active.get_current_target()


def test_triton_knows_the_target_of_a_chosen_gpu() -> None:
    from triton._internal_testing import is_hip, is_hip_cdna3

    assert not is_hip() or torch.cuda.is_available()
    with tilewright.triton.use("gfx942"):
        assert is_hip()
        assert is_hip_cdna3()
        with tilewright.triton.use("gfx1100"):
            assert is_hip()
            assert not is_hip_cdna3()
        assert is_hip_cdna3()
    assert not is_hip() or torch.cuda.is_available()


def test_unknown_gpus_and_modes_are_errors() -> None:
    with pytest.raises(UnknownValueError, match="gfx900"):
        tilewright.triton.use("gfx900")
    with pytest.raises(UnknownValueError, match="slow"):
        tilewright.triton.use("gfx942", mode="slow")


def test_autotuning_runs_every_config_and_counts_instructions(gpu) -> None:
    tuned = triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (512, 256)], key=["n"])(kernels.add)
    x, out = torch.ones(256), torch.zeros(256)
    tuned[lambda meta: (triton.cdiv(256, meta["BLOCK"]),)](x, x, out, 256)
    assert torch.equal(out, 2 * x)
    costs = {config.kwargs["BLOCK"]: cost[0] for config, cost in tuned.configs_timings.items()}
    assert tuned.best_config.kwargs["BLOCK"] == min(costs, key=costs.get)
    assert costs[256] == sum(gpu.last_launch.counters.instructions.values())
    assert costs[512] > costs[256] > 0


def test_measuring_time_is_an_error(gpu) -> None:
    with pytest.raises(DeviceError, match=r"measures time, and an emulated GPU has none\. Count instructions instead"):
        triton.testing.do_bench(lambda: None)


def test_numbers_are_packed_as_in_c() -> None:
    assert pack_number("i32", -2)[:4] == b"\xfe\xff\xff\xff"
    assert pack_number("u8", 200)[:1] == b"\xc8"
    assert pack_number("fp32", 1e300) == b"\x00\x00\x80\x7f"  # infinity
    assert pack_number("bf16", 1.0) == b"\x80\x3f"
    assert pack_number("fp16", 1.0) == b"\x00\x3c"
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        pack_number("i32", 1.5)
    with pytest.raises(OverflowError):
        pack_number("u32", -1)
    with pytest.raises(OverflowError):
        pack_number("i64", 1 << 63)
    with pytest.raises(TypeError, match="'nvTmaDesc' are not supported"):
        pack_number("nvTmaDesc", 0)
    items = list(flatten_arguments("p", ("*fp32", ("i32", "constexpr")), ("x", (3, 4))))
    assert [(item.name, item.kind, item.value) for item in items] == [("p[0]", "*fp32", "x"), ("p[1][0]", "i32", 3)]


PROGRAM = """
import torch, triton, sys
sys.path.insert(0, {folder!r})
import triton_kernels
x = torch.ones(100, device=triton.runtime.driver.active.get_active_torch_device())
out = torch.empty_like(x)
triton_kernels.add[(1,)](x, x, out, 100, BLOCK=128)
assert torch.equal(out, 2 * x)
print(triton.runtime.driver.active.get_current_target().arch, triton.runtime.driver.active.gpu.mode.value)
"""


def is_backend_registered() -> bool:
    from triton.backends import backends

    return "tilewright" in backends


@pytest.mark.skipif(not is_backend_registered(), reason="the installed tilewright has no entry point for Triton")
def test_the_environment_chooses_the_gpu_of_an_unchanged_program() -> None:
    chosen = {"TILEWRIGHT_TRITON_GPU": "gfx942", "TILEWRIGHT_TRITON_MODE": "strict"}
    program = PROGRAM.format(folder=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **chosen}, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("gfx942 strict\n", 0), done.stderr


TESTS = """
import sys

def test_imports():
    loaded = [name for name in ("triton", "torch", "numpy", "tilewright.triton") if name in sys.modules]
    assert not loaded, loaded
"""
KERNEL_TESTS = """
import torch, triton, triton_kernels

def test_add():
    x, out = torch.ones(100), torch.zeros(100)
    triton_kernels.add[(1,)](x, x, out, 100, BLOCK=128)
    assert torch.equal(out, 2 * x)

def test_fault():
    triton_kernels.scale_without_mask[(1,)](torch.ones(100), torch.zeros(100), 100, 2.0, BLOCK=128)
"""


def run_pytest(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tilewright.pytest_plugin", "-p", "no:cacheprovider", "-p"]
    paths = os.pathsep.join([str(ROOT / "src"), str(Path(__file__).parent)])
    return subprocess.run(
        [*command, "no:randomly", f"--rootdir={folder}", *options, str(folder / "test_it.py")],
        env={**os.environ, "PYTHONPATH": paths}, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_pytest_plugin_imports_nothing_without_its_option(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, TESTS, "-p", "no:hypothesispytest")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_pytest_plugin_chooses_the_gpu(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, KERNEL_TESTS, "--triton-gpu", "gfx942", "--triton-mode", "strict")
    assert "triton: emulated gfx942, strict mode" in done.stdout, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "source: " in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--triton-mode", "strict"), "--triton-mode needs --triton-gpu: there is no default GPU"),
        (("--triton-gpu", "gfx900"), "gfx900"),
    ],
)
def test_wrong_options_of_the_pytest_plugin_are_usage_errors(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    done = run_pytest(tmp_path, TESTS, *options)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert message in done.stderr
