"""The headers of a pack: what compiles, what does not, and what the C++ front does at run time."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest
from pack_parts import kernel_of, linkable

from built_kernels import in_tier_ci
from tilewright.building.pack.manifest import Pack
from tilewright.building.pack.write import write_pack
from tilewright.building.toolchain import Toolchain

pytestmark = pytest.mark.compile

FRONT = Path(__file__).with_name("pack_front.cpp")
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pedantic-errors")
HEADERS = ("pack.h", "gemm.h", "gemm_problem.h", "gemm.hpp", "tilewright.hpp", "timing.hpp")

C_PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <tilewright/gemm.h>
#include <tilewright/pack.h>

int main(int count, char** words)
{
    void* library = dlopen(words[count - 1], RTLD_NOW);
    tw_pack_table_fn table;
    const tw_pack* pack;
    uint64_t i;
    if(library == NULL)
        return 1;
    *(void**)(&table) = dlsym(library, "tw_pack_table");
    pack = table();
    printf("%s %s %s\\n", pack->name, pack->version, pack->gpu);
    for(i = 0; i < pack->count; ++i)
    {
        const tw_pack_kernel* kernel = tw_pack_kernel_at(pack, i);
        tw_gemm_args args = {0};
        uint64_t bytes = 0;
        int status;
        if(strcmp(kernel->op, "gemm") != 0 || kernel->abi_version != TW_GEMM_ABI_VERSION ||
           kernel->args_size != sizeof(args))
            return 2;
        args.size = sizeof(args);
        args.m = 100;
        status = kernel->supports(&args);
        printf("%s %d %s ", kernel->slug, status, kernel->message());
        status = kernel->workspace_size(&args, &bytes);
        printf("%d %lu\\n", status, (unsigned long)bytes);
    }
    return 0;
}
"""

# A table without kernels, of any schema and size of its entries.
TABLE = """
#include <tilewright/pack.h>
static const tw_pack table = {{ {}, "", "", "gfx942", 0, 0 }};
const tw_pack* tw_pack_table(void) {{ return &table; }}
"""


@pytest.fixture(scope="module")
def pack(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Pack:
    folder = tmp_path_factory.mktemp("front")
    kernels = (kernel_of(), kernel_of(pad_m=True), kernel_of("gfx90a"))
    return write_pack([linkable(kernel, toolchain, folder) for kernel in kernels], toolchain, folder / "pack")


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def compilers(toolchain: Toolchain, language: str) -> tuple[str, ...]:
    """GCC's and the toolchain's own compiler, as they are told that a source is C or C++."""
    return ("g++" if language == "c++" else "gcc", str(toolchain.cxx))


@pytest.mark.parametrize(
    "standard", ["c99", "c++17", *(pytest.param(name, marks=pytest.mark.deep) for name in ("c11", "c++20"))]
)
def test_headers_compile_alone_and_without_a_warning(standard: str, pack: Pack, toolchain: Toolchain) -> None:
    language = "c++" if "+" in standard else "c"
    headers = [header for header in HEADERS if language == "c++" or header.endswith(".h")]
    include = f"-I{pack.folder}/include"
    # In CI, the toolchain's own compiler reads the C++ headers only together, in the program below.
    alone = compilers(toolchain, language)[: 1 if language == "c++" and in_tier_ci() else 2]
    for compiler, header in itertools.product(alone, headers):
        words = ("-x", language, f"-std={standard}", *STRICT, include, "-include", f"tilewright/{header}")
        done = run(compiler, *words, "-fsyntax-only", "/dev/null")
        assert done.returncode == 0, f"{compiler} {standard} {header}: {done.stderr}"
    if language == "c++":
        for compiler in compilers(toolchain, language):
            done = run(compiler, f"-std={standard}", *STRICT, "-Wshadow", include, "-fsyntax-only", FRONT)
            assert done.returncode == 0, f"{compiler} {standard}: {done.stderr}"


def test_the_front_does_what_it_says(pack: Pack, tmp_path: Path) -> None:
    others = tmp_path / "others" / "lib"
    others.mkdir(parents=True)
    shutil.copy(pack.library_path("gfx942"), others / "lib_gfx950.so")
    for name in ("lib_gfx908.so", "libx_gfx908.so"):
        (others / name).write_bytes(b"")
    for name, source in (("empty", ""), ("newer", TABLE.format("2, 4096")), ("short", TABLE.format("1, 8"))):
        (tmp_path / f"{name}.c").write_text(source)
        library = others / f"lib_{name}.so"
        built = run("gcc", f"-I{pack.folder}/include", "-shared", "-fPIC", tmp_path / f"{name}.c", "-o", library)
        assert built.returncode == 0, built.stderr
    program = tmp_path / "front"
    words = ("-std=c++17", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread")
    built = run("g++", *words, f"-I{pack.folder}/include", FRONT, "-o", program, "-ldl")
    assert built.returncode == 0, built.stderr
    # HIP's runtime keeps what it allocated; leaks are not what is looked for.
    done = run("env", "ASAN_OPTIONS=detect_leaks=0", program, pack.folder, tmp_path / "others")

    assert (done.returncode, done.stdout) == (0, "all is right\n"), done.stderr


@pytest.mark.parametrize(
    "call",
    [
        "kernel.supports(1);",
        "kernel.run(Unknown{}, nullptr);",
        pytest.param("tilewright::make_args<Unknown>();", marks=pytest.mark.deep),
        pytest.param("kernel.workspace_size(tw_pack{});", marks=pytest.mark.deep),
    ],
)
def test_arguments_of_no_op_do_not_compile(call: str, pack: Pack, tmp_path: Path) -> None:
    source = tmp_path / "wrong.cpp"
    text = "#include <tilewright/tilewright.hpp>\nstruct Unknown { unsigned long size; };\n"
    source.write_text(f"{text}void f(const tilewright::Kernel& kernel) {{ (void)kernel; {call} }}\n")
    done = run("g++", "-std=c++17", f"-I{pack.folder}/include", "-fsyntax-only", source)

    assert done.returncode != 0
    assert "not the arguments of an op: include the op's header of the pack" in done.stderr


def test_a_c99_program_reads_the_table(pack: Pack, tmp_path: Path) -> None:
    (tmp_path / "read.c").write_text(C_PROGRAM)
    words = ("-std=c99", *STRICT, f"-I{pack.folder}/include", tmp_path / "read.c", "-o", tmp_path / "read", "-ldl")
    built = run("gcc", *words)
    assert built.returncode == 0, built.stderr
    done = run(tmp_path / "read", pack.library_path("gfx942"))

    slugs = sorted(kernel.slug for kernel in pack.kernels if kernel.arch == "gfx942")
    expected = [f"tilewright_pack {pack.version} gfx942", *(f"{slug} 2 m = 100 0 400" for slug in slugs)]
    assert (done.returncode, done.stdout.splitlines()) == (0, expected), done.stderr
