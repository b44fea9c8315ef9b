"""Tables and logs of aiter, files of TunableOp and commands of hipblaslt-bench as problems; tables that are written."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright import arch as archs
from tilewright import gemm, gemm_quant
from tilewright.base.errors import FileFormatError, InvalidValueError
from tilewright.ops import kernel_of
from tilewright.ops.aiter_table import (
    TableFamily,
    choose_family,
    list_keys,
    make_tuned_table,
    read_aiter_table,
    read_tuned_times,
)
from tilewright.ops.gemm.problem_files import AITER_TABLES
from tilewright.ops.gemm_quant.problem_files import AITER_TABLES as SCALED_TABLES
from tilewright.ops.problem_list import read_problems

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "aiter_configs_2026-08"
needs_tables = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"needs aiter's tables in ../shared/data/{FOLDER.name}")
HEAD = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle"
BF16 = "torch.bfloat16,torch.bfloat16,False,False"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines))
    return path


@needs_tables
def test_every_table_of_aiter_is_read_and_written_unchanged(tmp_path: Path) -> None:
    files = sorted(FOLDER.rglob("*.csv"))
    assert len(files) == 163
    for file in files:
        copy = tmp_path / file.name
        copy.write_bytes(read_aiter_table(file).to_text().encode())
        assert copy.read_bytes() == file.read_bytes(), file.name


@needs_tables
def test_every_row_of_the_family_is_written_as_it_was_read() -> None:
    """Row → problem → row. Only the order of B's elements, a property of the kernel, is not in the problem."""
    rows = refused = 0
    for file in sorted(FOLDER.rglob("*bf16*gemm*.csv")):
        try:
            keys = list_keys(AITER_TABLES, file)
        except FileFormatError:
            assert "batched" in file.name or "blockscale" in file.name, file.name  # other columns
            continue
        for _, key in keys:
            try:
                problem = AITER_TABLES.read_key(key)
            except InvalidValueError as error:
                assert "scaleAB" in str(error) or "fp8" in str(error) or "unknown" in str(error), (file.name, key)
                refused += 1
                continue
            assert AITER_TABLES.get_key(AITER_TABLES.write(problem))[:-1] == key[:-1], (file.name, key)
            rows += 1
    assert rows > 4000 and refused < rows / 10


@needs_tables
@pytest.mark.parametrize(
    ("family", "least"), [(SCALED_TABLES[0], 3000), (SCALED_TABLES[1], 40000)], ids=("rowcol", "groups")
)
def test_every_row_with_scales_is_written_as_it_was_read(family: TableFamily, least: int) -> None:
    """Row → problem → row. The encoding of fp8 is that of the GPU, so the problem does not have it."""
    rows = refused = 0
    for file in sorted(FOLDER.rglob("*.csv")):
        if not family.names_file(file.name) or file.name == "asm_a8w8_gemm.csv":  # that one has other columns
            continue
        for _, key in list_keys(family, file):
            try:
                problem = family.read_key(key)
            except InvalidValueError as error:
                assert "unknown q_dtype_w 'torch.int8'" in str(error), (file.name, key)
                refused += 1
                continue
            assert family.get_key(family.write(problem))[:3] == key[:3], (file.name, key)
            rows += 1
    assert rows > least and refused < rows


def test_products_with_scales(tmp_path: Path) -> None:
    types: dict[str, Any] = {"dtype_a": "fp8", "dtype_b": "fp8", "dtype_c": "bf16", "layout": "rcr"}
    rowcol = gemm_quant.Problem(m=16, n=1536, k=7168, quant="rowcol", **types)
    groups = gemm_quant.Problem(m=16, n=1536, k=7168, quant="a1x128_b128x128", **types)
    file = write(tmp_path / "a8w8_untuned_gemm.csv", "M,N,K,q_dtype_w", "16, 1536, 7168,torch.float8_e4m3fnuz")
    assert read_problems("gemm_quant", file, "aiter") == [rowcol]
    file = write(tmp_path / "a8w8_blockscale_untuned_gemm.csv", "M,N,K", "16, 1536, 7168")
    assert read_problems("gemm_quant", file, "aiter") == [groups]
    miss = "not found tuned config in /tmp/{}_tuned_gemm.csv, will use default config!"
    log = write(
        tmp_path / "server.log",
        f"[aiter] shape is M:16, N:1536, K:7168, {miss.format('a8w8_blockscale')}",
        f"[aiter] shape is M:16, N:1536, K:7168 q_dtype_w=torch.float8_e4m3fn, {miss.format('a8w8_bpreshuffle')}",
        f"[aiter] shape is M:512, N:64, K:64, {miss.format('bf16')}",
    )
    assert read_problems("gemm_quant", log, "aiter_log") == [rowcol, groups]
    with pytest.raises(FileFormatError, match=r"has no name of a known table\. .*: a8w8 and gemm, without blockscale"):
        read_problems("gemm_quant", write(tmp_path / "mine.csv", "M,N,K", "1,2,3"), "aiter")


