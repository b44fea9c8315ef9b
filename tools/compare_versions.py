"""Show that two versions of the sources judge, count, render and call alike: the same inputs, the same results.

    tools/compare_versions.py against [REV] [--scale 0.05] [--data FOLDER]   REV compared with this checkout
    tools/compare_versions.py draw SRC INPUTS                                draw the inputs with the sources of SRC
    tools/compare_versions.py record SRC INPUTS OUT [--scale 0.05]           record the results of the sources in SRC
    tools/compare_versions.py compare A B [--inputs INPUTS] [--expect PATTERN …]

The inputs of each op: 60,000 configs, 1,000 spaces, 300 kernels to render, 1,500 legal configs for LDS, instructions
and model inputs, 300 of them for trials, 2,000 pairs of config and problem for fit rules, tensors, C arguments,
estimates and stages, and 600 invalid configs and problems for errors. `tools/version_inputs.py` draws them, and
`tools/version_records.py` records the results; both run in a process of their own, with the sources of one version.

A difference has a path, such as "configs P304 message" or "kernels files tilewright_gemm.h". `--expect` takes a pattern
of paths with `*`; differences that match are counted and do not fail the comparison.
"""

from __future__ import annotations

import argparse
import fnmatch
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EARLIER = "994ed54"  # the last commit before ops were restructured into kinds
SHOWN = 8  # inputs of each section whose differences are shown, each with a path that the earlier ones do not have


@dataclass
class Section:
    """The result of comparing one section of one op."""

    equal: int = 0
    expected: int = 0
    different: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    shown: dict[str, list[str]] = field(default_factory=dict)  # name of the input → lines


def start_python(script: Path, sources: Path, *arguments: str) -> None:
    """Run a tool with the sources of one version, and with the tools of that version where it has them."""
    paths = [sources, sources.parent / "tools", HERE]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONSAFEPATH": "1"}
    subprocess.run([sys.executable, str(script), *arguments], env=environment, check=True)


def draw(sources: Path, inputs: Path) -> None:
    sources = check_sources(sources)
    # Drawing asks an op for rules and candidates, so a version's own tool fits best. Early versions have none.
    own = sources.parent / "tools" / "version_inputs.py"
    start_python(own if own.exists() else HERE / own.name, sources, str(inputs))


def record(sources: Path, inputs: Path, out: Path, scale: float) -> None:
    script = HERE / "version_records.py"
    start_python(script, check_sources(sources), str(inputs), str(out), "--scale", str(scale))


def check_sources(sources: Path) -> Path:
    if not (sources / "tilewright" / "__init__.py").is_file():
        sys.exit(f"{sources} has no package tilewright: pass the folder src of a checkout")
    return sources.resolve()


def compare(first: Path, second: Path, inputs: Path | None, expected: Sequence[str]) -> bool:
    """Print the result of each section. Whether there are no unexpected differences."""
    first_head, first_results = read_records(first)
    second_head, second_results = read_records(second)
    if first_head["inputs"] != second_head["inputs"]:
        sys.exit(f"{first} and {second} have different inputs: {first_head['inputs']} and {second_head['inputs']}")
    common = first_results.keys() & second_results.keys()
    same_scale = first_head["scale"] == second_head["scale"]
    sections: dict[str, Section] = {}
    for name in first_results | second_results:
        op, kind, _ = name.split()
        section = sections.setdefault(f"{op} {kind}", Section())
        if name in common:
            add_result(section, name, first_results[name], second_results[name], expected)
        elif same_scale or kind == "rules":
            section.different += 1
            section.paths[f"{kind} only in {first if name in first_results else second}"] += 1
    print_sections(sections)
    print_differences(sections, inputs)
    return not any(section.different for section in sections.values())


def read_records(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The head of a file of records, and its results by name, each as JSON."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        head: dict[str, Any] = json.loads(file.readline())
        return head, {line[2 : line.index('"', 2)]: line for line in file}


def add_result(section: Section, name: str, one: str, other: str, expected: Sequence[str]) -> None:
    """Compare the results for one input."""
    if one == other:
        section.equal += 1
        return
    kind = name.split()[1]
    found = list(find_differences(kind, json.loads(one)[1], json.loads(other)[1]))
    found = found or [(f"{kind} order", "the same results", "in another order")]
    unexpected = [each for each in found if not any(fnmatch.fnmatchcase(each[0], pattern) for pattern in expected)]
    if not unexpected:
        section.expected += 1
        return
    section.different += 1
    fresh = [each for each in unexpected if each[0] not in section.paths]
    section.paths.update({path for path, _, _ in unexpected})
    if fresh and len(section.shown) < SHOWN:
        section.shown[name] = [f"    {path}\n      - {before}\n      + {after}" for path, before, after in fresh[:4]]


def find_differences(path: str, one: Any, other: Any) -> Iterator[tuple[str, str, str]]:
    """The path of each difference, with both values."""
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict) and "raises" not in {*one, *other}:
        for key in {**one, **other}:
            if key not in one or key not in other:
                yield f"{path} {key}", show(one.get(key, "absent")), show(other.get(key, "absent"))
            else:
                yield from find_differences(f"{path} {key}", one[key], other[key])
    elif isinstance(one, str) and isinstance(other, str) and "\n" in one:
        pairs = zip(one.splitlines(), other.splitlines(), strict=False)
        line, before, after = next(((n, a, b) for n, (a, b) in enumerate(pairs, 1) if a != b), (0, "", "more lines"))
        yield path, f"line {line}: {before}", f"line {line}: {after}"
    else:
        yield path, show(one), show(other)


