"""Digests of the verdicts of every rule on fixed configs, so that a changed verdict or message names its rule.

    tools/verdict_digests.py                          compare the digests with the committed ones
    tools/verdict_digests.py --write                  write them, after an intended change of a rule
    tools/verdict_digests.py --write --draw INPUTS    also choose the configs anew, from a file of version_inputs.py

The configs are stored as values, so that they stay the same when candidates change. `tools/compare_versions.py`
compares far more, with an earlier version of the sources.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.ops import explain, find_op

TESTS = Path(__file__).parent.parent / "tests" / "ops"
CONFIGS, DIGESTS = TESTS / "verdict_configs.json.gz", TESTS / "verdict_digests.json"
NUMBER = 2000  # configs of each op
LEAST = 12  # configs that violate each rule, if the inputs have so many
CONSIDERED = 30_000  # inputs from which the configs are chosen

Row = tuple[str, dict[str, Any]]  # the name of a GPU, and the fields of a config that are no defaults
Digests = dict[str, list[Any]]  # rule code → [number of violating configs, digest of their violations]


def read_configs() -> dict[str, list[Row]]:
    """The committed configs of each op."""
    with gzip.open(CONFIGS, "rt", encoding="utf-8") as file:
        return {op: list(_unpack_rows(packed)) for op, packed in json.load(file).items()}


def read_digests() -> dict[str, Digests]:
    """The committed digests of each op."""
    found: dict[str, Digests] = json.loads(DIGESTS.read_text(encoding="utf-8"))
    return found


def compute_digests(op_name: str, rows: Sequence[Row]) -> Digests:
    """How many configs violate each rule, and a digest of which ones do and with which message."""
    op = find_op(op_name)
    counts: Counter[str] = Counter()
    digests: defaultdict[str, Any] = defaultdict(hashlib.sha256)
    for place, (gpu, values) in enumerate(rows):
        for verdict in explain(op.make_config(**values), gpu):
            if (found := verdict.violation) is not None:
                counts[found.code] += 1
                line = [place, found.slug, found.message, found.field, str(found.nearest)]
                digests[found.code].update(json.dumps(line).encode())
    return {code: [counts[code], digests[code].hexdigest()[:16]] for code in sorted(counts)}


def describe_changes(committed: Digests, computed: Digests) -> list[str]:
    """A sentence for each rule whose verdicts or messages are not the committed ones."""
    changes = []
    for code in sorted({*committed, *computed}):
        (before, old), (after, new) = committed.get(code, [0, ""]), computed.get(code, [0, ""])
        if before != after:
            changes.append(f"{code} rejects {after} of {NUMBER} configs instead of {before}.")
        elif old != new:
            changes.append(
                f"{code} rejects other configs than before, or with another message, field or nearest value."
            )
    return changes


def choose_rows(op_name: str, inputs: Sequence[Row]) -> list[Row]:
    """The first configs, but for every rule some that violate it."""
    op = find_op(op_name)
    counts: Counter[str] = Counter()
    rare: list[Row] = []
    others: list[Row] = []
    for gpu, values in inputs[:CONSIDERED]:
        codes = [verdict.rule.code for verdict in explain(op.make_config(**values), gpu) if not verdict.passed]
        wanted = any(counts[code] < LEAST for code in codes)
        counts.update(codes if wanted else ())
        (rare if wanted else others).append((gpu, values))
    return [*rare, *others][:NUMBER]


def _pack_rows(rows: Sequence[Row]) -> dict[str, Any]:
    """The values of each field once, and a column of their places; None for a default."""
    names = list(dict.fromkeys(name for _, values in rows for name in values))
    packed = {}
    for name in names:
        texts = [json.dumps(values[name]) if name in values else None for _, values in rows]
        places = {text: place for place, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
        column = [None if text is None else places[text] for text in texts]
        packed[name] = {"values": [json.loads(text) for text in places], "column": column}
    return {"gpus": [gpu for gpu, _ in rows], "fields": packed}


def _unpack_rows(packed: Mapping[str, Any]) -> Iterator[Row]:
    for row, gpu in enumerate(packed["gpus"]):
        places = {name: (field["column"][row], field["values"]) for name, field in packed["fields"].items()}
        yield gpu, {name: values[place] for name, (place, values) in places.items() if place is not None}


def write_configs(inputs: Path) -> None:
    with gzip.open(inputs, "rt", encoding="utf-8") as file:
        ops = json.load(file)["ops"]
    chosen = {op: _pack_rows(choose_rows(op, sections["configs"])) for op, sections in ops.items()}
    text = json.dumps(chosen, separators=(",", ":"))
    CONFIGS.write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the digests")
    parser.add_argument("--draw", type=Path, metavar="INPUTS", help="choose the configs anew from this file")
    options = parser.parse_args()
    if options.draw:
        write_configs(options.draw)
    computed = {op: compute_digests(op, rows) for op, rows in read_configs().items()}
    committed = read_digests() if DIGESTS.exists() else {}
    changes = [f"{op}: {text}" for op in computed for text in describe_changes(committed.get(op, {}), computed[op])]
    print("\n".join(changes) or "No verdict has changed.")
    if options.write:
        lines = json.dumps(computed, indent=1).replace("[\n   ", "[").replace(",\n   ", ", ").replace("\n  ]", "]")
        DIGESTS.write_text(lines + "\n", encoding="utf-8")
    return 1 if changes and not options.write else 0


if __name__ == "__main__":
    raise SystemExit(main())
