"""`tilewright generate`: write kernel sources into a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.base.events import report_task
from tilewright.cli.command import Option, make_jobs_option
from tilewright.cli.completion import complete_kernels
from tilewright.cli.filters import FilterCommand, add_filter_options, add_set_options
from tilewright.cli.gpu_option import LATE, make_gpu_option
from tilewright.cli.kernel_arguments import read_kernel_arguments
from tilewright.cli.output import add_json_option, format_count, print_facts, print_json
from tilewright.cli.output_paths import OutputFolder
from tilewright.cli.progress import report_progress
from tilewright.cli.settings import make_setting_option
from tilewright.cli.verbosity import print_remark

if TYPE_CHECKING:
    from tilewright.codegen.folder import GenerationResult
    from tilewright.ops.kernel import Kernel


@click.command(
    cls=FilterCommand,
    examples=(
        "tilewright generate gemm --out kernels --gpu gfx942 \\",
        "    --datatype fp16 --layout rcr --variants standard preshuffle multi_d",
        "tilewright generate fp16_rcr_essential --out kernels --gpu gfx942",
        "tilewright generate gemm --out kernels --gpu gfx950 \\",
        "    --kernel-set mine.toml --dry-run",
        "tilewright generate fmha --out kernels --gpu gfx942 --profile flash \\",
        "    --datatype fp16",
    ),
)
@click.argument("subjects", metavar="KERNELS…", nargs=-1, required=True, shell_complete=complete_kernels)
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
@make_gpu_option(
    "gpu_target",
    "Generate for these GPUs (gfx942,MI355X); `tilewright arch list` lists them.",
    default=LATE,
    several=True,
)
@add_filter_options
@add_set_options("Use")
@click.option(
    "--profile", metavar="NAME", help="Keep only the kernels that an integration needs; `tilewright sets` lists them."
)
@make_setting_option("VALUES", "Change a field of the set, or declare a space without one. May be repeated.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Write at most N kernels per GPU.")
@make_jobs_option("Run N processes in parallel.")
@click.option("--dry-run", is_flag=True, help="List the kernels and write nothing.")
@add_json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    subjects: tuple[str, ...],
    output_dir: Path,
    gpu_target: tuple[str, ...],
    filters: Mapping[str, tuple[str, ...]],
    preselected: str | None,
    kernel_set: Path | None,
    tile_engine: Path | None,
    profile: str | None,
    settings: tuple[str, ...],
    limit: int | None,
    jobs: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write kernel sources into a folder.

    KERNELS are preselected sets, kernel-set files (.toml, .json), and kernel names or digests; a
    kernel name contains its GPU. Or KERNELS is an op: its kernels come from --preselected, --kernel-set or
    --tile-engine, from all its preselected sets for the GPU without these options, or with --profile
    from the profile's own space.

    --datatype, --layout and --variants each keep only matching kernels, and so does an option for
    every field of the op, such as --pipeline compv3 mem or --wave-groups 2. These options take
    several values, so KERNELS comes before them.

    -s changes fields of the set. Without a set it declares a space of kernels, as in `tilewright
    space`.

    Only files that change are written. Kernels of an earlier run that are not part of this one are
    removed. manifest.json lists the files.
    """
    from tilewright.base import knobs
    from tilewright.codegen.folder import generate_sources

    with report_progress(as_json=as_json, steps=True):
        with report_task("choosing kernels"):
            asked = read_kernel_arguments(
                ctx, subjects, filters, preselected, kernel_set, profile, settings, tile_engine=tile_engine
            )
            gpus = asked.resolve_gpus(gpu_target)
            chosen = {k: name for gpu in gpus for k, name in asked.choose_kernels(gpu, limit, bounded=True).items()}
        kernels = list(chosen)
        workers = jobs or knobs.job_count()
        done = None if dry_run else generate_sources(kernels, output_dir, jobs=workers)
    _print(chosen, output_dir, done, as_json)


def _print(chosen: Mapping[Kernel, str], folder: Path, done: GenerationResult | None, as_json: bool) -> None:
    names = sorted(kernel.slug for kernel in chosen)
    sets = list(dict.fromkeys(chosen.values()))
    if as_json:
        counts = {}
        if done is not None:
            counts = {"written": done.written, "unchanged": done.unchanged, "removed": done.removed}
        print_json({"folder": str(folder), "sets": sets, "kernels": names, **counts})
    elif done is None:
        click.echo("\n".join(names))
        print_remark(f"{format_count(len(names), 'kernel')}, nothing written (--dry-run)")
    else:
        print_facts(
            [
                ("kernels", f"{done.kernels:,}"),
                ("from", f"{format_count(len(sets), 'set')}: {', '.join(sets)}"),
                ("written", format_count(done.written, "file")),
                ("unchanged", format_count(done.unchanged, "file")),
                ("removed", format_count(done.removed, "file")),
                ("folder", str(done.folder)),
            ]
        )
