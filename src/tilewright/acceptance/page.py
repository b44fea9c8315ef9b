"""The page of an acceptance run: what agrees and what does not, in the style of sweep reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.acceptance.agreement import BAD, VERDICTS
from tilewright.acceptance.result import format_hip
from tilewright.acceptance.suspects import MOST_NAMED
from tilewright.bench import report

TEMPLATE = "acceptance.html.j2"
# Verdicts of single results that are as expected.
_GOOD = ("ok", "agrees", "loaded", "passed", "order")


def render_page(document: Mapping[str, Any]) -> str:
    """The page of a document (`AcceptanceResult.to_json`, with or without private names)."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    folders = [Path(__file__).with_name("templates"), Path(report.__file__).with_name("templates")]
    environment = Environment(loader=FileSystemLoader(folders), undefined=StrictUndefined, autoescape=True)
    stages = {stage["name"]: stage for stage in document["stages"]}
    return environment.get_template(TEMPLATE).render(
        document=document,
        stages=document["stages"],
        gpu={"product": "", "arch": "", **stages.get("environment", {}).get("facts", {}).get("gpu", {})},
        totals=_list_totals(stages),
        environment=_list_environment(document, stages.get("environment", {})),
        components=_list_components(stages.get("environment", {})),
        agreement=_describe_agreement(stages.get("agreement")),
        verification=_summarize_verification(stages.get("verification")),
        load=stages.get("load"),
        timing=stages.get("timing"),
        good=_GOOD,
        most_named=MOST_NAMED,
    )


def _list_totals(stages: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """The figures at the top: name, number and colour."""
    found = []
    verdicts = list(stages.get("agreement", {}).get("facts", {}).get("kernels", {}).values())
    if verdicts:
        agreeing, bad = verdicts.count("agrees"), sum(verdict in BAD for verdict in verdicts)
        found += [("kernels compared", len(verdicts), ""), ("agree bit by bit", agreeing, "good" if agreeing else "")]
        if "order" in verdicts:
            found.append(("differ by order of atomics", verdicts.count("order"), ""))
        found.append(("disagree or failed", bad, "bad" if bad else ""))
    rows = stages.get("verification", {}).get("rows", [])
    if rows:
        wrong = sum(row["verdict"] != "ok" for row in rows)
        found += [("problems verified", len(rows), ""), ("wrong", wrong, "bad" if wrong else "")]
    return [(name, f"{count:,}", colour) for name, count, colour in found]


def _list_environment(document: Mapping[str, Any], stage: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = stage.get("facts", {})
    known = {name: value for name, value in facts.get("gpu", {}).items() if value not in (None, "")}
    driver = {f"driver: {name}": value for name, value in facts.get("driver", {}).items()}
    found = {**document["versions"], **known, **driver}
    return [(name.removesuffix("_bytes").replace("_", " "), _format_fact(name, value)) for name, value in found.items()]


def _format_fact(name: str, value: Any) -> str:
    if name == "memory_bytes":
        return f"{value / 2**30:,.1f} GiB"
    if name in ("hip_runtime", "hip_driver"):
        return f"{format_hip(value)} ({value})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={each}" for key, each in value.items()) or "none set"
    return "unknown" if value is None else str(value)


def _list_components(stage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The components of the toolchain in use."""
    found = stage.get("facts", {}).get("toolchain", {})
    return [part for part in found.get("components", ()) if part["toolchain"] in (found["chosen"], "all")]


def _describe_agreement(stage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Kernels with their verdicts and runs, the worst first; None if nothing was compared."""
    if stage is None or not stage["rows"]:
        return None
    facts = stage["facts"]
    by_kernel: dict[str, list[Mapping[str, Any]]] = {}
    for row in stage["rows"]:
        by_kernel.setdefault(row["kernel"], []).append(row)
    kernels = [
        {
            "name": name,
            "op": rows[0]["op"],
            "kind": rows[0]["kind"],
            "verdict": facts["kernels"][name],
            "runs": len(rows),
            "bad": [row for row in rows if row["verdict"] not in _GOOD],
            "different": sum(each["different"] for row in rows for each in row.get("differences", ())),
            "ulps": _find_largest(rows),
            "exclusive": facts["exclusive"].get(name, {}),
        }
        for name, rows in by_kernel.items()
    ]
    kernels.sort(key=lambda kernel: VERDICTS.index(str(kernel["verdict"])))
    used = {kernel["verdict"] for kernel in kernels}
    meanings = [(verdict, facts["meanings"][verdict]) for verdict in VERDICTS if verdict in used]
    return {"stage": stage, "kernels": kernels, "suspects": facts["suspects"], "meanings": meanings}


def _find_largest(rows: Iterable[Mapping[str, Any]]) -> str:
    found = [each["max_ulps"] for row in rows for each in row.get("differences", ())]
    known = [each for each in found if each is not None]
    return f"{max(known):,.0f}" if known else "not finite" if found else ""


def _summarize_verification(stage: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """One row for each kernel: problems, wrong ones, the largest share of the tolerance, the first message."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in () if stage is None else stage["rows"]:
        found.setdefault(row["kernel"], []).append(row)
    return [_summarize_kernel(name, rows) for name, rows in found.items()]


def _summarize_kernel(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    wrong = [row for row in rows if row["verdict"] != "ok"]
    shares = [row["share"] for row in rows if row.get("share") is not None]
    return {
        "name": name,
        "op": rows[0]["op"],
        "kind": rows[0]["kind"],
        "problems": len(rows),
        "wrong": len(wrong),
        "share": f"{max(shares):.2f}" if shares else "",
        "message": wrong[0]["message"] if wrong else "",
    }
