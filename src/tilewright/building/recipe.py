"""From a toolchain to the recipe that build files are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from tilewright.arch.spec import Arch
from tilewright.base.errors import ToolchainError, choose
from tilewright.building import ck_headers, flags
from tilewright.building.discover import discover
from tilewright.building.link_flags import HIP_LIBRARY
from tilewright.building.toolchain import GPU_LESS, ROCM, Toolchain, find
from tilewright.codegen.build_files.recipe import WRAPPER_SUFFIX, CompileRecipe, Slot, Step

KINDS = (ROCM, GPU_LESS)
# One call of a ROCm compiler makes the whole object. Objects of its newer driver would lack their device code
# until a special link step; ordinary linkers and build systems do not have one.
_WHOLE_OBJECT = ("-fPIC", "--no-offload-new-driver")
# clang's driver drops lists of dependencies from device passes; the compiler behind it writes them when told.
_LISTS_HEADERS = ("-Xclang", "-dependency-file", "-Xclang", Slot.DEPFILE)
_DEVICE_ONLY = ("--cuda-device-only", "--no-gpu-bundle-output")


def recipe(kind: str | None, archs: Sequence[Arch]) -> CompileRecipe:
    """How to compile for `archs` with a kind of toolchain; with None, with the one in force.

    ROCm need not be here: then the recipe calls the `hipcc` that is on PATH where the library is built.
    """
    if kind is not None:
        choose("toolchain", kind, KINDS)
    found = discover()
    if kind == ROCM and found.chosen != ROCM:
        return hipcc_recipe(archs)
    if kind == GPU_LESS and found.chosen == ROCM:
        raise ToolchainError(
            f"the GPU-less toolchain is used only where no ROCm is, and {found.reason}. Leave --toolchain out."
        )
    toolchain = find()
    return rocm_recipe(toolchain, archs) if toolchain.kind == ROCM else gpu_less_recipe(toolchain, archs)


def gpu_less_recipe(toolchain: Toolchain, archs: Sequence[Arch]) -> CompileRecipe:
    """Two passes that can run at once, and the embedding of what the device pass made."""
    targets = tuple(f"--offload-arch={arch.name}" for arch in archs)
    device = [
        Step(
            f"device_{arch.name}",
            f"(device code for {arch.name})",
            (*toolchain.device_flags(arch), *_LISTS_HEADERS),
            WRAPPER_SUFFIX,
            f".{arch.name}.co",
        )
        for arch in archs
    ]
    host_flags = (*toolchain.host_flags(), *targets, "-c")
    host = Step("host", "(host code)", host_flags, WRAPPER_SUFFIX, ".host.o", linked=True)
    needs = tuple(step.product for step in device)
    embed = Step("embed", "(embedding)", ("-c",), ".fatbin.s", ".fatbin.o", needs, reads_headers=False, linked=True)
    return CompileRecipe(str(toolchain.cxx), _names(archs), (*device, host, embed), toolchain.link_flags())


def rocm_recipe(toolchain: Toolchain, archs: Sequence[Arch]) -> CompileRecipe:
    """One call of ROCm's compiler per kernel."""
    step = _whole_step([toolchain.device_flags(arch) for arch in archs])
    # The library stays on this machine, and programs that load it know nothing of HIP's folder.
    rpath = f"-Wl,-rpath,{toolchain.rocm_path}/lib"
    return CompileRecipe(str(toolchain.cxx), _names(archs), (step,), (rpath, *toolchain.link_flags()))


def hipcc_recipe(archs: Sequence[Arch]) -> CompileRecipe:
    """The same for a ROCm that is not here. hipcc knows where its own headers and libraries are.

    CK's headers are those of this machine if it has any; if not, those of hipcc's ROCm.
    """
    ck = ck_headers.locate(None)
    nowhere = flags.NOWHERE
    places = replace(nowhere, compat="", ck=str(ck.path) if ck.path is not None else nowhere.ck)
    absent = (nowhere.rocm, nowhere.bitcode, nowhere.ck)
    step = _whole_step(
        [
            tuple(flag for flag in flags.device_flags(arch, places, ()) if not any(a in flag for a in absent))
            for arch in archs
        ]
    )
    return CompileRecipe("hipcc", _names(archs), (step,), (HIP_LIBRARY,))


def _whole_step(per_gpu: Sequence[Sequence[str]]) -> Step:
    """A step that compiles for host and GPUs at once: the flags of the device passes without what singles them out."""
    targets = [flag for flag in chain.from_iterable(per_gpu) if flag.startswith("--offload-arch=")]
    shared = [flag for flag in per_gpu[0] if flag not in _DEVICE_ONLY and flag not in targets]
    # hipcc asks the machine for its GPU unless it is told one on the command line.
    return Step("compile", "", (*targets, *shared, *_WHOLE_OBJECT), WRAPPER_SUFFIX, ".o", linked=True)


def _names(archs: Sequence[Arch]) -> tuple[str, ...]:
    return tuple(arch.name for arch in archs)
