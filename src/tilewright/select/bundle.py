"""Model bundles: folders with a manifest and decision trees as text.

    bundle.json    schema, op, GPUs, supported problems and kernels, features and their version, transform, digests of
                   the models, training data and settings, and scores on held-out problems
    model-0.txt …  LightGBM text models; the prediction is their mean

Nothing in a bundle is executed. A bundle with other features, or with changed files, is rejected.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import arch as archs
from tilewright.arch.ck_api import DEFAULT_API
from tilewright.arch.spec import Arch
from tilewright.base.digest import digest_text
from tilewright.base.document_values import (
    expect_integer,
    expect_list_items,
    expect_number,
    expect_table,
    expect_table_values,
    expect_text,
    format_value,
)
from tilewright.base.documents import FileProblems, convert_read_errors, parse_json, read_text
from tilewright.base.errors import BundleError, InvalidValueError, UnknownValueError, choose
from tilewright.ops import find_op
from tilewright.ops.cost_model.cost import Estimate, Facts
from tilewright.ops.op import Op
from tilewright.ops.problem_values import parse_json_value

if TYPE_CHECKING:
    import numpy as np

    from tilewright.select.forest import Forest

SCHEMA = 1
MANIFEST = "bundle.json"
# What the trees predict: the logarithm of time / estimate, or a preference.
LOG_RATIO, RELEVANCE = "log_ratio_to_estimate", "relevance"
TRANSFORMS = {
    LOG_RATIO: "log(us / estimate), centred per problem",
    RELEVANCE: "how good a kernel is among those of its problem, in no unit",
}
# Tolerance for features of the op's example: the last bits of logarithms differ between machines.
TOLERANCE = 1e-6
# Largest valid logarithm of time / estimate: a factor of 1e43. Its exponential does not overflow.
LARGEST = 100.0


@dataclass(frozen=True, eq=False)
class Bundle:
    """A model that ranks kernels of one op, for the GPUs and problems that it was trained for."""

    name: str  # of its folder
    op: str
    archs: tuple[str, ...]
    where: Mapping[str, tuple[Any, ...]]  # problem fields, each with the allowed values
    kernels: Mapping[str, tuple[Any, ...]]  # config fields, each with the values of the training data
    features: tuple[str, ...]
    features_version: int
    transform: str
    training: Mapping[str, Any]
    held_out: Mapping[str, Any]
    forests: tuple[Forest, ...]
    digest: str  # of its manifest, which has the digests of all files

    def applies(self, op: str, arch: str, problem: Any) -> bool:
        """Whether it was trained for such problems on this GPU."""
        return (
            op == self.op
            and arch in self.archs
            and all(getattr(problem, name) in values for name, values in self.where.items())
        )

    def covers(self, config: Any) -> bool:
        """Whether it was trained with such kernels. Others keep their estimate."""
        return all(getattr(config, name) in values for name, values in self.kernels.items())


def score_kernels(bundle: Bundle, p: Facts, columns: Facts, estimate: Estimate, arch: Arch) -> np.ndarray:
    """A score for each kernel, lower is better: the logarithm of its microseconds, up to a constant per problem.

    `columns` has the kernels' model inputs and `estimate` their estimates, both as arrays. A bundle that predicts only
    an order assigns the estimated times to the kernels in that order.
    """
    import numpy as np  # noqa: PLC0415  (an extra)

    logarithm = np.log(np.atleast_1d(np.asarray(estimate.us, np.float64)))
    prediction = predict_mean(bundle, p, columns, estimate, arch, len(logarithm))
    if bundle.transform != RELEVANCE:
        return np.asarray(logarithm + prediction)
    scores = np.empty_like(logarithm)
    scores[np.argsort(-prediction, kind="stable")] = np.sort(logarithm)
    return scores


def predict_mean(bundle: Bundle, p: Facts, columns: Facts, estimate: Estimate, arch: Arch, kernels: int) -> np.ndarray:
    """The mean prediction of the bundle's models for each kernel."""
    import numpy as np  # noqa: PLC0415  (an extra)

    cost = find_op(bundle.op).cost
    if cost is None:
        raise BundleError(f"the bundle {bundle.name} is for {bundle.op}, which now has no features")
    rows = np.empty((kernels, len(bundle.features)))
    for i, column in enumerate(cost.features(p, columns, estimate, arch).values()):
        rows[:, i] = column
    total = bundle.forests[0].predict(rows)
    for forest in bundle.forests[1:]:
        total = total + forest.predict(rows)
    return np.asarray(total / len(bundle.forests))