def test_winners_with_scales_are_rows_of_their_family(tmp_path: Path) -> None:
    kernel = gemm_quant.OP.make_kernel(gemm_quant.OP.make_example(), "gfx942")
    problem = gemm_quant.Problem(**gemm_quant.OP.example_problem)
    family = choose_family(SCALED_TABLES, [problem])
    table = make_tuned_table(family, [(archs.load("gfx942"), kernel, problem, 12.5)])
    ((_, cells),) = table.cells
    assert cells["q_dtype_w"] == "torch.float8_e4m3fnuz" and cells["us"] == "12.5000"
    if FOLDER.is_dir():
        assert read_aiter_table(FOLDER / "a8w8_bpreshuffle_tuned_gemm.csv").header == table.header
    file = write(tmp_path / "mine_a8w8_tuned_gemm.csv", table.to_text())
    assert read_problems("gemm_quant", file, "aiter") == [problem]
    with pytest.raises(InvalidValueError, match=r"(?s)scales rowcol is .*scales a1x128_b128x128 is "):
        choose_family(SCALED_TABLES, [problem, replace(problem, stride_a=512)])


def test_a_list_of_problems(tmp_path: Path) -> None:
    file = write(tmp_path / "bf16_untuned_gemm.csv", HEAD, f"64,256,5120,False,{BF16}", "", f"1,128,64,True,{BF16}")
    first, second = read_problems("gemm", file, "aiter")
    assert first == gemm.Problem(m=64, n=256, k=5120, dtype="bf16", layout="rcr")
    assert (second.num_d, second.num_row_d, second.elementwise) == (1, 1, "MultiDAdd")


def test_mistakes_are_listed_with_their_lines(tmp_path: Path) -> None:
    lines = (f"64,256,5120,False,{BF16}", f"0x4,256,8,False,{BF16}", "1,2,3,no,torch.int4,torch.bfloat16,False,False")
    with pytest.raises(FileFormatError, match=r"(?s)line 3: M must be an integer.*line 4: unknown"):
        read_problems("gemm", write(tmp_path / "t.csv", HEAD, *lines), "aiter")
    with pytest.raises(FileFormatError, match="has no columns bias, dtype, outdtype, scaleAB"):
        read_problems("gemm", write(tmp_path / "t.csv", "M,N,K", "1,2,3"), "aiter")
    with pytest.raises(FileFormatError, match="line 2: has 4 cells, the header has 3"):
        read_aiter_table(write(tmp_path / "t.csv", "M,N,K", "1,2,3,4"))
    with pytest.raises(FileFormatError, match="names columns twice: M"):
        read_aiter_table(write(tmp_path / "t.csv", "M,N,M", "1,2,3"))
    with pytest.raises(FileFormatError, match="is not a tuned table"):
        read_tuned_times(AITER_TABLES, write(tmp_path / "t.csv", HEAD), archs.load("gfx942"))


def test_problems_that_a_log_reports_as_missing(tmp_path: Path) -> None:
    log = write(
        tmp_path / "server.log",
        "(Worker_TP0 pid=1) [aiter] shape is M:8192, N:32, K:6144 dtype='torch.bfloat16' otype='torch.float32' "
        "bias=False, scaleAB=False, bpreshuffle=False, not found tuned config in /tmp/a/bf16_tuned_gemm.csv, will use "
        "default config! using torch solution:0",
        "[aiter] shape is M:512, N:5120, K:17408, not found tuned config in /x/a8w8_blockscale_tuned_gemm.csv, will "
        "use default config!",
        "something else",
    )
    (problem,) = read_problems("gemm", log, "aiter_log")
    assert problem == gemm.Problem(m=8192, n=32, k=6144, dtype_a="bf16", dtype_b="bf16", dtype_c="fp32", layout="rcr")


