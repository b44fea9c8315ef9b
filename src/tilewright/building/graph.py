"""The ninja file of a build: three steps per kernel, two of which can run in parallel."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.events import Detail, emit
from tilewright.building.compile_job import CODE_OBJECT, HOST_OBJECT, LIBRARY, CompileJob, write_texts
from tilewright.building.header_set import PRECOMPILED, HeaderSet, PchFlags
from tilewright.building.store.files import translate_os_errors
from tilewright.building.store.local import Store
from tilewright.codegen.build_files.template import format_shell_command

GRAPH = "build.ninja"
EVENTS = "events"
STEP = Path(__file__).with_name("step.sh")
DEVICE, HOST, LINK = "device", "host", "link"
STEPS = (DEVICE, HOST, LINK)
HEADERS = "headers"
_COMPILERS = "compilers"


@dataclass(frozen=True)
class NinjaJob:
    """A compile job with the precompiled-header flags of its two passes."""

    unit: CompileJob
    device: PchFlags
    host: PchFlags

    def make_command(self, step: str) -> tuple[str, ...]:
        """The command of a step, without the programs that limit and watch it."""
        if step == LINK:
            return self.unit.link_command()
        return self.unit.device_command(self.device) if step == DEVICE else self.unit.host_command(self.host)


def write_graph(
    works: Sequence[NinjaJob], folder: Path, *, preload: Path | None, limit_s: float, jobs: int | None = None
) -> None:
    """Write sources and ninja file into `folder`. Steps start in the order of `works`.

    At most `jobs` compilers run at once, plus one link step; None leaves the number to ninja.
    """
    before = _make_command_prefix(preload, limit_s)
    with translate_os_errors("write", folder):
        for work in works:
            write_texts(work.unit.texts(), folder / work.unit.key)
            for step in STEPS:
                emit(Detail(f"{work.unit.kernel.slug}, {step}: {shlex.join(work.make_command(step))}"))
        # The host pass is short, so it does not delay device passes.
        _write_ninja_file(folder, jobs, [text for work in works for text in _format_edges(work, before)])


def write_headers_graph(
    prefixes: Mapping[str, HeaderSet], store: Store, folder: Path, *, preload: Path | None, limit_s: float, jobs: int
) -> None:
    """Write the ninja file that precompiles header sets, each in a folder named after its key."""
    before = _make_command_prefix(preload, limit_s)
    edges = [
        _format_edge(f"{key}/{PRECOMPILED}", (), key, HEADERS, (*before, *prefix.command(store)))
        for key, prefix in prefixes.items()
    ]
    with translate_os_errors("write", folder):
        for key in prefixes:
            (folder / key).mkdir(mode=0o700)
        _write_ninja_file(folder, jobs, edges)


def _write_ninja_file(folder: Path, jobs: int | None, edges: Sequence[str]) -> None:
    begin = format_shell_command(["sh", str(STEP), str(folder / EVENTS)], {})
    rule = f"rule step\n  command = {begin} $step $folder $how\n  description = $step"
    # ninja starts steps with the most dependents first, so it would link all libraries after compiling the last kernel.
    # Compilers have a pool of their own, and `run_graph` gives ninja one more job, which only a link step can use.
    pool = f"pool {_COMPILERS}\n  depth = {jobs or 0}"  # 0: no limit besides ninja's jobs
    text = "\n".join(["ninja_required_version = 1.8", pool, rule, *edges])
    (folder / GRAPH).write_text(f"{text}\n", encoding="utf-8")


def _format_edges(work: NinjaJob, before: tuple[str, ...]) -> Iterable[str]:
    unit = work.unit
    key = unit.key
    device, host, library = (f"{key}/{name}" for name in (CODE_OBJECT, HOST_OBJECT, LIBRARY))
    yield _format_edge(device, (), key, DEVICE, (*before, *work.make_command(DEVICE)))
    yield _format_edge(host, (), key, HOST, (*before, *work.make_command(HOST)))
    yield _format_edge(library, (device, host), key, LINK, work.make_command(LINK))


def _format_edge(product: str, needs: tuple[str, ...], key: str, step: str, command: Sequence[str]) -> str:
    pool = "" if step == LINK else _COMPILERS
    return (
        f"build {product}: step {' '.join(needs)}\n  pool = {pool}\n"
        f"  step = {key}/{step}\n  folder = {key}\n  how = {format_shell_command(command, {})}"
    )


def _make_command_prefix(preload: Path | None, limit_s: float) -> tuple[str, ...]:
    """Make the words in front of compiler commands: a time limit, and a faster allocator if there is one."""
    # --foreground: ninja stops a step through its process group, which timeout would leave otherwise.
    limit = ("timeout", "--foreground", f"{limit_s:g}")
    return (*limit, "env", f"LD_PRELOAD={preload}") if preload is not None else limit
