"""Compare the estimate's ranking with that of another tool's trained model: a second opinion, not a measurement.

A model is a folder with `model_tflops.lgbm` or `model_tflops.lgbm.gz` (LightGBM, as text) and `feature_spec.json`, as
CK Tile's dispatcher has them. It predicts a rate for each kernel: the higher, the better. Only the order of its
predictions is used, so it does not matter whether they are logarithms.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.spec import Arch
from tilewright.base.document_values import expect_list_items, expect_table, expect_text
from tilewright.base.documents import convert_read_errors, read_bytes, read_json
from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError
from tilewright.base.events import report_task
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.select.portfolio import predict_times

FILES = ("model_tflops.lgbm", "model_tflops.lgbm.gz")
SPEC = "feature_spec.json"
# AMD's compressed models have a few megabytes; as text they are some ten times as large.
MOST_BYTES, MOST_TEXT = 1 << 28, 1 << 30

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OtherModel:
    """A model of another tool: its inputs in order, and the GPU, type and kind of kernels that it was trained for."""

    name: str
    features: tuple[str, ...]
    text: str  # of LightGBM
    arch: str
    dtype: str
    kind: str | None  # unknown if the folder's name has no such part


@dataclass(frozen=True)
class Agreement:
    """How two rankings of kernels agree, over problems with at least two kernels that the model can tell apart."""

    kind: str
    problems: int
    kernels: float  # of a problem, on average
    correlation: float  # mean of Spearman's rank correlation of each problem
    correlation_p10: float
    same_first: float  # share of problems for which the model ranks the estimate's choice first, alone or among equals
    same_first_by_chance: float  # the same for random choices
    place: float  # mean place of the estimate's choice in the model's order: 0 first, 1 last

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """Agreement by kind of kernel, and the reasons why kernels or problems were left out, each with their number."""

    agreements: tuple[Agreement, ...]
    left_out: Mapping[str, int]


def read_other_model(folder: Path, op: Op) -> OtherModel:
    """Read a model. Raises `FileFormatError` if a file is missing or is not of that format."""
    if op.other_models is None:
        raise InvalidValueError(f"{op.name} knows no models of other tools")
    spec = expect_table(SPEC, read_json(folder / SPEC))
    with convert_read_errors(folder / SPEC):
        features = tuple(expect_list_items("feature_names", spec.get("feature_names"), expect_text))
        arch, dtype = (expect_text(name, spec.get(name)) for name in ("arch", "dtype"))
    found = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if found is None:
        raise FileFormatError(folder, [FileProblem("", f"has no {' and no '.join(FILES)}")])
    kinds = [kind for part, kind in op.other_models.kinds.items() if part in folder.resolve().name]
    return OtherModel(
        folder.name, features, _read_model_text(found), arch, dtype, kinds[0] if len(kinds) == 1 else None
    )


def _read_model_text(path: Path) -> str:
    raw = read_bytes(path, MOST_BYTES)
    with convert_read_errors(path):
        text = (_decompress(raw) if path.suffix == ".gz" else raw).decode()
        if not text.startswith("tree\n"):
            raise InvalidValueError("is not a LightGBM model in text form")
    return text


def _decompress(raw: bytes) -> bytes:
    try:
        with gzip.open(io.BytesIO(raw)) as stream:
            text = stream.read(MOST_TEXT + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidValueError(f"cannot be decompressed: {error}") from error
    if len(text) > MOST_TEXT:
        raise InvalidValueError(f"has more than {MOST_TEXT:,} bytes of text, the maximum")
    return text


def compare_rankings(
    model: OtherModel, op: Op, arch: Arch, kernels: Sequence[Kernel], problems: Sequence[Any]
) -> Comparison:
    """Rank the kernels that support each problem by the estimate and by the model, and compare both orders."""
    import lightgbm  # noqa: PLC0415

    _check_scope(model, arch)
    try:
        booster = lightgbm.Booster(model_str=model.text)
    except lightgbm.basic.LightGBMError as error:
        raise InvalidValueError(f"LightGBM cannot read {model.name}: {error}") from error
    if booster.num_feature() != len(model.features):
        raise InvalidValueError(
            f"{model.name} takes {booster.num_feature()} inputs, but its {SPEC} lists {len(model.features)}"
        )
    left_out: dict[str, int] = {}
    found: dict[str, list[_RankedProblem]] = {}
    places = {kernel: number for number, kernel in enumerate(kernels)}
    times = predict_times(op, arch, kernels, problems)
    with report_task("asking the model", len(problems)) as advance:
        for problem, us in zip(problems, times, strict=True):
            advance()
            able = [kernel for kernel, time in zip(kernels, us, strict=True) if not np.isnan(time)]
            rows, kept = _make_rows(model, op, arch, able, problem, left_out)
            if len(kept) < 2:
                _count(left_out, "problems that fewer than two kernels support which the model knows")
                continue
            rates = np.asarray(booster.predict(rows, num_threads=1), np.float64)
            own = us[[places[kernel] for kernel in kept]]
            if np.ptp(rates) == 0 or np.ptp(own) == 0:
                _count(left_out, "problems whose kernels are all equal for the model or for the estimate")
                continue
            found.setdefault(op.kind(kept[0].config).name, []).append(_rank(own, rates))
    return Comparison(tuple(_summarize(kind, ranked) for kind, ranked in found.items()), left_out)


def _check_scope(model: OtherModel, arch: Arch) -> None:
    if model.arch != arch.name:
        raise InvalidValueError(f"{model.name} was trained for {model.arch}, the kernels are for {arch.name}")


def _make_rows(
    model: OtherModel, op: Op, arch: Arch, kernels: Sequence[Kernel], problem: Any, left_out: dict[str, int]
) -> tuple[Floats, list[Kernel]]:
    """The model's inputs, a row for each kernel that it knows, and these kernels."""
    assert op.other_models is not None
    rows, kept = [], []
    for kernel in kernels:
        kind = op.kind(kernel.config).name
        if model.kind is not None and kind != model.kind:
            _count(left_out, f"kernels of {kind}: the model is for {model.kind}")
            continue
        if getattr(kernel.config, "dtype_a", model.dtype) != model.dtype:
            _count(left_out, f"kernels of other types: the model is for {model.dtype}")
            continue
        try:
            values = op.other_models.compute(kernel.config, problem, arch.name)
        except InvalidValueError as error:
            _count(left_out, str(error))
            continue
        if unknown := [name for name in model.features if name not in values]:
            raise InvalidValueError(f"{model.name} has inputs that are not known here: {', '.join(unknown)}")
        rows.append([float(values[name]) for name in model.features])
        kept.append(kernel)
    return np.array(rows, np.float64), kept


