"""HIP found at run time: by kernel libraries and packs, under each soname, under another name, and nowhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from pack_parts import kernel_of, linkable

from tilewright.base.errors import CompileError
from tilewright.building.flags import HIP_FORWARD
from tilewright.building.pack.write import write_pack
from tilewright.building.toolchain import Toolchain

pytestmark = pytest.mark.compile

# A HIP library that counts the kernels that are registered with it, and names itself in its errors.
HIP = """
#include <stdio.h>
static int kernels, binaries;
void** __hipRegisterFatBinary(const void* code) { ++binaries; return (void**)&binaries; }
void __hipRegisterFunction(void** handle, const void* host, char* name, const char* device, unsigned threads, void* a,
                           void* b, void* c, void* d, int* e)
{
    kernels += handle == (void**)&binaries && threads == 0xffffffffu && device[0] == 'k';
}
void __hipUnregisterFatBinary(void** handle) { printf("unregistered from NAME\\n"); fflush(stdout); }
int hipGetLastError(void) { return 7000 + 10 * kernels + binaries; }
"""
# What clang generates for one kernel, and a call of HIP.
HOST = """
#include <stdint.h>
#include <stdio.h>
extern const char {fatbin}[];
static void** handle;
static char last[64];
void** __hipRegisterFatBinary(const void*);
void __hipRegisterFunction(void**, const void*, char*, const char*, unsigned, void*, void*, void*, void*, int*);
void __hipUnregisterFatBinary(void**);
int hipGetLastError(void);
int atexit(void (*)(void));
static void drop(void) {{ __hipUnregisterFatBinary(handle); }}
__attribute__((constructor)) static void enter(void)
{{
    handle = __hipRegisterFatBinary({fatbin});
    __hipRegisterFunction(handle, last, "kernel", "kernel", 0xffffffffu, 0, 0, 0, 0, 0);
    atexit(drop);
}}
int {symbol}_supports(const int64_t* args) {{ return 0; }}
int {symbol}_workspace_size(const int64_t* args, uint64_t* bytes) {{ *bytes = 0; return 0; }}
int {symbol}_run(const int64_t* args, void* stream)
{{
    snprintf(last, sizeof(last), "HIP error %d", hipGetLastError());
    return 4;
}}
const char* {symbol}_message(void) {{ return last; }}
const char* {symbol}_name(void) {{ return "{slug}"; }}
"""
# Loads the libraries that it is told, in this order; "global:" makes one visible to all others. Then it runs a kernel.
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <tilewright/pack.h>
int main(int count, char** words)
{
    static const int64_t args[64];
    const tw_pack_kernel* kernel = 0;
    for(int i = 1; i < count; ++i)
    {
        const int global = strncmp(words[i], "global:", 7) == 0;
        void* library = dlopen(words[i] + (global ? 7 : 0), RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
        if(library == 0)
            return puts(dlerror()), 1;
        tw_pack_table_fn table = (tw_pack_table_fn)dlsym(library, "tw_pack_table");
        if(table != 0)
            kernel = table()->kernels;
    }
    printf("supports %d\\n", kernel->supports(args));
    printf("run %d\\n", kernel->run(args, 0));
    puts(kernel->message());
    fflush(stdout);
}
"""
SONAMES = ("libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7")


def compile_library(toolchain: Toolchain, text: str, path: Path, soname: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".source.c")
    source.write_text(text)
    words = ["-x", "c", "-w", "-shared", "-fPIC", "-fuse-ld=lld", f"-Wl,-soname,{soname}", source, "-o", path]
    subprocess.run([str(word) for word in (toolchain.cxx, *words)], check=True)
    return path


def make_hip(toolchain: Toolchain, path: Path, name: str, soname: str = "") -> Path:
    return compile_library(toolchain, HIP.replace("NAME", name), path, soname or path.name)


