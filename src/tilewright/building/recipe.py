"""Make the recipe for build files from a toolchain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError, ToolchainError, choose
from tilewright.base.knobs import ROCM_PATH, TOOLCHAIN, TOOLCHAINS
from tilewright.building import ck_headers, flags
from tilewright.building.discover import discover
from tilewright.building.flags import COMPAT_COPY, HIP_FORWARD, HIP_FORWARD_FLAGS, HIP_LIBRARY
from tilewright.building.toolchain import ROCM, Toolchain, find_toolchain
from tilewright.codegen.build_files.recipe import (
    WRAPPER_SUFFIX,
    BuildStep,
    CompileRecipe,
    FolderFile,
    MachinePath,
    Slot,
    Word,
)

# The variable for the folder of CK's headers. TILEWRIGHT_CK, a setting of Tilewright, is the folder above it.
CK_INCLUDE = "TILEWRIGHT_CK_INCLUDE"
# One call of a ROCm compiler writes the whole object. With its newer driver, objects would need a special link step
# that adds the device code, which ordinary linkers and build systems do not have.
_WHOLE_OBJECT = ("-fPIC", "--no-offload-new-driver")
# clang's driver writes no dependency files for device passes; the compiler itself does with this flag.
_LISTS_HEADERS = ("-Xclang", "-dependency-file", "-Xclang", Slot.DEPFILE)
# Words of the link step, after the objects: the functions that find HIP at run time.
_FIND_HIP: tuple[Word, ...] = (*HIP_FORWARD_FLAGS, FolderFile(HIP_FORWARD.name))
_DEVICE_ONLY = ("--cuda-device-only", "--no-gpu-bundle-output")


def make_recipe(kind: str | None, archs: Sequence[Arch], extra: Sequence[str] = ()) -> CompileRecipe:
    """Make the recipe for `archs` with a kind of toolchain; None means the current one.

    ROCm may be missing on this machine: then the recipe calls the `hipcc` on PATH of the machine that builds. `extra`
    are further flags of every call that compiles a kernel.
    """
    for flag in extra:
        if not flag or not flag.isprintable():
            raise InvalidValueError(f"a compiler flag is a line of printable characters, got {flag!r}")
    recipe = _make_plain_recipe(kind, archs)
    steps = [replace(step, flags=(*step.flags, *extra)) if step.reads_headers else step for step in recipe.steps]
    return replace(recipe, steps=tuple(steps))


def _make_plain_recipe(kind: str | None, archs: Sequence[Arch]) -> CompileRecipe:
    if kind is not None:
        choose("toolchain", kind, TOOLCHAINS)
    found = discover()
    if kind == ROCM and found.chosen != ROCM:
        return make_hipcc_recipe(archs)
    if None not in (kind, found.chosen) and kind != found.chosen:
        raise ToolchainError(
            f"the toolchain {kind} is not the current one: {found.reason}. Leave --toolchain out, or set "
            f"{TOOLCHAIN.name}={kind}."
        )
    toolchain = find_toolchain()
    return make_rocm_recipe(toolchain, archs) if toolchain.kind == ROCM else make_gpu_less_recipe(toolchain, archs)


def make_gpu_less_recipe(toolchain: Toolchain, archs: Sequence[Arch]) -> CompileRecipe:
    """Make a recipe of two passes that can run in parallel, and a step that embeds the code objects."""
    targets = tuple(f"--offload-arch={arch.name}" for arch in archs)
    device = [
        BuildStep(
            f"device_{arch.name}",
            f"(device code for {arch.name})",
            (*_name_files(toolchain.device_flags(arch, COMPAT_COPY)), *_LISTS_HEADERS),
            WRAPPER_SUFFIX,
            f".{arch.name}.co",
        )
        for arch in archs
    ]
    host_flags = (*_name_files(toolchain.host_flags(COMPAT_COPY)), *targets, "-c")
    host = BuildStep("host", "(host code)", host_flags, WRAPPER_SUFFIX, ".host.o", linked=True)
    needs = tuple(step.product for step in device)
    embed = BuildStep(
        "embed", "(embedding)", ("-c",), ".fatbin.s", ".fatbin.o", needs, reads_headers=False, linked=True
    )
    return CompileRecipe(
        str(toolchain.cxx),
        _list_names(archs),
        (*device, host, embed),
        (*_FIND_HIP, *toolchain.link_flags()),
        _list_paths(toolchain.flag_paths()),
        {**toolchain.compat_files(), **_read_hip_forward()},
    )


def make_rocm_recipe(toolchain: Toolchain, archs: Sequence[Arch]) -> CompileRecipe:
    """Make a recipe with one call of ROCm's compiler per kernel."""
    step = _make_whole_step([toolchain.device_flags(arch) for arch in archs])
    # The library stays on this machine, and programs that load it do not know HIP's folder. It looks for HIP there.
    link = (*_FIND_HIP, f"-Wl,-rpath,{toolchain.rocm_path}/lib", *toolchain.link_flags())
    paths = _list_paths(toolchain.flag_paths())
    return CompileRecipe(str(toolchain.cxx), _list_names(archs), (step,), link, paths, _read_hip_forward())


def make_hipcc_recipe(archs: Sequence[Arch]) -> CompileRecipe:
    """Like `make_rocm_recipe`, for a ROCm on another machine. hipcc finds its own headers and libraries.

    CK's headers are those of this machine if it has any, otherwise those of hipcc's ROCm.
    """
    ck = ck_headers.find_ck_component(None)
    nowhere = flags.NOWHERE
    places = replace(nowhere, compat="", ck=str(ck.path) if ck.path is not None else nowhere.ck)
    absent = (nowhere.rocm, nowhere.bitcode, nowhere.ck)
    step = _make_whole_step(
        [
            tuple(flag for flag in flags.device_flags(arch, places, ()) if not any(a in flag for a in absent))
            for arch in archs
        ]
    )
    paths = () if ck.path is None else (MachinePath(CK_INCLUDE, places.ck),)
    return CompileRecipe("hipcc", _list_names(archs), (step,), (HIP_LIBRARY,), paths)


def _make_whole_step(per_gpu: Sequence[Sequence[str]]) -> BuildStep:
    """Make a step that compiles for host and GPUs at once, from the common flags of the device passes."""
    targets = [flag for flag in chain.from_iterable(per_gpu) if flag.startswith("--offload-arch=")]
    shared = [flag for flag in per_gpu[0] if flag not in _DEVICE_ONLY and flag not in targets]
    # hipcc compiles for the machine's GPU unless the command line names one.
    return BuildStep("compile", "", (*targets, *shared, *_WHOLE_OBJECT), WRAPPER_SUFFIX, ".o", linked=True)


def _list_paths(found: flags.FlagPaths) -> tuple[MachinePath, ...]:
    """List the paths of this machine in the flags. The compatibility header is not one: it is in the folder."""
    return (
        MachinePath(CK_INCLUDE, found.ck),
        MachinePath("TILEWRIGHT_DEVICE_LIBS", found.bitcode),
        MachinePath(ROCM_PATH.name, found.rocm),
    )


def _name_files(words: Sequence[str]) -> Iterator[Word]:
    return (FolderFile(word) if word == COMPAT_COPY else word for word in words)


def _read_hip_forward() -> dict[str, str]:
    return {HIP_FORWARD.name: HIP_FORWARD.read_text("utf-8")}


def _list_names(archs: Sequence[Arch]) -> tuple[str, ...]:
    return tuple(arch.name for arch in archs)
