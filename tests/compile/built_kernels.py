"""Real kernels as artifacts of a store, compiled once and kept in the user's cache between runs of the tests."""

from __future__ import annotations

import tempfile
from pathlib import Path

import platformdirs

from tilewright import arch as archs
from tilewright.base.digest import digest_text, digest_value
from tilewright.building.compile import compile_device, unit_flag
from tilewright.building.process import run
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.toolchain import Toolchain
from tilewright.codegen.render import render
from tilewright.ops.kernel import Kernel

STORE = Store(Path(platformdirs.user_cache_dir("tilewright-tests")) / "kernels")


def built(kernel: Kernel, toolchain: Toolchain) -> Artifact:
    """The kernel's device code and host object; compiled when anything they are made of is new."""
    source = render(kernel)
    arch = archs.load(kernel.arch)
    flags = [*toolchain.key_flags(arch), *toolchain.host_flags()]
    key = digest_value([source.text, dict(source.files), flags, toolchain.identity()])
    found = STORE.get(key)
    if isinstance(found, Artifact):
        return found
    with tempfile.TemporaryDirectory() as private:
        folder = Path(private)
        code = folder / "kernel.co"
        outcome = compile_device(source.text, arch, toolchain, code, files=source.files)
        assert outcome.ok, outcome.log
        for name, text in {**source.files, "kernel.hip": source.text}.items():
            (folder / name).write_text(text)
        words = (*toolchain.host_flags(), f"--offload-arch={arch.name}", unit_flag(source.text))
        ran = run((str(toolchain.cxx), *words, "-c", "kernel.hip", "-o", "host.o"), folder=folder, timeout_s=600)
        assert ran.code == 0, ran.output
        facts = {
            "slug": kernel.slug,
            "op": kernel.op,
            "arch": kernel.arch,
            "symbol": kernel.symbol,
            "unit": digest_text(source.text),
            "kernel": kernel.facts,
        }
        return STORE.put(key, {"kernel.co": code, "host.o": folder / "host.o"}, facts)
