"""Write a model bundle: the folder that `tilewright.select.bundle` reads."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import __version__
from tilewright.base.atomic_write import write_folder
from tilewright.base.digest import digest_text
from tilewright.base.errors import BundleError
from tilewright.learn.dataset import Dataset
from tilewright.learn.evaluation import LEARNED, Evaluation
from tilewright.learn.training import TrainedModel
from tilewright.learn.training_config import RANKER
from tilewright.ops.fields import ChoiceType, FlagType, list_fields
from tilewright.select.bundle import LOG_RATIO, MANIFEST, RELEVANCE, SCHEMA, TRANSFORMS, compute_example_features


@dataclass(frozen=True, kw_only=True)
class BundleInfo:
    """The manifest's fields about the model: a name for the data, the supported problems, and its figures.

    `where` maps problem fields to the values that they must have. `held_out` are figures on problems outside the
    training data (`format_held_out`).
    """

    data: str
    where: Mapping[str, Sequence[Any]]
    held_out: Mapping[str, Any]


def write_bundle(folder: Path | str, model: TrainedModel, data: Dataset, about: BundleInfo) -> None:
    """Write a bundle, or replace an existing one atomically. Equal models and fields give equal bytes.

    A folder that holds something else is an error.
    """
    folder = Path(folder)
    if folder.exists() and not (folder / MANIFEST).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise BundleError(f"{folder} exists and is not a model bundle: it has no {MANIFEST}. Name another folder.")
    texts = {f"model-{i}.txt": text for i, text in enumerate(model.texts)}
    write_folder(folder, {**texts, MANIFEST: format_manifest(model, data, about)})


def collect_problem_values(data: Dataset) -> dict[str, list[Any]]:
    """The problems that a model of this data supports.

    These are the values seen in all fields that kernels are compiled for, and in fields with one value only, as nothing
    was learned about others.
    """
    problems = [data.problems[i] for i in np.unique(data.problem)]
    compiled = [name for name in data.op.field_names if hasattr(problems[0], name)]
    found = {name: sorted({getattr(each, name) for each in problems}) for name in compiled}
    for field in dataclasses.fields(problems[0]):
        values = {getattr(each, field.name) for each in problems}
        if field.name not in found and len(values) == 1:
            found[field.name] = list(values)
    return found


def collect_kernel_values(data: Dataset) -> dict[str, list[Any]]:
    """The kernels that a model of this data knows: the values seen in text and flag fields.

    Sizes are not restricted, as they are numeric features.
    """
    configs = [data.kernels[i].config for i in np.unique(data.kernel)]
    fields = list_fields(data.op.config_type)
    kinds = [name for name, field in fields.items() if isinstance(field.kind, ChoiceType | FlagType)]
    own = [name for name in kinds if not hasattr(data.problems[0], name)]
    return {name: sorted({getattr(config, name) for config in configs}) for name in own}


def format_held_out(found: Evaluation) -> dict[str, Any]:
    """The figures of an evaluation as in a manifest: the model's by split, and the baselines'."""
    own = {
        judged.split.name: {"split": judged.split.doc, **judged.figures[LEARNED].to_json()} for judged in found.judged
    }
    others = {
        judged.split.name: {name: f.to_json() for name, f in judged.figures.items() if name != LEARNED}
        for judged in found.judged
    }
    return {**own, "baselines": others}


def format_manifest(model: TrainedModel, data: Dataset, about: BundleInfo) -> str:
    """The manifest of a bundle, as readable JSON."""
    kind = RELEVANCE if model.recipe.kind == RANKER else LOG_RATIO
    facts = {
        "schema": SCHEMA,
        "op": data.op.name,
        "archs": [data.arch.name],
        "where": {name: list(values) for name, values in about.where.items()},
        "kernels": collect_kernel_values(data),
        "features": list(model.features),
        "features_version": model.features_version,
        "example": compute_example_features(data.op, data.arch),
        "transform": {"kind": kind, "target": TRANSFORMS[kind]},
        "files": {f"model-{i}.txt": digest_text(text) for i, text in enumerate(model.texts)},
        "training": {
            "data": about.data,
            "data_digest": data.digest,
            "rows": len(data),
            "problems": len(np.unique(data.problem)),
            "kernels": len(np.unique(data.kernel)),
            "recipe": model.recipe.to_json(),
            "rounds": model.rounds,
            "importance": {n: round(float(g), 4) for n, g in zip(model.features, model.gain, strict=True)},
            "tool_versions": {"tilewright": __version__, "lightgbm": version("lightgbm")},
        },
        "held_out": _round_value(about.held_out),
    }
    return json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _round_value(value: Any) -> Any:
    """Figures rounded to a hundredth of a percent: further digits are noise."""
    if isinstance(value, Mapping):
        return {name: _round_value(each) for name, each in value.items()}
    if isinstance(value, float):
        return round(value, 4)
    return value