def test_files_of_tunableop(tmp_path: Path) -> None:
    file = write(
        tmp_path / "tunableop_results0.csv",
        "Validator,PT_VERSION,2.10.0",
        "GemmTunableOp_BFloat16_TN,tn_512_64_4096_ld_4096_4096_512,Gemm_Rocblas_45,0.1",
        "GemmTunableOp_Half_NT,nt_48_176_1024_ld_48_176_48,Default,0.2",
        "GemmStridedBatchedTunableOp_float_NN,nn_8_16_32_B_3_ld_8_32_8,Default,0.2",
    )
    linear, gradient, batched = read_problems("gemm", file, "tunableop")
    assert linear == gemm.Problem(m=64, n=512, k=4096, dtype="bf16", layout="rcr")
    assert (gradient.m, gradient.n, gradient.layout, gradient.dtype_a) == (176, 48, "crr", "fp16")
    assert (batched.batch, batched.layout, batched.stride_a) == (3, "rrr", 32)
    wrong = write(
        tmp_path / "wrong.csv", "ScaledGemmTunableOp_BFloat16_TN,tn_1_2_3_ld_3_3_1", "GemmTunableOp_Half_TN,x"
    )
    with pytest.raises(
        FileFormatError, match=r"(?s)line 1: unknown operator of TunableOp.*line 2: 'x' is not the signature"
    ):
        read_problems("gemm", wrong, "tunableop")


def test_commands_of_hipblaslt_bench(tmp_path: Path) -> None:
    command = "hipblaslt-bench --api_method c -m 1024 -n 512 -k 64"
    types = "--a_type f16_r --b_type f16_r --c_type f16_r --d_type f16_r"
    file = write(
        tmp_path / "bench.log",
        f"[0] {command} --lda 64 --ldb 80 --ldc 1024 --alpha 1.0 --beta -1 --transA T --transB N {types}",
        "no command",
        f"/opt/rocm/bin/{command} {types} --batch_count 2 --bias_vector",
    )
    linear, batched = read_problems("gemm", file, "hipblaslt_bench")
    assert (linear.m, linear.n, linear.k, linear.layout, linear.stride_a) == (512, 1024, 64, "rcr", 80)
    assert (batched.batch, batched.layout, batched.num_row_d) == (2, "rrr", 1)
    scaled = write(
        tmp_path / "scaled.log", f"{command} {types} --scaleA 1", "hipblaslt-bench -m 4 --activation_type gelu"
    )
    with pytest.raises(FileFormatError, match=r"(?s)line 1: --scaleA is 1.*line 2: --activation_type is gelu"):
        read_problems("gemm", scaled, "hipblaslt_bench")


def test_a_written_table_has_aiters_columns_and_is_read_back(tmp_path: Path) -> None:
    arch = archs.load("gfx950")
    kernel = kernel_of(gemm.OP.make_example(), "gfx950")  # type: ignore[arg-type]
    problem = gemm.Problem(m=64, n=256, k=512, dtype="bf16", layout="rcr")
    table = make_tuned_table(AITER_TABLES, [(arch, kernel, problem, 12.5)])
    file = write(tmp_path / "mine_bf16_tuned_gemm.csv", table.to_text())
    assert table.header[:3] == ("gfx", "cu_num", "M") and table.header[-3:] == ("err_ratio", "tflops", "bw")
    assert read_problems("gemm", file, "aiter") == [problem]
    assert list(read_tuned_times(AITER_TABLES, file, arch).values()) == [12.5]
    assert read_tuned_times(AITER_TABLES, file, archs.load("gfx942")) == {}
    if FOLDER.is_dir():
        shutil.copy(FOLDER / "bf16_tuned_gemm.csv", tmp_path)
        assert read_aiter_table(tmp_path / "bf16_tuned_gemm.csv").header == table.header
    transposed = gemm.Problem(m=64, n=256, k=512, dtype="bf16", layout="rrr")
    with pytest.raises(InvalidValueError, match="layout rcr"):
        make_tuned_table(AITER_TABLES, [(arch, kernel, transposed, 12.5)])


@pytest.mark.parametrize(
    ("m", "n", "sizes"),
    [
        (64, 64, (64,)),
        (40, 64, (40, 48, 64)),
        (1, 64, (1, 16)),
        (300, 64, (300, 320, 512)),
        (9000, 8192, (9000, 9088, 8192)),
    ],
)
def test_the_rows_that_aiter_looks_up(m: int, n: int, sizes: tuple[int, ...]) -> None:
    key = (str(m), str(n), "64", "False", "torch.bfloat16", "torch.bfloat16", "False", "False")
    found = AITER_TABLES.list_look_ups(key)
    assert [each[0] for each in found] == list(map(str, sizes)) and {each[1:] for each in found} == {key[1:]}
