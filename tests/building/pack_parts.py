"""Small artifacts for packs: real names of kernels, with host objects of a few lines of C where one is needed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tilewright.base.digest import digest_text
from tilewright.building.pack.manifest import MANIFEST, Pack, PackKernel, describe_pack_file
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.toolchain import Toolchain
from tilewright.codegen.fatbin import fatbin_symbol
from tilewright.ops import OPS, find_op
from tilewright.ops.kernel import Kernel

OP = OPS[0]
GPUS = ("gfx90a", "gfx1201")
# What the host pass of a kernel leaves: its C functions, and a reference to device code that is still to come.
# It supports multiples of 64 and has no GPU to run on.
HOST = """
#include <stdint.h>
#include <stdio.h>
extern const char {fatbin}[];
static _Thread_local char last[64] = "";
int hipGetLastError(void);
int helper_of_{symbol}(void) {{ return hipGetLastError(); }}
int {symbol}_supports(const int64_t* args)
{{
    snprintf(last, sizeof(last), "m = %lld", (long long)args[12]);
    return args[0] < 8 ? 1 : args[12] % 64 == 0 ? 0 : 2;
}}
int {symbol}_workspace_size(const int64_t* args, uint64_t* bytes) {{ *bytes = (uint64_t)args[12] * 4; return 0; }}
int {symbol}_run(const int64_t* args, void* stream)
{{
    (void)stream;
    snprintf(last, sizeof(last), "no device for m = %lld", (long long)args[12]);
    return 4;
}}
const char* {symbol}_message(void) {{ return last; }}
const char* {symbol}_name(void) {{ return {fatbin}[0] == '_' ? "{slug}" : ""; }}
"""


def kernel_of(arch: str = "gfx942", op: str = OP.name, **fields: Any) -> Kernel:
    known = find_op(op)
    return known.make_kernel(known.make_example(fields), arch)


def facts_of(kernel: Kernel) -> dict[str, Any]:
    return {
        "slug": kernel.slug,
        "op": kernel.op,
        "arch": kernel.arch,
        "symbol": kernel.symbol,
        "unit": digest_text(kernel.slug),
        "kernel": kernel.facts,
    }


def unlinkable(kernel: Kernel, folder: Path, /, **facts: Any) -> Artifact:
    """An artifact whose files are no objects: for everything that comes before the linker."""
    return _put(kernel, folder, b"host of " + kernel.slug.encode(), **facts)


def linkable(kernel: Kernel, toolchain: Toolchain, folder: Path, /, host: str = HOST, **facts: Any) -> Artifact:
    """An artifact with a host object that links; its device code is a text that can be found again."""
    source, built = folder / f"{kernel.symbol}.c", folder / f"{kernel.symbol}.o"
    fatbin = fatbin_symbol(digest_text(kernel.slug))
    source.write_text(host.format(symbol=kernel.symbol, slug=kernel.slug, fatbin=fatbin))
    command = [toolchain.cxx, "-x", "c", "-fPIC", "-O1", "-c", source, "-o", built]
    subprocess.run([str(word) for word in command], check=True)
    return _put(kernel, folder, built.read_bytes(), **facts)


def small_pack(folder: Path) -> Pack:
    """A pack of two libraries and a header, none of which is what its name says."""
    for path in ("include/a.h", *(f"lib/lib{gpu}.so" for gpu in GPUS)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    libraries = {gpu: describe_pack_file(folder, f"lib/lib{gpu}.so") for gpu in GPUS}
    kernels = tuple(
        PackKernel(f"op-{gpu}-x", "op", f"tw_{gpu}", gpu, {"block": [1, 2], "pad": True}, "0" * 32, resources)
        for gpu, resources in zip(GPUS, ((), ({"vgprs": 128}, {"vgprs": 64})), strict=True)
    )
    pack = Pack(folder, "mine", "0.1.0", libraries, (describe_pack_file(folder, "include/a.h"),), kernels)
    (folder / MANIFEST).write_text(pack.to_text())
    return pack


def device_code(kernel: Kernel) -> bytes:
    return b"device code of " + kernel.slug.encode()


def _put(kernel: Kernel, folder: Path, host: bytes, /, **facts: Any) -> Artifact:
    store = Store(folder / "store")
    files = {"kernel.co": folder / "code", "host.o": folder / "host"}
    files["kernel.co"].write_bytes(device_code(kernel))
    files["host.o"].write_bytes(host)
    return store.put(digest_text(kernel.slug), files, {**facts_of(kernel), **facts})
