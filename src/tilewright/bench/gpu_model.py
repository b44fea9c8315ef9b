"""Times of one model of GPU at a time: MI300X and MI300A are both gfx942, and a time of one is none of the other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from tilewright.base.errors import InvalidValueError, choose
from tilewright.bench.record import Record, Task

MODEL = "gpu"  # among the versions of a task
UNTOLD = "not told"


def gpu_of(versions: str) -> str | None:
    """The model of the GPU in the versions of a task; None where they do not tell, as those of emulated devices."""
    return parsed(versions).get(MODEL)


@lru_cache(maxsize=64)
def parsed(versions: str) -> Mapping[str, str]:
    """The versions of a task by name. A text that is not of `versions_text` tells nothing: it has no names."""
    try:
        found = json.loads(versions)
    except (ValueError, RecursionError):
        return {}
    return {name: str(value) for name, value in found.items()} if isinstance(found, dict) else {}


class OneModel:
    """Sees that the times of an architecture that it is shown are all of one model. Records that tell none pass."""

    def __init__(self) -> None:
        self._models: dict[str, str] = {}

    def check(self, task: Task) -> None:
        """An error if the task was measured on another model than those before."""
        model = gpu_of(task.versions)
        if model is None:
            return
        known = self._models.setdefault(task.arch, model)
        if known != model:
            raise InvalidValueError(
                f"times of {task.arch} are of two models, {known} and {model}, which do not compare. Take those of "
                f"one: tilewright data export … --gpu '{known}' --out FILE.parquet"
            )


def of_model(records: Iterable[Record], text: str) -> Iterator[Record]:
    """The records of GPUs with this text in the name of their model, such as MI300X. An error if there are none."""
    seen: dict[str, None] = {}
    found = False
    for record in records:
        model = gpu_of(record.task.versions) or UNTOLD
        seen[model] = None
        if text.casefold() in model.casefold():
            found = True
            yield record
    if not found:
        choose("model of GPU", text, sorted(seen) or [UNTOLD])
