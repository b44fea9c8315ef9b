"""Record everything that a version of the sources says about fixed inputs, as JSON lines.

    PYTHONPATH=SRC tools/version_records.py INPUTS OUT [--scale 0.05]

`tools/compare_versions.py` starts this file once for each of two versions and compares the records. It therefore uses
only entry points that all versions have, and looks for functions of an op in every place that they had or may get
(`_find_part`). An exception is recorded like a result, with its type and message.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tilewright import arch as archs
from tilewright.codegen.render import list_headers, render
from tilewright.ops import explain, find_op, fits, kernel_of, load_problem
from tilewright.ops.problem_values import dump_problem
from tilewright.ops.space import Space

Json = Any
# Where a function of an op may be: in the op or the config's kind, or in one of these parts of them.
_PARTS = ("execution", "cost", "resources", "call")


def _find_part(op: Any, config: object, name: str) -> Callable[..., Any]:
    owners = [op] + ([op.kind(config)] if hasattr(op, "kind") else [])
    for owner in owners:
        for holder in (owner, *(getattr(owner, part, None) for part in _PARTS)):
            if holder is not None and getattr(holder, name, None) is not None:
                found: Callable[..., Any] = getattr(holder, name)
                return found
    raise AttributeError(f"{op.name} has no {name}: add its place to _find_part of {Path(__file__).name}")


def _guard(compute: Callable[[], Json]) -> Json:
    """The result, or the exception as a result: versions must agree on errors, too."""
    try:
        return compute()
    except Exception as error:
        return {"raises": f"{type(error).__name__}: {error}"}


def _list_violations(violations: Any) -> Json:
    return {
        v.code: {"slug": v.slug, "message": v.message, "field": v.field, "nearest": str(v.nearest)} for v in violations
    }


def judge_config(op: Any, gpu: str, values: Mapping[str, Any]) -> Json:
    """The violations of a config by code."""
    verdicts = explain(op.make_config(**values), gpu)
    return _list_violations(v.violation for v in verdicts if v.violation is not None)


def count_space(op: Any, gpu: str, declared: Mapping[str, Any]) -> Json:
    return Space(op, declared).report(gpu).to_json()


def render_kernel(op: Any, gpu: str, values: Mapping[str, Any]) -> Json:
    kernel = kernel_of(op.make_config(**values), gpu)
    source = render(kernel)
    files = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in source.files.items()}
    return {"slug": kernel.slug, "headers": list_headers(kernel), "files": files, "text": source.text}


def describe_config(op: Any, gpu: str, values: Mapping[str, Any]) -> Json:
    """The facts of a legal config that other layers read."""
    config, arch = op.make_config(**values), archs.load(gpu)
    return {
        "slug": kernel_of(config, gpu).slug,
        "lds_bytes": _guard(lambda: _find_part(op, config, "lds_bytes")(config, arch)),
        "matrix_instructions": _guard(lambda: list(_find_part(op, config, "matrix_instructions")(config, arch))),
        "is_small": _guard(lambda: _find_part(op, config, "is_small")(config)),
        "kernel_numbers": _guard(lambda: dict(_find_part(op, config, "kernel_numbers")(config, arch, None))),
    }


def list_trials(op: Any, gpu: str, values: Mapping[str, Any]) -> Json:
    config = op.make_config(**values)
    return [json.loads(dump_problem(p)) for p in _find_part(op, config, "trials")(config, archs.load(gpu))]


def describe_pair(op: Any, gpu: str, values: Mapping[str, Any], problem_values: Mapping[str, Any]) -> Json:
    """The facts of a problem and of a kernel for it."""
    config, arch = op.make_config(**values), archs.load(gpu)
    problem = load_problem(op.problem_type, problem_values)

    def call(name: str, *arguments: object) -> Any:
        return _find_part(op, config, name)(*arguments)

    def list_stages() -> Json:
        stages = [call("next_stage", problem, ()), call("next_stage", problem, (config,))]
        return [None if stage is None else json.loads(dump_problem(stage)) for stage in stages]

    def pad() -> Json:
        padded = call("padded", config, problem, arch)
        return None if padded is None else json.loads(dump_problem(padded))

    def estimate() -> Json:
        numbers = SimpleNamespace(**call("problem_numbers", problem))
        found = call("estimate", numbers, SimpleNamespace(**call("kernel_numbers", config, arch, None)), arch)
        return {"us": found.us, "terms": dict(found.terms), "shape": dict(found.shape)}

    return {
        "problem": json.loads(dump_problem(problem)),
        "fits": _guard(lambda: _list_violations(fits(config, problem, gpu))),
        "tensors": _guard(lambda: _describe_tensors(call("tensors", problem))),
        "arguments": _guard(lambda: _describe_struct(call("arguments", problem))),
        "addresses": _guard(lambda: _describe_addresses(problem, call)),
        "problem_numbers": _guard(lambda: dict(call("problem_numbers", problem))),
        "estimate": _guard(estimate),
        "stages": _guard(list_stages),
        "padded": _guard(pad),
    }


def _describe_tensors(tensors: Any) -> Json:
    return {t.name: [t.dtype, list(t.shape), list(t.strides), t.output, t.updated] for t in tensors}


def _describe_struct(struct: Any) -> Json:
    """The bytes of a C struct, and its members with offset and size, so that a difference has a name."""
    kind = type(struct)
    members = {each[0]: [getattr(kind, each[0]).offset, getattr(kind, each[0]).size] for each in kind._fields_}
    return {"bytes": bytes(struct).hex(), "members": members}


def _describe_addresses(problem: object, call: Callable[..., Any]) -> Json:
    """The bytes of the C struct after the addresses of all tensors were written into it."""
    struct = call("arguments", problem)
    tensors = call("tensors", problem)
    call("point", problem)(struct, [4096 * (place + 1) for place in range(len(tensors))])
    return bytes(struct).hex()


def read_problem(op: Any, _: str, values: Mapping[str, Any]) -> Json:
    return json.loads(dump_problem(load_problem(op.problem_type, values)))


SECTIONS: Mapping[str, Callable[..., Json]] = {
    "configs": judge_config,
    "spaces": count_space,
    "kernels": render_kernel,
    "facts": describe_config,
    "trials": list_trials,
    "pairs": describe_pair,
    "invalid_configs": judge_config,
    "invalid_problems": read_problem,
}


def describe_rules(op: Any, kernels: list[Json]) -> dict[str, Json]:
    """The texts of all rules by code: those of any kernel, and fit rules."""
    rules = {}
    for gpu, values in kernels:
        rules.update({verdict.rule.code: verdict.rule for verdict in explain(op.make_config(**values), gpu)})
    rules.update({rule.code: rule for rule in getattr(op, "fit_rules", ())})
    return {
        code: {name: getattr(rule, name) for name in ("slug", "what", "why", "fix", "enforced_by")}
        for code, rule in sorted(rules.items())
    }


def record(inputs: Mapping[str, Any], scale: float) -> Iterator[tuple[str, Json]]:
    """The name and the result of each input; of every n-th one only if the scale is 1/n, but of about 50 at least."""
    for name, sections in inputs["ops"].items():
        op = find_op(name)
        for code, texts in describe_rules(op, sections["kernels"]).items():
            yield f"{name} rules {code}", texts
        for section, compute in SECTIONS.items():
            start = time.perf_counter()
            failed, number = 0, 0
            step = min(round(1 / scale), max(1, len(sections[section]) // 50))
            for place in range(0, len(sections[section]), step):
                gpu, *arguments = sections[section][place]
                result = _guard(lambda: compute(op, gpu, *arguments))  # noqa: B023  (called at once)
                failed += isinstance(result, dict) and "raises" in result
                number += 1
                yield f"{name} {section} {place}", result
            took = time.perf_counter() - start
            print(f"{name} {section}: {number:,} ({failed:,} raise an error), {took:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="record this share of the inputs")
    options = parser.parse_args()
    with gzip.open(options.inputs, "rt", encoding="utf-8") as file:
        inputs = json.load(file)
    print(f"recording {archs.__file__}", flush=True)
    start = time.perf_counter()
    counted: Counter[str] = Counter()
    partial = options.out.with_suffix(".partial")
    with gzip.open(partial, "wt", compresslevel=3, encoding="utf-8") as file:
        head = {"inputs": inputs["digest"], "scale": options.scale, "sources": str(archs.__file__)}
        file.write(json.dumps(head) + "\n")
        for name, result in record(inputs, options.scale):
            file.write(json.dumps([name, result]) + "\n")
            counted[name.split()[1]] += 1
    partial.replace(options.out)
    print(f"{counted.total():,} records in {time.perf_counter() - start:.0f} s: {options.out}")


if __name__ == "__main__":
    main()
