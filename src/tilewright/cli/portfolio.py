"""`tilewright portfolio`: choose the few kernels that are worth building for a list of problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.atomic_write import write_text
from tilewright.base.errors import InvalidValueError
from tilewright.base.events import report_task
from tilewright.base.extras import require_packages
from tilewright.cli.command import FILE, make_format_option
from tilewright.cli.completion import complete_kernels
from tilewright.cli.filters import FilterCommand, add_filter_options, add_set_options
from tilewright.cli.gpu_option import LATE, make_gpu_option
from tilewright.cli.kernel_arguments import KernelArguments, read_kernel_arguments
from tilewright.cli.kernel_choice import make_field_filter
from tilewright.cli.output import add_json_option, format_count, print_facts, print_json, print_table
from tilewright.cli.output_paths import OutputFile
from tilewright.cli.problems import read_listed_problems
from tilewright.cli.progress import report_progress
from tilewright.cli.settings import make_setting_option
from tilewright.cli.verbosity import print_remark

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.kernel import Kernel
    from tilewright.ops.op import Op
    from tilewright.select.portfolio import Matrix, Portfolio

PATH = click.Path(exists=True, path_type=Path)
NUMBERS = ("kernels", "mean %", "P10 %", "computed")
PREDICTED, MEASURED = "predicted", "measured"


@dataclass(frozen=True)
class PortfolioInput:
    """The input of a choice: kernels and problem lists, or a table of measurements."""

    files: tuple[Path, ...]
    file_format: str | None
    measured: Path | None
    named: KernelArguments

    @property
    def has_kernel_options(self) -> bool:
        return self.named.names_kernels


@dataclass(frozen=True, eq=False)
class TimeTable:
    """Kernel times for problems, and whether they are measured or predicted."""

    kind: str
    kernels: Sequence[Kernel]
    us: Matrix  # problems × kernels


@click.command(
    cls=FilterCommand,
    examples=(
        "tilewright portfolio gemm --gpu gfx942 --problems shapes.csv --keep 8 --out shipped.toml",
        "tilewright portfolio gemm --gpu gfx942 --problems shapes.csv --keep 8 \\",
        "    --preselected tile_engine_default --datatype fp16 --layout rcr --plot coverage.png",
        "tilewright portfolio grouped_conv --gpu gfx950 --measured sweep.parquet --keep 6",
    ),
)
@click.argument("subjects", metavar="KERNELS…", nargs=-1, required=True, shell_complete=complete_kernels)
@make_gpu_option("arch_name", "Choose kernels for this GPU.", default=LATE)
@click.option(
    "--keep", type=click.IntRange(1), default=8, show_default=True, metavar="N", help="Keep at most N kernels."
)
@click.option(
    "--problems",
    "files",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Use the problems of this file. May be repeated.",
)
@make_format_option("Format of the files of --problems.")
@click.option(
    "--measured", type=PATH, metavar="FILE", help="Use measured times (.parquet, or a journal), not predicted ones."
)
@add_filter_options
@add_set_options("Choose from")
@click.option("--profile", metavar="NAME", help="Choose from the kernels that an integration needs.")
@make_setting_option("VALUES", "Choose from the space with these field values, or change fields of the set.")
@click.option(
    "--plot",
    type=OutputFile(".png", ".svg", ".pdf"),
    metavar="FILE",
    help="Plot coverage over the number of kernels (.png, .svg, .pdf).",
)
@click.option("--out", type=OutputFile(".toml"), metavar="FILE", help="Write the kernels as a kernel-set file (.toml).")
@add_json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    subjects: tuple[str, ...],
    arch_name: str | None,
    keep: int,
    files: tuple[Path, ...],
    file_format: str | None,
    measured: Path | None,
    filters: Mapping[str, tuple[str, ...]],
    preselected: str | None,
    kernel_set: Path | None,
    tile_engine: Path | None,
    profile: str | None,
    settings: tuple[str, ...],
    plot: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Choose the few kernels that suit a list of problems best.

    The efficiency of a choice is the best time of all kernels divided by the time of the chosen one.
    Kernels are added one by one, each time the one that raises the mean efficiency of the best kept
    kernel most; a problem that no kept kernel supports counts 0. A problem that is listed three
    times counts three times.

    Times are predicted for the problems of --problems, without a GPU, or read from a table of
    measurements, where a pair without a time counts as unsupported. You select kernels with the
    arguments of `build`, or with -s; with --measured they are those of the table. Problems that
    take several kernels, one after the other, are not counted.

    --out writes the kernels with the most useful first; `build --kernel-set` reads the file.
    """
    from tilewright import arch as archs

    named = read_kernel_arguments(
        ctx, subjects, filters, preselected, kernel_set, profile, settings, tile_engine=tile_engine
    )
    op, arch = named.op, archs.load(named.resolve_gpu(arch_name))
    asked = PortfolioInput(files, file_format, measured, named)
    _check_input(asked, plot)
    with report_progress(as_json=as_json):
        times = (_predict_times if measured is None else _read_measured_times)(op, arch, asked)
        portfolio = _choose_portfolio(times, keep)
    kept = [times.kernels[place] for place in portfolio.order]
    title = f"{op.name} on {arch.name}: {format_count(len(times.us), 'problem')}, {times.kind} times"
    if out is not None:
        _write_set(op, arch, out, kept, title)
    if plot is not None:
        from tilewright.learn.plots import plot_coverage

        plot_coverage(portfolio, plot, title)
    if as_json:
        print_json({"op": op.name, "arch": arch.name, **_to_json(times, portfolio, kept)})
    else:
        _print(op, times, portfolio, kept, keep, title)
        written = [(name, str(path)) for name, path in (("kernel set", out), ("plot", plot)) if path is not None]
        if written:
            print_facts(written)


