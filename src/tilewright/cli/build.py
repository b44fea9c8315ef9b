"""`tilewright build`: compile kernels into the store, and link them into packs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import InvalidValueError
from tilewright.base.events import report_task
from tilewright.cli.command import is_given, make_jobs_option
from tilewright.cli.completion import complete_kernels
from tilewright.cli.filters import FilterCommand, add_filter_options, add_set_options
from tilewright.cli.gpu_option import LATE, make_gpu_option
from tilewright.cli.kernel_arguments import KernelArguments, read_arguments_by_op
from tilewright.cli.output import add_json_option, format_count, mark_bad, print_facts, print_json, print_table
from tilewright.cli.output_paths import OutputFile, OutputFolder
from tilewright.cli.progress import report_progress
from tilewright.cli.settings import make_setting_option

if TYPE_CHECKING:
    from tilewright.building.pack.manifest import Pack
    from tilewright.building.store.artifact import Failure
    from tilewright.ops.kernel import Kernel
    from tilewright.registry.registry import Registry

MOST_FAILURES = 20
# CPU time of one kernel, see `space.MOST_KERNELS`.
HOURS_PER_KERNEL = 5 / 1000


@click.command(
    cls=FilterCommand,
    examples=(
        "tilewright build fp16_rcr_essential --gpu gfx942",
        "tilewright build 2b170e908187",
        "tilewright build gemm --gpu gfx942 --kernel-set mine.toml --jobs 8 --trace build.json",
        "tilewright build gemm --gpu gfx942,gfx950 --preselected fp16_rcr_essential \\",
        "    --limit 4 --out my_pack",
        "tilewright build fp16_rcr_essential --gpu gfx942 --wheel dist",
        "tilewright build norm --gpu gfx942,gfx950 --cluster 10.0.0.1:6379",
    ),
)
@click.argument("subjects", metavar="KERNELS…", nargs=-1, required=True, shell_complete=complete_kernels)
@make_gpu_option("gpu_target", "Build for these GPUs, such as gfx942,gfx950.", default=LATE, several=True)
@add_filter_options
@add_set_options("Use")
@click.option(
    "--profile", metavar="NAME", help="Keep only the kernels that an integration needs; `tilewright sets` lists them."
)
@click.option(
    "--kernel", "slugs", multiple=True, metavar="NAME", help="Build the kernel of this name. May be repeated."
)
@make_setting_option("VALUES", "Change a field of the set, or declare a space without one. May be repeated.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Build at most N kernels per GPU.")
@make_jobs_option("Run N compilers in parallel.")
@click.option("--time-limit", type=click.FloatRange(1), metavar="S", help="Stop compiling a kernel after S seconds.")
@click.option("--retry", is_flag=True, help="Compile kernels again whose earlier builds failed.")
@click.option(
    "--cluster",
    metavar="auto|local|ADDRESS",
    help="Build on a Ray cluster: a running one, a new one on this machine, or the one at ADDRESS.",
)
@click.option("--trace", type=OutputFile(), metavar="FILE", help="Write a build trace for ui.perfetto.dev.")
@click.option(
    "--out",
    "--pack",
    "pack",
    type=OutputFolder(),
    metavar="DIR",
    help="Also link all kernels into a pack for C and C++, in this folder.",
)
@click.option(
    "--pack-name", default="tilewright_pack", show_default=True, metavar="NAME", help="CMake name of the pack."
)
@click.option("--wheel", type=OutputFolder(), metavar="DIR", help="Also write a wheel of all kernels into this folder.")
@click.option("--wheel-name", metavar="NAME", show_default="tilewright-kernels-GPU", help="Name of the wheel.")
@click.option("--wheel-version", metavar="V", show_default="Tilewright's version", help="Version of the wheel.")
@click.option("--wheel-emulator", is_flag=True, help="Add the HIP library of emulated devices to the wheel.")
@add_json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    subjects: tuple[str, ...],
    gpu_target: tuple[str, ...],
    filters: Mapping[str, tuple[str, ...]],
    preselected: str | None,
    kernel_set: Path | None,
    tile_engine: Path | None,
    profile: str | None,
    settings: tuple[str, ...],
    slugs: tuple[str, ...],
    limit: int | None,
    jobs: int | None,
    time_limit: float | None,
    retry: bool,
    cluster: str | None,
    trace: Path | None,
    pack: Path | None,
    pack_name: str,
    wheel: Path | None,
    wheel_name: str | None,
    wheel_version: str | None,
    wheel_emulator: bool,
    as_json: bool,
) -> None:
    """Compile kernels into the store, a pack or a wheel.

    KERNELS are preselected sets, kernel-set files (.toml, .json), and kernel names or digests, also
    of several ops; a kernel name contains its GPU. Or KERNELS is an op: its kernels come from
    --preselected, --kernel-set, --tile-engine or --kernel, from all its preselected sets for the GPU
    without these options, or with --profile from the profile's own space.

    --datatype, --layout and --variants each keep only matching kernels, and so does an option for
    every field of the op, such as --pipeline compv3 mem. -s changes fields of the set. Without a set
    it declares a space of kernels, as in `tilewright space`.

    Kernels that are in the store, an installed wheel or the remote tier are not compiled again. If a
    kernel fails, the others are still built; the exit code is then 1, and no pack or wheel is
    written. Before it builds more than 1,000 kernels, the command asks; without a terminal, give
    --limit.

    A wheel has kernels for one GPU. Machines that install it with pip do not compile them.

    With --cluster, the nodes of a Ray cluster compile, each kernel on one of them. They exchange
    kernels through the shared store in TILEWRIGHT_REMOTE, which must be set, and all kernels are
    copied to this machine's store. The same command continues a build that was stopped.
    """
    from tilewright.building.builder import LIMIT_S
    from tilewright.cli.build_cluster import build_with_report, check_cluster_options, print_report
    from tilewright.registry.registry import Registry

    check_cluster_options(ctx, cluster)
    with report_progress(as_json=as_json), report_task("choosing kernels"):
        asked = read_arguments_by_op(
            ctx, subjects, filters, preselected, kernel_set, profile, settings, tile_engine=tile_engine
        )
        if slugs:
            gpus = list(dict.fromkeys(gpu for each in asked for gpu in each.resolve_gpus(gpu_target)))
            kernels = _parse_kernels(asked[0], gpus, slugs)
        else:
            kernels = [
                kernel
                for each in asked
                for gpu in each.resolve_gpus(gpu_target)
                for kernel in each.choose_kernels(gpu, limit, bounded=True)
            ]
    _check_wheel_options(ctx, kernels, wheel)
    _confirm_number(ctx, len(kernels), limit)
    registry, report = Registry.of(kernels), None
    with report_progress(as_json=as_json, steps=True):
        if cluster is None:
            registry = registry.build(jobs, limit_s=time_limit or LIMIT_S, retry=retry, trace=trace)
        else:
            registry, report = build_with_report(registry, cluster, time_limit or LIMIT_S, retry=retry)
        packed = _pack_kernels(registry, pack, pack_name)
        written = None
        if wheel is not None and not registry.failures:
            from tilewright.registry.wheels import write_kernel_wheel

            written = write_kernel_wheel(registry, wheel, name=wheel_name, version=wheel_version, shim=wheel_emulator)
    if as_json:
        more = {} if report is None else {"cluster": report.to_json()}
        print_json({**_to_json(registry, packed), "wheel": None if written is None else str(written), **more})
    else:
        _print(registry, packed, written)
        if report is not None:
            print_report(report)
    ctx.exit(1 if registry.failures else 0)


def _check_wheel_options(ctx: click.Context, kernels: Sequence[Kernel], wheel: Path | None) -> None:
    """Reject options of a wheel before anything is built."""
    gpus = sorted({kernel.arch for kernel in kernels})
    if wheel is None:
        given = [name for name in ("wheel_name", "wheel_version", "wheel_emulator") if is_given(ctx, name)]
        if given:
            raise InvalidValueError(f"--{given[0].replace('_', '-')} needs --wheel DIR")
    elif len(gpus) != 1:
        raise InvalidValueError(f"a wheel has kernels for one GPU: give --wheel once for each of {', '.join(gpus)}")


def _confirm_number(ctx: click.Context, count: int, limit: int | None) -> None:
    """Ask before so many kernels are built that a field or a filter was probably forgotten."""
    from tilewright.ops import space

    if limit is not None or count <= space.MOST_KERNELS:
        return
    about = f"{count:,} kernels would be built, which takes about {count * HOURS_PER_KERNEL:,.0f} hours of CPU time"
    if not sys.stdin.isatty():
        raise InvalidValueError(f"{about}: name a smaller set, filter it, or give --limit {count}")
    if not click.confirm(f"{about}. Continue?", err=True):
        ctx.exit(2)


def _parse_kernels(asked: KernelArguments, gpus: Sequence[str], slugs: Sequence[str]) -> list[Kernel]:
    """The kernels of --kernel."""
    from tilewright.ops import parse_kernel

    if asked.names_kernels or asked.wanted:
        raise InvalidValueError(
            "--kernel names single kernels and cannot be combined with sets, profiles, -s and filters"
        )
    named = [parse_kernel(slug) for slug in slugs]
    others = [k.slug for k in named if k.op != asked.op.name or k.arch not in gpus]
    if others:
        raise InvalidValueError(f"{others[0]} is not a kernel of {asked.op.name} for {', '.join(gpus)}")
    return named


def _pack_kernels(registry: Registry, folder: Path | None, name: str) -> Pack | None:
    from tilewright.registry.packing import pack

    return None if folder is None or registry.failures else pack(registry, folder, name=name)


def _to_json(registry: Registry, packed: Pack | None) -> dict[str, Any]:
    built = registry.built
    assert built is not None
    return {
        "kernels": [
            {"name": k.slug, "arch": k.arch, "key": a.key, "folder": str(a.folder), "facts": dict(a.facts)}
            for k, a in registry.artifacts.items()
        ],
        "failures": [
            {"name": k.slug, "arch": k.arch, "errors": f.facts.get("errors", []), "log": f.log}
            for k, f in registry.failures.items()
        ],
        "compiled": built.compiled,
        "warm_cpu_s": round(built.warm_cpu_s, 2),
        "wall_s": round(built.wall_s, 2),
        "pack": None if packed is None else str(packed.folder),
    }


def _print(registry: Registry, packed: Pack | None, wheel: Path | None) -> None:
    from tilewright.base import knobs

    built = registry.built
    assert built is not None
    in_store = len(registry.artifacts) - built.compiled
    facts = [
        ("built", format_count(built.compiled, "kernel") + f" in {built.wall_s:.1f} s"),
        ("already built", format_count(in_store, "kernel")),
        ("store", str(knobs.store_dir())),
    ]
    if packed is not None:
        facts.append(("pack", str(packed.folder)))
    if wheel is not None:
        facts.append(("wheel", str(wheel)))
    if registry.failures:
        facts.insert(2, ("failed", mark_bad(format_count(len(registry.failures), "kernel"))))
    print_facts(facts)
    if registry.failures:
        _print_failures(registry.failures)


def _print_failures(failures: Mapping[Kernel, Failure]) -> None:
    rows = [(k.slug, str((f.facts.get("errors") or ["?"])[0])) for k, f in failures.items()]
    print_table(("kernel", "first error"), rows[:MOST_FAILURES], title="Failed")
    if len(rows) > MOST_FAILURES:
        click.echo(f"… and {len(rows) - MOST_FAILURES} more; --json has all of them with their logs.")
