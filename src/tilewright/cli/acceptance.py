"""`tilewright acceptance`: everything that the first run on a new GPU should show, in one folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import InvalidValueError
from tilewright.cli.command import Command, Option, make_device_option, make_jobs_option
from tilewright.cli.completion import complete_kernels
from tilewright.cli.named_kernels import NamedKernels, find_named_kernels, resolve_subjects
from tilewright.cli.output import add_json_option, mark_bad, mark_good, print_heading, print_json, print_table
from tilewright.cli.output_paths import OutputFolder
from tilewright.cli.progress import report_progress
from tilewright.cli.verbosity import print_remark

if TYPE_CHECKING:
    from tilewright.acceptance.result import AcceptanceResult
    from tilewright.acceptance.sample import Sample
    from tilewright.arch.spec import Arch


@click.command(
    cls=Command,
    examples=(
        "tilewright acceptance --device gpu:0",
        "tilewright acceptance --device gpu:0 --out mi300x --json",
        "tilewright acceptance fp16_rcr_essential --device gpu:0 --trials 2",
    ),
)
@click.argument("subjects", metavar="[KERNELS]…", nargs=-1, shell_complete=complete_kernels)
@make_device_option("device_name", "The GPU: gpu:0, gpu:1, …; emulated:gfx942, … for a rehearsal.")
@click.option(
    "--out",
    cls=Option,
    type=OutputFolder(),
    metavar="FOLDER",
    show_default="tilewright-acceptance",
    help="The folder to write.",
)
@click.option(
    "--trials",
    cls=Option,
    type=click.IntRange(1),
    metavar="N",
    show_default="4 compared, all verified",
    help="Compute at most N trials per kernel.",
)
@click.option("--seed", type=click.IntRange(1), default=1, show_default=True, help="Seed for random inputs.")
@click.option(
    "--time-limit",
    "limit_s",
    type=click.FloatRange(1),
    default=900.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop a kernel after this time.",
)
@click.option("--with-paths", is_flag=True, help="Keep paths, and the names of host and user, in the folder.")
@make_jobs_option("Run N compilers in parallel.")
@add_json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    subjects: tuple[str, ...],
    device_name: str | None,
    out: Path | None,
    trials: int | None,
    seed: int,
    limit_s: float,
    with_paths: bool,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Check a new GPU, and compare it with the emulated device.

    Run it when you use a GPU for the first time. The stages: environment; build and load kernels; run
    one kernel; compare kernels of every kind with the emulated device of the same GPU, bit by bit;
    verify them with a reference; check that events measure plausible times; capture a launch in a
    graph of torch, if torch for ROCm is installed. A stage that fails does not affect the others. If
    bits differ, the result names the instructions that kernels with different results use and kernels
    with equal results do not.

    KERNELS are as for `tilewright verify`; by default the smallest kernel of each kind of each op.

    The folder has acceptance.json, a page, and a log for each stage, without private paths and names. Send
    it to the maintainers, also if everything agrees. The exit code is 1 if something disagrees or
    fails.
    """
    from tilewright.acceptance.folder import DEFAULT_FOLDER, ResultFolder
    from tilewright.acceptance.stages import AcceptanceRequest, run_acceptance
    from tilewright.runtime.device import Device, current_device
    from tilewright.runtime.hip_library import require_emulator_extra

    require_emulator_extra("an acceptance run")
    found = Device(device_name) if device_name is not None else current_device()
    if found is None:
        raise InvalidValueError("no device is given: use --device gpu:0, or --device emulated:gfx942 for a rehearsal")
    named = _make_choice(resolve_subjects(subjects)) if subjects else {}
    request = AcceptanceRequest(device=found.name, trials=trials, seed=seed, jobs=jobs, limit_s=limit_s, **named)
    folder = ResultFolder(out or Path(DEFAULT_FOLDER), private=with_paths)
    try:
        with report_progress(as_json=as_json, steps=True):
            result = run_acceptance(request, folder.logs, folder.write)
        document = folder.redact(result.to_json())
    finally:
        folder.close()
    if as_json:
        print_json({"folder": str(folder.path), **document})
    else:
        _print(result, document, folder.path, private=with_paths)
    ctx.exit(0 if result.ok else 1)


def _make_choice(named: list[NamedKernels]) -> dict[str, Callable[[Arch], Sample]]:
    """The kernels of the command line for a GPU, instead of the sample."""
    from tilewright.acceptance.sample import Sample

    return {"choose": lambda arch: Sample(tuple(find_named_kernels(named, (), arch.name, None)))}


def _print(result: AcceptanceResult, document: dict[str, Any], folder: Path, *, private: bool) -> None:
    from rich.text import Text

    from tilewright.acceptance.folder import PAGE

    styles = {"passed": "green", "failed": "bold red", "skipped": "yellow"}
    rows = [
        (each["title"], Text(each["verdict"], style=styles[each["verdict"]]), f"{each['seconds']:.1f}", each["summary"])
        for each in document["stages"]
    ]
    print_table(("stage", "verdict", "s", "result"), rows, numbers=("s",), whole=("stage", "verdict"))
    agreement = next(stage for stage in document["stages"] if stage["name"] == "agreement")
    _print_disagreements(agreement)
    click.echo(f"\n{mark_good(result.verdict) if result.ok else mark_bad(result.verdict)}")
    click.echo(f"{folder}: open {folder / PAGE} in a browser")
    if not result.device.startswith("emulated:"):
        what = "it has private paths and names" if private else "private paths and names were removed"
        print_remark(f"Please send the folder {folder} to the maintainers; {what}.")


def _print_disagreements(stage: dict[str, Any]) -> None:
    """Print the first bad run of each kernel, and the suspects."""
    from tilewright.acceptance.agreement import BAD

    seen: set[str] = set()
    for row in stage["rows"]:
        if row["verdict"] in BAD and row["kernel"] not in seen:
            seen.add(row["kernel"])
            print_heading(f"{row['op']} {row['kind']}: {row['kernel']}")
            click.echo(f"{mark_bad(row['verdict'])} {row['problem']}, seed {row['seed']}: {row['message']}")
    suspects = stage["facts"].get("suspects", [])
    if suspects:
        print_heading("Suspects: instructions of kernels that disagree, compared with kernels that agree")
        rows = [
            (
                each["name"],
                ", ".join(each["mnemonics"][:6]) + (" …" if len(each["mnemonics"]) > 6 else ""),
                f"{each['disagreeing']} of {each['of_disagreeing']}",
                f"{each['agreeing']} of {each['of_agreeing']}",
            )
            for each in suspects[:8]
        ]
        numbers = ("disagreeing", "agreeing")
        print_table(("class", "instructions", *numbers), rows, numbers=numbers, whole=("class",))