def read_bundle(folder: Path | str) -> Bundle:
    """Read the bundle in a folder. Raises `BundleError` or `FileFormatError` if it cannot be used."""
    folder = Path(folder)
    if not (folder / MANIFEST).is_file():
        raise BundleError(f"{folder} is not a model bundle: it has no {MANIFEST}")
    with convert_read_errors(folder / MANIFEST):
        return _build_bundle(folder, read_text(folder / MANIFEST))


def _build_bundle(folder: Path, content: str) -> Bundle:
    facts = _parse_manifest(folder / MANIFEST, parse_json(content))
    op = _find_op(folder, facts)
    if not facts["archs"]:
        raise BundleError(f"the bundle {folder} names no GPU")
    for arch in facts["archs"]:
        choose("arch", arch, archs.arch_names())
    _check_features(folder, facts, op)
    where = {name: tuple(parse_json_value(value) for value in values) for name, values in facts["where"].items()}
    _check_where(folder, op, where)
    kernels = {name: tuple(parse_json_value(value) for value in values) for name, values in facts["kernels"].items()}
    for name in kernels:
        choose(f"field of {op.name}", name, op.field_names)
    features = tuple(facts["features"])
    transform = choose("transform.kind", facts["transform"].get("kind"), TRANSFORMS)
    return Bundle(
        name=folder.resolve().name,
        op=op.name,
        archs=tuple(facts["archs"]),
        where=where,
        kernels=kernels,
        features=features,
        features_version=facts["features_version"],
        transform=transform,
        training=facts["training"],
        held_out=facts["held_out"],
        forests=_read_forests(folder, facts["files"], features, transform),
        digest=digest_text(content),
    )


def load_builtin_bundles(op: Op) -> tuple[Bundle, ...]:
    """The bundles of an op: the folders in `bundles` next to its template, by name."""
    return _read_bundles(op.template.parent / "bundles")


@functools.cache
def _read_bundles(folder: Path) -> tuple[Bundle, ...]:
    return tuple(read_bundle(path.parent) for path in sorted(folder.glob(f"*/{MANIFEST}")))


def _parse_manifest(path: Path, value: Any) -> dict[str, Any]:
    """Check and return the manifest; its schema version is checked first."""
    facts = expect_table("a manifest", value)
    schema = facts.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise BundleError(f"{path} has schema {format_value(schema)}, this version of Tilewright supports {SCHEMA}")
    faults = FileProblems()
    known = ", ".join(_KEYS)
    for name in facts:
        if name not in _KEYS:
            faults.add(name, f"is unknown. Known: {known}.")
    for name, read in _KEYS.items():
        if name in facts:
            faults.try_call("", read, name, facts[name])
        else:
            faults.add(name, "is missing")
    faults.raise_any(path)
    return facts


def _require_plain(name: str, value: Any) -> Any:
    """Require a value of a problem or config: a text, a number, a flag, null, or a list of these."""
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, (list, dict)) for each in value)):
        raise InvalidValueError(f"{name} must be a value or a list of values, got {format_value(value)}")
    return value


def _parse_values(name: str, value: Any) -> dict[str, list[Any]]:
    return expect_table_values(name, value, lambda place, values: expect_list_items(place, values, _require_plain))


# The reader of each key.
_KEYS: Mapping[str, Callable[[str, Any], Any]] = {
    "schema": expect_integer,
    "op": expect_text,
    "archs": lambda name, value: expect_list_items(name, value, expect_text),
    "where": _parse_values,
    "kernels": _parse_values,
    "features": lambda name, value: expect_list_items(name, value, expect_text),
    "features_version": expect_integer,
    "example": lambda name, value: expect_table_values(name, value, expect_number),
    "transform": expect_table,
    "files": lambda name, value: expect_table_values(name, value, expect_text),
    "training": expect_table,
    "held_out": expect_table,
}