@pytest.fixture(scope="module")
def pack(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pack")
    kernels = (kernel_of(), kernel_of(pad_m=True))
    made = [linkable(kernel, toolchain, folder, host=HOST) for kernel in kernels]
    library = write_pack(made, toolchain, folder / "pack").library_path("gfx942")
    (folder / "program.c").write_text(PROGRAM)
    include = f"-I{folder}/pack/include"
    subprocess.run(["gcc", include, folder / "program.c", "-o", folder / "program", "-ldl"], check=True)
    return library


def run_program(pack: Path, *words: object, folders: Path) -> list[str]:
    command = [str(word) for word in (pack.parents[2] / "program", *words)]
    done = subprocess.run(command, env={"LD_LIBRARY_PATH": str(folders)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def told(name: str) -> list[str]:
    """Two binaries with one kernel each were registered with that library when the pack called it, and taken back."""
    return ["supports 0", "run 4", "HIP error 7022", *[f"unregistered from {name}"] * 2]


@pytest.mark.parametrize("soname", SONAMES)
def test_each_version_of_hip_alone(toolchain: Toolchain, pack: Path, tmp_path: Path, soname: str) -> None:
    make_hip(toolchain, tmp_path / soname, soname)
    assert run_program(pack, pack, folders=tmp_path) == told(soname)


def test_the_newest_of_several(toolchain: Toolchain, pack: Path, tmp_path: Path) -> None:
    for soname in SONAMES:
        make_hip(toolchain, tmp_path / soname, soname)
    assert run_program(pack, pack, folders=tmp_path) == told("libamdhip64.so.7")


@pytest.mark.parametrize("visible", ["", "global:"])
@pytest.mark.parametrize("name", ["libamdhip64.so.6", "libamdhip64-0a1b2c3d.so.6.4", "libthe_hip_of_torch.so"])
@pytest.mark.parametrize("first", [True, False])
def test_a_loaded_hip_comes_first(
    toolchain: Toolchain, pack: Path, tmp_path: Path, name: str, visible: str, first: bool
) -> None:
    """Also if it is loaded after the pack: HIP is needed only to run a kernel."""
    make_hip(toolchain, tmp_path / "system" / "libamdhip64.so.7", "the system's")
    own = f"{visible}{make_hip(toolchain, tmp_path / 'torch' / 'lib' / name, 'torch')}"
    order = (own, pack) if first else (pack, own)
    assert run_program(pack, *order, folders=tmp_path / "system") == told("torch")


def test_a_hip_that_another_library_needs(toolchain: Toolchain, pack: Path, tmp_path: Path) -> None:
    hip = make_hip(toolchain, tmp_path / "libhip_of_torch.so", "torch")
    text = "int hipGetLastError(void); int torch_call(void) { return hipGetLastError(); }"
    source = tmp_path / "torch.c"
    source.write_text(text)
    subprocess.run(["gcc", "-shared", "-fPIC", source, hip, "-o", tmp_path / "libtorch.so"], check=True)
    assert run_program(pack, tmp_path / "libtorch.so", pack, folders=tmp_path) == told("torch")


def test_no_hip_that_can_be_loaded(pack: Path, tmp_path: Path) -> None:
    """Files that are no libraries hide those of this machine."""
    for name in (*SONAMES, "libamdhip64.so"):
        (tmp_path / name).write_text("")
    supports, ran, message = run_program(pack, pack, folders=tmp_path)
    assert (supports, ran) == ("supports 0", "run 4")
    begins = (
        "no HIP library was found: none is loaded in this process, and libamdhip64.so.7, .6 and .5 are neither known"
    )
    assert message.startswith(begins)
    assert f"nor in /opt/rocm/lib (libamdhip64.so.7: {tmp_path}/libamdhip64.so.7: file too short). Install" in message


def test_a_hip_without_a_function(toolchain: Toolchain, pack: Path, tmp_path: Path) -> None:
    text = HIP.replace("int hipGetLastError(void)", "int hipOther(void)").replace("NAME", "it")
    compile_library(toolchain, text, tmp_path / "libamdhip64.so.7", "libamdhip64.so.7")
    lines = run_program(pack, pack, folders=tmp_path)
    assert lines[1:3] == ["run 4", "this process's HIP library has no function hipGetLastError. Use a newer HIP."]


def test_a_program_that_is_linked_with_a_pack(toolchain: Toolchain, pack: Path, tmp_path: Path) -> None:
    """It names no HIP library, neither when it is linked nor when it is run."""
    (tmp_path / "linked.c").write_text(LINKED)
    words = [f"-I{pack.parents[1]}/include", tmp_path / "linked.c", pack, "-o", tmp_path / "linked"]
    subprocess.run(["gcc", *words], check=True)
    make_hip(toolchain, tmp_path / "libamdhip64.so.6", "six")
    surroundings = {"LD_LIBRARY_PATH": f"{tmp_path}:{pack.parent}"}
    said = subprocess.run([tmp_path / "linked"], env=surroundings, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == told("six")[2:]


LINKED = """
#include <stdio.h>
#include <tilewright/pack.h>
int main(void)
{
    static const int64_t args[64];
    const tw_pack_kernel* kernel = tw_pack_table()->kernels;
    kernel->run(args, 0);
    puts(kernel->message());
    fflush(stdout);
}
"""


def test_a_fork_while_hip_is_being_found(toolchain: Toolchain, pack: Path, tmp_path: Path) -> None:
    """The child does not wait for the parent's other thread, and registers all kernels itself."""
    (tmp_path / "forks.c").write_text(FORKS)
    words = [f"-I{pack.parents[1]}/include", tmp_path / "forks.c", pack, "-o", tmp_path / "forks", "-pthread"]
    subprocess.run(["gcc", *words], check=True)
    slow = "#include <unistd.h>\n" + HIP.replace("{ ++binaries;", "{ usleep(300000); ++binaries;").replace("NAME", "it")
    compile_library(toolchain, slow, tmp_path / "libamdhip64.so.7", "libamdhip64.so.7")
    surroundings = {"LD_LIBRARY_PATH": f"{tmp_path}:{pack.parent}"}
    done = subprocess.run([tmp_path / "forks"], env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    child, parent = (int(line.removeprefix("HIP error ")) for line in done.stdout.splitlines() if "error" in line)
    assert parent == 7022
    assert child in (7022, 7032)  # the binary that was being registered may count twice


FORKS = """
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tilewright/pack.h>
static const int64_t args[64];
static void* run(void* kernel) { return ((const tw_pack_kernel*)kernel)->run(args, 0), NULL; }
int main(void)
{
    const tw_pack_kernel* kernel = tw_pack_table()->kernels;
    pthread_t thread;
    int status;
    pthread_create(&thread, NULL, run, (void*)kernel);
    usleep(100000); /* the thread is in __hipRegisterFatBinary now */
    if(fork() == 0)
    {
        alarm(20);
        run((void*)kernel);
        puts(kernel->message());
        fflush(stdout);
        _exit(0);
    }
    wait(&status);
    pthread_join(thread, NULL);
    puts(kernel->message());
    fflush(stdout);
    return status;
}
"""


def test_a_function_that_is_not_forwarded_is_an_error_of_the_linker(toolchain: Toolchain, tmp_path: Path) -> None:
    host = HOST.replace("hipGetLastError", "hipThing")
    with pytest.raises(CompileError, match="undefined symbol: hipThing"):
        write_pack([linkable(kernel_of(), toolchain, tmp_path, host=host)], toolchain, tmp_path / "pack")


def test_forwarded_functions_have_the_types_of_hip(toolchain: Toolchain, tmp_path: Path) -> None:
    """Parameters are compared by number and size with the declarations of the toolchain's headers."""
    text = HIP_FORWARD.read_text()
    listed = re.findall(r"^FORWARD\((\w+),\s\(([^()]*)\),\s", text, re.MULTILINE)
    assert len(listed) == text.count("\nFORWARD(") == 45
    declared = {name: f"int {name}_here({types});" for name, types in listed}
    named = [name for name in declared if name not in OVERLOADED]
    checks = [f"static_assert(shape(&::{name}) == shape(&ours::{name}_here));" for name in named]
    source = "\n".join([SHAPES, "namespace ours {", *declared.values(), "}", *checks])
    (tmp_path / "check.cpp").write_text(source)
    words = [
        "-std=c++17",
        "-fsyntax-only",
        "-w",
        "-fno-spell-checking",
        f"-I{toolchain.rocm_path}/include",
        tmp_path / "check.cpp",
    ]
    done = subprocess.run([toolchain.cxx, *words], capture_output=True, text=True, check=False)
    newer = set(re.findall(r"no member named '(\w+)' in the global namespace", done.stderr))
    wrong = [line for line in done.stderr.splitlines() if "error:" in line and "no member named" not in line]
    assert wrong == []
    assert newer <= {"hipGetDevicePropertiesR0600", "hipLaunchKernelExC"}, "of HIP 6 and 7"


# C++ templates of the same names make their addresses ambiguous.
OVERLOADED = {
    "hipLaunchCooperativeKernel",
    "hipOccupancyMaxActiveBlocksPerMultiprocessor",
    "hipMalloc",
    "hipHostMalloc",
    "hipMallocAsync",
    "hipGetSymbolAddress",
    "hipMemcpyToSymbolAsync",
}
SHAPES = """
#define __HIP_PLATFORM_AMD__ 1
#define __HIP_DISABLE_CPP_FUNCTIONS__ 1
#include <hip/hip_runtime_api.h>
#include <array>
#include <cstddef>
#include <cstdint>
extern "C" {
hipError_t __hipPushCallConfiguration(dim3, dim3, size_t, hipStream_t);
hipError_t __hipPopCallConfiguration(dim3*, dim3*, size_t*, hipStream_t*);
hipError_t hipExtLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t, hipEvent_t, hipEvent_t, int);
}
using Dim3 = dim3;
template <typename R, typename... A>
constexpr size_t shape(R (*)(A...))
{
    size_t all = sizeof(R);
    ((all = all * 31 + sizeof(A)), ...);
    return all;
}
"""
