"""`tilewright wrap`: write a source file per kernel header, and build files for one library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.cli.command import Command, Option
from tilewright.cli.gpu_option import make_gpu_option
from tilewright.cli.output import add_json_option, format_count, print_facts, print_json
from tilewright.cli.output_paths import OutputFolder
from tilewright.cli.progress import report_progress
from tilewright.cli.verbosity import set_verbosity

if TYPE_CHECKING:
    from tilewright.codegen.wrapper_folder import WrapResult

FOLDER = click.Path(file_okay=False, path_type=Path)
DEFAULT_LIBRARY = "tilewright_kernels"


@click.command(
    cls=Command,
    examples=(
        "tilewright wrap --kernel-dir kernels --out wrappers --generate-ninja",
        "tilewright wrap --kernel-dir kernels --out wrappers \\",
        "    --generate-cmake --toolchain rocm --library my_kernels",
        "tilewright wrap --kernel-dir others --out wrappers --pattern 'gemm_*.hpp' \\",
        "    --gpu gfx942 --gpu gfx950 --generate-makefile",
    ),
)
@click.option("--kernel-dir", type=FOLDER, required=True, metavar="DIR", help="The folder of the kernel headers.")
@click.option(
    "--out",
    "output_dir",
    cls=Option,
    aliases=("--output-dir",),
    type=OutputFolder(),
    required=True,
    metavar="DIR",
    help="The folder to write to. Created if needed.",
)
@click.option("--pattern", default="*.hpp", show_default=True, metavar="GLOB", help="File names of kernel headers.")
@click.option("--generate-cmake", is_flag=True, help="Write CMakeLists.txt.")
@click.option("--generate-ninja", is_flag=True, help="Write build.ninja.")
@click.option("--generate-makefile", is_flag=True, help="Write a Makefile.")
@make_gpu_option("arch", "Compile for these GPUs. May be repeated.", several=True)
@click.option(
    "--toolchain",
    cls=Option,
    metavar="KIND",
    show_default="the current toolchain",
    help="Use the toolchain rocm, pypi or gpu-less.",
)
@click.option(
    "--flag",
    "flags",
    multiple=True,
    metavar="FLAG",
    help="Add a compiler flag, as --flag=-DNAME. May be repeated.",
)
@click.option("--library", default=DEFAULT_LIBRARY, show_default=True, metavar="NAME", help="Build libNAME.so.")
@click.option("--parallel/--no-parallel", default=True, show_default=True, help="Write several files at once.")
@click.option("-v", "--verbose", is_flag=True, callback=set_verbosity, help="Print every step and every file.")
@add_json_option
def command(
    *,
    kernel_dir: Path,
    output_dir: Path,
    pattern: str,
    generate_cmake: bool,
    generate_ninja: bool,
    generate_makefile: bool,
    arch: tuple[str, ...],
    toolchain: str | None,
    flags: tuple[str, ...],
    library: str,
    parallel: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Write a .cpp file per kernel header, and build files.

    Each kernel is compiled by itself: in parallel with the others, and again only when it changes.
    Headers that manifest.json of the kernels lists as support are not kernels.

    The GPU is the one for which `tilewright generate` wrote the kernels. Without its manifest.json,
    or with kernels for several GPUs, give --gpu.

    Only files that change are written. Files of an earlier run that this one does not need are
    removed; wrappers.json lists the files. Other files are not touched.
    """
    from tilewright.base import knobs
    from tilewright.registry.source_folders import wrap

    asked = {"cmake": generate_cmake, "ninja": generate_ninja, "make": generate_makefile}
    with report_progress(as_json=as_json):
        done = wrap(
            kernel_dir,
            output_dir,
            [name for name, wanted in asked.items() if wanted],
            arch,
            pattern=pattern,
            library=library,
            toolchain=toolchain,
            flags=flags,
            jobs=knobs.job_count() if parallel else 1,
        )
    _print(done, verbose, as_json)


def _print(done: WrapResult, verbose: bool, as_json: bool) -> None:
    changes = {"written": done.written, "unchanged": done.unchanged, "removed": done.removed}
    recipe = done.library.recipe
    if as_json:
        print_json(
            {
                "folder": str(done.folder),
                "library": done.library.file,
                "gpus": list(recipe.gpus),
                "compiler": recipe.compiler,
                "kernels": [{"header": w.header, "wrapper": w.file, "marker": w.marker} for w in done.wrappers],
                "build_files": {system.name: system.file for system in done.systems},
                **{how: list(names) for how, names in changes.items()},
            }
        )
        return
    print_facts(
        [
            ("kernels", f"{len(done.wrappers):,}"),
            ("for", ", ".join(recipe.gpus)),
            ("compiler", recipe.compiler),
            ("library", done.library.file),
            *((how, format_count(len(names), "file")) for how, names in changes.items()),
            ("folder", str(done.folder)),
            *(("build with", f"{system.use}  # {system.file}") for system in done.systems),
        ]
    )
    if verbose:
        click.echo("\n".join(f"{how:<9}  {name}" for how, names in changes.items() for name in names))