def _check_input(asked: PortfolioInput, plot: Path | None) -> None:
    """Raise an error if options contradict each other, before any work is done."""
    from tilewright.base.extras import require_learn_extra
    from tilewright.learn.plots import require_matplotlib

    if bool(asked.files) == (asked.measured is not None):
        raise InvalidValueError("no problems are given, or in two ways: give either --problems or --measured")
    if asked.measured is not None and asked.has_kernel_options:
        raise InvalidValueError("the kernels are those of --measured: omit the options that name others")
    if asked.measured is not None and asked.file_format is not None:
        raise InvalidValueError("--format applies to --problems, but --measured is given")
    require_packages("a portfolio", ("numpy",), "select")
    if asked.measured is not None:
        require_learn_extra("a table of measurements")
    if plot is not None:
        require_matplotlib("--plot")


def _predict_times(op: Op, arch: Arch, asked: PortfolioInput) -> TimeTable:
    from tilewright.select.portfolio import predict_times

    with report_task("choosing kernels"):
        kernels = list(asked.named.choose_kernels(arch.name))
    problems = [each for file in asked.files for each in read_listed_problems(op, kernels, file, asked.file_format)]
    return TimeTable(PREDICTED, kernels, predict_times(op, arch, kernels, problems))


def _read_measured_times(op: Op, arch: Arch, asked: PortfolioInput) -> TimeTable:
    from tilewright.learn.read_times import collect_measured_times, read_times
    from tilewright.ops import parse_kernel

    assert asked.measured is not None
    wanted = asked.named.wanted
    with report_task("reading measurements"):
        found = collect_measured_times(read_times(asked.measured), op.name, arch.name)
        kernels = [parse_kernel(name) for name in found.kernels]
    filters = [make_field_filter(op, name, texts) for name, texts in wanted.items()]
    places = [place for place, kernel in enumerate(kernels) if all(matches(kernel) for matches in filters)]
    if not places:
        asked_for = ", ".join(f"{name} {' or '.join(texts)}" for name, texts in wanted.items())
        raise InvalidValueError(f"none of the {len(kernels):,} kernels of {asked.measured} has {asked_for}")
    return TimeTable(MEASURED, [kernels[place] for place in places], found.us[:, places])


def _choose_portfolio(times: TimeTable, keep: int) -> Portfolio:
    from tilewright.select.portfolio import choose_portfolio

    with report_task("choosing a portfolio"):
        return choose_portfolio(times.us, keep)


def _write_set(op: Op, arch: Arch, path: Path, kept: Sequence[Kernel], title: str) -> None:
    from tilewright.ops.builtin_sets import make_explicit_set
    from tilewright.ops.kernel_set import dump_kernel_set

    doc = f"The most useful kernels first. Chosen for {title}."
    write_text(path, dump_kernel_set(make_explicit_set(op, arch.name, path.stem, doc, kept)))


def _count_computable(times: TimeTable) -> int:
    """The number of problems that at least one kernel supports."""
    import numpy as np

    return int((~np.isnan(times.us)).any(axis=1).sum())


def _to_json(times: TimeTable, portfolio: Portfolio, kept: Sequence[Kernel]) -> dict[str, Any]:
    computable = _count_computable(times)
    rows = zip(kept, portfolio.coverage, portfolio.low, portfolio.supported, strict=True)
    return {
        "times": times.kind,
        "problems": len(times.us),
        "computable": computable,
        "kernels": len(times.kernels),
        "portfolio": [
            {"kernel": kernel.slug, "mean": mean, "p10": low, "computed": round(share * computable)}
            for kernel, mean, low, share in rows
        ],
    }


def _print(op: Op, times: TimeTable, portfolio: Portfolio, kept: Sequence[Kernel], keep: int, title: str) -> None:
    document = _to_json(times, portfolio, kept)
    texts, common = _compare_kernels(op, kept)
    rows = [
        (str(i), f"{100 * r['mean']:.1f}", f"{100 * r['p10']:.1f}", f"{r['computed']:,}", kernel.digest, text)
        for i, (kernel, text, r) in enumerate(zip(kept, texts, document["portfolio"], strict=True), 1)
    ]
    print_table((*NUMBERS, "added", "fields"), rows, numbers=NUMBERS, whole=("added",), title=title)
    if common:
        click.echo(f"\nall of them: {common}")
    few = f"{format_count(len(kept), 'kernel')} of {len(times.kernels):,}"
    enough = "; more would add nothing" if len(kept) < keep else ""
    click.echo(f"\n{few}: {100 * portfolio.coverage[-1]:.2f} % of the best on average{enough}")
    left = document["problems"] - document["computable"]
    if left:
        print_remark(f"not counted, since none of the kernels computes them alone: {format_count(left, 'problem')}")


def _compare_kernels(op: Op, kernels: Sequence[Kernel]) -> tuple[list[str], str]:
    """The fields in which the kernels differ, as a text per kernel, and those that all have in common."""
    from tilewright.ops.fields import list_fields

    kinds = {name: field.kind for name, field in list_fields(op.config_type).items()}
    configs = [kernel.config for kernel in kernels]
    values = {name: [getattr(config, name) for config in configs] for name in op.field_names}
    differ = [name for name, of_each in values.items() if any(value != of_each[0] for value in of_each)]
    required = [name for name, field in list_fields(op.config_type).items() if field.required]
    common = " ".join(f"{n}={kinds[n].to_token(values[n][0])}" for n in required if n not in differ)
    if not differ:
        return [""] * len(kernels), common
    texts = [" ".join(f"{n}={kinds[n].to_token(values[n][i])}" for n in differ) for i in range(len(kernels))]
    return texts, common