def show(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else f"{text[:400]}…"


def print_sections(sections: dict[str, Section]) -> None:
    width = max(len(name) for name in sections)
    for name, section in sections.items():
        note = f", {section.expected:,} differ as expected" if section.expected else ""
        print(f"{name:<{width}}  {section.equal:>7,} equal{note}, {section.different:,} different")
        for path, count in section.paths.most_common(20):
            print(f"{'':<{width}}    {count:>7,} × {path}")


def print_differences(sections: dict[str, Section], inputs: Path | None) -> None:
    """Print some differences in full, with their inputs if the file of inputs is given."""
    shown = {name: lines for section in sections.values() for name, lines in section.shown.items()}
    if inputs is not None and shown:
        with gzip.open(inputs, "rt", encoding="utf-8") as file:
            ops = json.load(file)["ops"]
    for name, lines in shown.items():
        op, section, place = name.split()
        print(f"\n  {name}")
        if inputs is not None and section in ops[op]:
            print(f"    {json.dumps(ops[op][section][int(place)])}")
        print("\n".join(lines))


def compare_against(revision: str, folder: Path | None, scale: float, expected: Sequence[str]) -> bool:
    """Record a revision and this checkout, and compare them. Files that the folder has already are used again."""
    root = HERE.parent
    commit = run_git(root, "rev-parse", "--short=12", f"{revision}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="compare-versions-") as temporary:
        data = folder or Path(temporary)
        data.mkdir(parents=True, exist_ok=True)
        earlier, inputs = Path(temporary) / commit, data / "inputs.json.gz"
        export_revision(root, commit, earlier)
        if not inputs.exists():
            draw(earlier / "src", inputs)
        baseline = data / f"{commit}.jsonl.gz"
        if not baseline.exists():
            # A folder that is kept gets the whole baseline, which serves later comparisons of any scale.
            record(earlier / "src", inputs, baseline, 1.0 if folder else scale)
        current = Path(temporary) / "current.jsonl.gz"
        record(root / "src", inputs, current, scale)
        return compare(baseline, current, inputs, expected)


def export_revision(root: Path, commit: str, folder: Path) -> None:
    folder.mkdir()
    packed = subprocess.run(
        ["git", "-C", str(root), "archive", commit, "src", "tools"], check=True, stdout=subprocess.PIPE
    ).stdout
    subprocess.run(["tar", "--extract", "--directory", str(folder)], input=packed, check=True)


def run_git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    against = commands.add_parser("against", help="compare a revision with this checkout")
    against.add_argument("revision", nargs="?", default=EARLIER)
    against.add_argument("--data", type=Path, help="keep inputs and baseline in this folder, and use them again")
    drawing = commands.add_parser("draw", help="draw the inputs")
    recording = commands.add_parser("record", help="record the results of one version")
    comparing = commands.add_parser("compare", help="compare two records")
    for command in (drawing, recording):
        command.add_argument("sources", type=Path, help="the folder src of a checkout")
        command.add_argument("inputs", type=Path)
    recording.add_argument("out", type=Path)
    comparing.add_argument("first", type=Path)
    comparing.add_argument("second", type=Path)
    comparing.add_argument("--inputs", type=Path, help="show the inputs of differences from this file")
    for command in (against, recording):
        command.add_argument("--scale", type=float, default=1.0, help="record this share of the inputs")
    for command in (against, comparing):
        command.add_argument("--expect", action="append", default=[], help="paths of differences that do not matter")
    return parser


def main() -> int:
    options = make_parser().parse_args()
    if options.command == "draw":
        draw(options.sources, options.inputs)
    elif options.command == "record":
        record(options.sources, options.inputs, options.out, options.scale)
    elif options.command == "compare":
        return 0 if compare(options.first, options.second, options.inputs, options.expect) else 1
    else:
        return 0 if compare_against(options.revision, options.data, options.scale, options.expect) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