def _find_op(folder: Path, facts: Mapping[str, Any]) -> Op:
    try:
        return find_op(facts["op"])
    except UnknownValueError as error:
        raise BundleError(f"the bundle {folder} is for another op: {error}") from error


def _check_features(folder: Path, facts: Mapping[str, Any], op: Op) -> None:
    """The op's current features must be those of the training: version, names, order and meaning."""
    if op.cost is None:
        raise BundleError(f"the bundle {folder} is for {op.name}, which now has no estimate and so no features")
    has, wanted = facts["features_version"], op.cost.features_version
    if has != wanted:
        raise BundleError(
            f"the bundle {folder} has version {has} of the features of {op.name}, this Tilewright has version {wanted}."
            " Train it again."
        )
    now = compute_example_features(op, archs.load(facts["archs"][0]))
    _check_names(folder, op, list(facts["features"]), list(now))
    for name, value in now.items():
        was = facts["example"].get(name)
        if was is None or not abs(was - value) <= TOLERANCE * max(1.0, abs(value)):
            raise BundleError(
                f"the bundle {folder} was trained when {name} of the example of {op.name} was {was}; now it is {value}:"
                " the meaning of estimates or features has changed. Train it again."
            )


def _check_names(folder: Path, op: Op, own: list[str], now: list[str]) -> None:
    if own == now:
        return
    only_own, only_now = [n for n in own if n not in now], [n for n in now if n not in own]
    parts = [f"only the bundle has {', '.join(only_own)}"] if only_own else []
    parts += [f"only {op.name} has {', '.join(only_now)}"] if only_now else []
    difference = "; ".join(parts) or f"the bundle has the order {', '.join(own)}; {op.name} has {', '.join(now)}"
    raise BundleError(
        f"the bundle {folder} has {len(own)} features, {op.name} has {len(now)} now: {difference}. Train it again."
    )


def compute_example_features(op: Op, arch: Arch) -> dict[str, float]:
    """The features of the op's example on a GPU: their names, and values that reveal changed estimates.

    They are those of kernels for the default CK headers, whatever the current ones are: kernels for others may use more
    LDS, but features mean the same.
    """
    assert op.cost is not None
    arch = dataclasses.replace(arch, ck=DEFAULT_API)
    p = Facts(**op.cost.problem_numbers(op.problem_type(**op.example_problem)))
    k = Facts(**op.cost.kernel_numbers(op.make_example(), arch, None))
    features = op.cost.features(p, k, op.cost.estimate(p, k, arch), arch)
    return {name: float(value) for name, value in features.items()}


def _check_where(folder: Path, op: Op, where: Mapping[str, tuple[Any, ...]]) -> None:
    example = op.problem_type(**op.example_problem)
    for name in where:
        if not hasattr(example, name):
            raise BundleError(f"the bundle {folder} reads the problem field {name!r}, which {op.name} problems lack")


def _read_forests(
    folder: Path, files: Mapping[str, str], features: tuple[str, ...], transform: str
) -> tuple[Forest, ...]:
    from tilewright.select.forest import read_forest  # noqa: PLC0415  (imports NumPy)

    if not files:
        raise BundleError(f"the bundle {folder} names no model")
    texts = {name: _read_model(folder, name, digest) for name, digest in files.items()}
    forests = {name: read_forest(content, features, str(folder / name)) for name, content in texts.items()}
    for name, forest in forests.items():
        if not forest.reach <= (LARGEST if transform == LOG_RATIO else math.inf) or not math.isfinite(forest.reach):
            raise BundleError(
                f"predictions of {folder / name} can reach {forest.reach:g}, must be at most {LARGEST:g} and finite: "
                "it cannot have been trained on times"
            )
    return tuple(forests.values())


def _read_model(folder: Path, name: str, digest: str) -> str:
    path = folder / name
    if Path(name).name != name or not path.is_file():
        raise BundleError(f"{folder / MANIFEST} names the file {name!r}, which is not in its folder")
    content = read_text(path)
    found = digest_text(content)
    if found != digest:
        raise BundleError(f"{path} has digest {found}, its manifest has {digest}: the file was changed or damaged")
    return content
