"""What the tests of the build engine share: builds of the small op `scale`, in this process or in one of their own.

Run as a program it builds the factors of a request (JSON in the first argument) and prints what came out as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewright.base import events, knobs
from tilewright.building.builder import BuildResult, build_kernels
from tilewright.building.compile_job import LIBRARY, CompileJob, make_compile_job
from tilewright.building.graph import DEVICE
from tilewright.building.header_set import PRECOMPILED, READ, write_headers
from tilewright.building.precompiled_headers import prepare_header_set
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.local import Store
from tilewright.building.store.maintenance import verify_entries
from tilewright.building.store.scratch_dirs import remove_dead_folders
from tilewright.building.store.tiers import Tiers
from tilewright.building.toolchain import find_toolchain
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

HERE = Path(__file__).resolve()
PLUGIN = HERE.parents[1] / "plugin"
PACKAGE_ROOT = HERE.parents[2] / "src"
REFUSED = 666  # the factor that does not compile
GPU = "gfx942"


def scale(factor: int, arch: str = GPU, **fields: Any) -> Kernel:
    op = find_op("scale")
    return op.make_kernel(op.make_config(**{"dtype": "fp32", "threads": 64, "factor": factor, **fields}), arch)


def build(store: Path | Store | Tiers, factors: Sequence[int], **options: Any) -> BuildResult:
    """Build in this process."""
    local = Store(store) if isinstance(store, Path) else store
    tiers = Tiers(local) if isinstance(local, Store) else local
    return build_kernels([scale(factor) for factor in factors], tiers=tiers, **{"jobs": 2, **options})


def lend_headers(lender: Path, store: Path) -> Path:
    """Give a store the precompiled headers of another one, which must stay: they name its folder. Returns the store.

    Precompiling costs as much as five kernels, so tests of other things begin with headers.
    """
    return lend_headers_of(make_compile_job(scale(1), find_toolchain()), lender, store)


def lend_headers_of(unit: CompileJob, lender: Path, store: Path) -> Path:
    """The same for the headers of any kernel."""
    for prefix in (unit.device_headers, unit.host_headers):
        prepare_header_set(prefix, Store(lender))
        found = Store(lender).get(prefix.key(Store(lender)))
        assert isinstance(found, Artifact)
        write_headers(prefix, Store(store))
        files = {name: found.verify_file(name) for name in (PRECOMPILED, READ)}
        Store(store).put(prefix.key(Store(store)), files, found.facts)
    return store


def device_steps(built: BuildResult) -> int:
    """How often a compiler was really started for a device pass."""
    return sum(span.step == DEVICE for span in built.spans)


def loaded_name(artifact: Artifact) -> str:
    """Load the library and ask it for its name."""
    library = ctypes.CDLL(str(artifact.verify_file(LIBRARY)))
    function = getattr(library, f"{artifact.facts['symbol']}_name")
    function.restype = ctypes.c_char_p
    return str(function().decode())


def all_load(built: BuildResult) -> bool:
    return all(loaded_name(artifact) == kernel.slug for kernel, artifact in built.artifacts.items())


def swept_and_sound(store: Path) -> None:
    """Nothing is damaged, and what a process left that was interrupted while it cleaned up belongs to nobody."""
    remove_dead_folders(Store(store).layout)
    sound(store)


def sound(store: Path) -> None:
    """Nothing is damaged, and nothing of a process that ended is left."""
    assert verify_entries(Store(store)) == []
    assert list((store / "v1" / "work").iterdir()) == []


@contextmanager
def heard() -> Iterator[list[events.Event]]:
    """All events inside the block."""
    listed: list[events.Event] = []
    with events.add_listener(listed.append):
        yield listed


def notices(listed: Sequence[events.Event]) -> list[str]:
    return [event.message for event in listed if isinstance(event, events.Notice)]


def environment(ck: Path, store: Path, **more: str) -> dict[str, str]:
    """That of a process which builds into `store`: no knob is set but those that are given."""
    kept = {name: value for name, value in os.environ.items() if name not in {knob.name for knob in knobs.KNOBS}}
    path = os.pathsep.join([str(PLUGIN), str(PACKAGE_ROOT)])
    return {**kept, "PYTHONPATH": path, knobs.CK_PATH.name: str(ck), knobs.STORE.name: str(store), **more}


def start(surroundings: Mapping[str, str], factors: Sequence[int], **options: Any) -> subprocess.Popen[str]:
    """Begin a build in a process of its own, the leader of a group of its own."""
    request = json.dumps({"factors": list(factors), **options})
    return subprocess.Popen(
        [sys.executable, str(HERE), request],
        env=dict(surroundings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def answer(process: subprocess.Popen[str], timeout_s: float = 120) -> dict[str, Any]:
    """What a started build found, once it has ended without an error."""
    said, complaints = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, complaints
    found = json.loads(said)
    assert isinstance(found, dict)
    return found


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that these started, as they are now."""
    below: list[int] = []
    pending = [pid]
    while pending:
        children = children_of(pending.pop())
        below += children
        pending += children
    return below


def children_of(pid: int) -> list[int]:
    """The processes that a process's threads started; of one that ends meanwhile, what was read until then."""
    children: list[int] = []
    try:
        for task in Path("/proc", str(pid), "task").iterdir():
            children += [int(word) for word in (task / "children").read_text().split()]
    except OSError:  # it ended, or one of its threads did
        pass
    return children


def compilers_of(pid: int) -> list[int]:
    """The compilers that a build has started for its steps, the one that starts others first."""
    ninjas = [child for child in descendants(pid) if program_of(child).startswith("ninja")]
    return [child for ninja in ninjas for child in descendants(ninja) if program_of(child).startswith("clang")]


def program_of(pid: int) -> str:
    """The name of the program that a process runs; empty when it has ended."""
    try:
        status = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return ""
    name, _, rest = status.partition("(")[2].rpartition(")")
    return "" if rest.split()[0] == "Z" else name


def at_work_in(folder: Path) -> list[str]:
    """The command lines of living processes that name `folder`, or work below it."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().decode(errors="replace")
            place = str((path / "cwd").readlink())
        except OSError:
            continue
        inside = place.startswith(f"{folder}/") or f"{folder}/" in command
        if command and inside and int(path.name) != os.getpid():
            found.append(command.replace("\0", " "))
    return found


def eventually(true: Callable[[], Any], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.01)


def _described(entry: Artifact | Failure) -> dict[str, Any]:
    if isinstance(entry, Failure):
        return {"log": entry.log, "errors": entry.facts["errors"]}
    return {"key": entry.key, "folder": str(entry.folder), "name": loaded_name(entry)}


def _main(request: dict[str, Any]) -> None:
    gate = request.pop("gate", None)
    kernels = [scale(factor) for factor in request.pop("factors")]
    if gate is not None:
        eventually(Path(gate).exists, 120)
    with heard() as listed:
        try:
            built = build_kernels(kernels, **{"jobs": 2, **request})
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)
    results = {kernel.slug: _described(entry) for kernel, entry in built.results.items()}
    steps = device_steps(built)
    facts = {"compiled": built.compiled, "device_steps": steps, "warm_cpu_s": built.warm_cpu_s}
    print(json.dumps({**facts, "wall_s": built.wall_s, "results": results, "notices": notices(listed)}))


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
