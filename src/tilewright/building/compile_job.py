"""A compile job: the source, commands and build key of one kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tilewright import arch as archs
from tilewright.arch.ck_api import CkApi
from tilewright.base.digest import digest_text, digest_value
from tilewright.building.ck_edits import digest_edits, edit_headers
from tilewright.building.ck_tree import require_api
from tilewright.building.compile import SOURCE, unit_flag
from tilewright.building.flags import COMPAT_COPY, HIP_FORWARD, HIP_FORWARD_FLAGS
from tilewright.building.header_set import HeaderSet, PchFlags
from tilewright.building.toolchain import Toolchain
from tilewright.codegen.fatbin import fatbin_symbol, render_fatbin
from tilewright.codegen.render import KernelSource, choose_reachable, render
from tilewright.ops import ck_shortcuts, find_op
from tilewright.ops.kernel import Kernel

# Part of every key. Increase it when the steps below change in a way that sources and flags do not show.
RECIPE = 1

CODE_OBJECT = "kernel.co"
HOST_OBJECT = "host.o"
LIBRARY = "kernel.so"
FATBIN = "fatbin.s"
# The files of a built kernel: the library to load, and the two objects that a pack is linked from.
PRODUCTS = (LIBRARY, CODE_OBJECT, HOST_OBJECT)


@dataclass(frozen=True)
class CompileJob:
    """A kernel to build with a toolchain."""

    source: KernelSource
    toolchain: Toolchain

    @property
    def kernel(self) -> Kernel:
        return self.source.kernel

    @cached_property
    def key(self) -> str:
        """The build key: a digest of all inputs of the build, without folders, times and users."""
        arch = archs.load(self.kernel.arch)
        return digest_value(
            {
                "recipe": RECIPE,
                "source": digest_text(self.source.text),
                "files": {name: digest_text(text) for name, text in self.source.files.items()},
                "arch": arch.name,
                "device": self.toolchain.key_flags(arch),
                "host": self.toolchain.host_key_flags(),
                "link": (*HIP_FORWARD_FLAGS, *self.toolchain.link_flags()),
                "hip_forward": digest_text(HIP_FORWARD.read_text("utf-8")),
                "toolchain": self.toolchain.identity(),
                "ck": self.toolchain.ck_digest,
                "ck_edits": digest_value(dict(self.edited_headers)),
            }
        )

    @property
    def edited_headers(self) -> Mapping[str, str]:
        """The copies of CK's headers that precede CK's folder."""
        if ck_shortcuts.NAME not in self.source.files:
            return {}
        return edit_headers(self.toolchain.ck_include, self.toolchain.ck_digest)

    @cached_property
    def source_key(self) -> str:
        """The digest of the inputs that Tilewright itself writes, the same for every toolchain and CK tree."""
        return compute_source_key(self.source)

    @property
    def name(self) -> str:
        """The name of the translation unit, the same in both passes."""
        return unit_flag(self.source.text).removeprefix("-cuid=")

    @property
    def device_headers(self) -> HeaderSet:
        """The headers to precompile for the device pass. The same for all kinds of an op."""
        name = f"device-{self.kernel.arch}"
        return HeaderSet(name, self._device_flags(), self._headers, self._shared_files(), self.toolchain)

    @property
    def host_headers(self) -> HeaderSet:
        """The headers to precompile for the host pass. The same for all kinds of an op and all GPUs."""
        return HeaderSet("host", self._host_flags(), self._headers, self._shared_files(), self.toolchain)

    @property
    def own_files(self) -> Mapping[str, str]:
        """The files that the source includes besides the op's headers, such as the launchers of its kind.

        They are parsed with the source: a set of precompiled headers for each kind costs more CPU time than it saves.
        """
        shared = choose_reachable(self._headers, self.source.files)
        return {name: text for name, text in self.source.files.items() if name not in shared}

    def texts(self) -> Mapping[str, str]:
        """The files that the commands need in their folder."""
        symbol = fatbin_symbol(self.name)
        return {
            **self.own_files,
            SOURCE: self.source.text,
            FATBIN: render_fatbin({self.kernel.arch: CODE_OBJECT}, symbol),
            HIP_FORWARD.name: HIP_FORWARD.read_text("utf-8"),
        }

    def device_command(self, pch: PchFlags) -> tuple[str, ...]:
        """The command of the device pass, which compiles the source to a code object."""
        flags = (*self._device_flags(), *pch.flags, unit_flag(self.source.text))
        return (str(self.toolchain.cxx), *flags, "-o", CODE_OBJECT, SOURCE)

    def host_command(self, pch: PchFlags) -> tuple[str, ...]:
        """The command of the host pass: checks and launcher; the symbol of the code object stays undefined."""
        flags = (*self._host_flags(), *pch.flags, unit_flag(self.source.text))
        return (str(self.toolchain.cxx), *flags, "-c", "-o", HOST_OBJECT, SOURCE)

    def link_command(self) -> tuple[str, ...]:
        """The command that links host object, code object and the functions that find HIP to the shared library."""
        shared = ("-shared", "-o", LIBRARY, HOST_OBJECT, FATBIN, *HIP_FORWARD_FLAGS, HIP_FORWARD.name)
        return (str(self.toolchain.cxx), *shared, *self.toolchain.link_flags())

    def _device_flags(self) -> tuple[str, ...]:
        return self.toolchain.device_flags(archs.load(self.kernel.arch), COMPAT_COPY)

    def _host_flags(self) -> tuple[str, ...]:
        return self.toolchain.host_flags(COMPAT_COPY)

    @property
    def _headers(self) -> tuple[str, ...]:
        return find_op(self.kernel.op).headers

    def _shared_files(self) -> Mapping[str, str]:
        """Our own files among the op's headers, and copies of CK's; both passes use the same folder."""
        shared = choose_reachable(self._headers, self.source.files)
        return {**shared, **self.toolchain.compat_files(), **self.edited_headers}

    def facts(self) -> dict[str, Any]:
        """The facts to store with the files, without the results of the build."""
        kernel = self.kernel
        return {
            "slug": kernel.slug,
            "op": kernel.op,
            "arch": kernel.arch,
            "symbol": kernel.symbol,
            "unit": self.name,
            "kernel": kernel.facts,
            "compiler": self.toolchain.compiler,
            "ck": self.source.ck.generation,
        }


def compute_source_key(source: KernelSource) -> str:
    """Compute the digest of a kernel's source, of our own files that it includes, of its GPU and of the recipe."""
    return digest_value(
        {
            "recipe": RECIPE,
            "source": digest_text(source.text),
            "files": {name: digest_text(text) for name, text in source.files.items()},
            "arch": source.kernel.arch,
            "hip_forward": digest_text(HIP_FORWARD.read_text("utf-8")),
            "ck_edits": digest_edits() if ck_shortcuts.NAME in source.files else "",
        }
    )


def make_compile_job(kernel: Kernel, toolchain: Toolchain) -> CompileJob:
    """Make the compile job of a legal kernel. Raises `IllegalConfigError` for an illegal one."""
    return next(make_compile_jobs([kernel], toolchain))


def make_compile_jobs(kernels: Iterable[Kernel], toolchain: Toolchain) -> Iterator[CompileJob]:
    """Make the compile jobs of legal kernels one after another, with one look at the CK headers for each op."""
    apis: dict[str, CkApi] = {}
    for kernel in kernels:
        if kernel.op not in apis:
            apis[kernel.op] = require_api(kernel.op, toolchain.ck_include)
        yield CompileJob(render(kernel, apis[kernel.op]), toolchain)


def write_texts(texts: Mapping[str, str], folder: Path) -> None:
    """Write texts as files into a new folder."""
    folder.mkdir(mode=0o700)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)  # names of included files may contain folders
        (folder / name).write_text(text, encoding="utf-8")