def _count(counts: dict[str, int], reason: str) -> None:
    counts[reason] = counts.get(reason, 0) + 1


@dataclass(frozen=True)
class _RankedProblem:
    kernels: int
    correlation: float
    same_first: bool
    chance: float
    place: float


def _rank(us: Floats, rates: Floats) -> _RankedProblem:
    from scipy.stats import spearmanr  # noqa: PLC0415

    chosen = rates[int(np.argmin(us))]
    better = int((rates > chosen).sum())
    return _RankedProblem(
        kernels=len(us),
        correlation=float(spearmanr(-us, rates).statistic),
        same_first=better == 0,
        chance=float((rates == rates.max()).mean()),
        place=better / (len(us) - 1),
    )


def _summarize(kind: str, ranked: Sequence[_RankedProblem]) -> Agreement:
    correlations = np.array([each.correlation for each in ranked])
    return Agreement(
        kind=kind,
        problems=len(ranked),
        kernels=float(np.mean([each.kernels for each in ranked])),
        correlation=float(correlations.mean()),
        correlation_p10=float(np.percentile(correlations, 10)),
        same_first=float(np.mean([each.same_first for each in ranked])),
        same_first_by_chance=float(np.mean([each.chance for each in ranked])),
        place=float(np.mean([each.place for each in ranked])),
    )
