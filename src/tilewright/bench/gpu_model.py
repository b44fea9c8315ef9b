"""Keep GPU models apart: MI300X and MI300A are both gfx942, and their times must not be mixed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from tilewright.base.errors import InvalidValueError, choose
from tilewright.bench.record import Record, Task

MODEL = "gpu"  # among the versions of a task
UNKNOWN_MODEL = "unknown model"


def get_gpu_model(versions: str) -> str | None:
    """The GPU model in a task's versions; None if there is none, as for emulated devices."""
    return parse_versions(versions).get(MODEL)


@lru_cache(maxsize=64)
def parse_versions(versions: str) -> Mapping[str, str]:
    """A task's versions by name. Empty for text that `format_versions` did not write."""
    try:
        found = json.loads(versions)
    except (ValueError, RecursionError):
        return {}
    return {name: str(value) for name, value in found.items()} if isinstance(found, dict) else {}


class SingleModelCheck:
    """Checks that all times of an architecture come from one GPU model. Records without a model pass."""

    def __init__(self) -> None:
        self._models: dict[str, str] = {}

    def check(self, task: Task) -> None:
        """Raise an error if the task was measured on another model than the earlier ones."""
        model = get_gpu_model(task.versions)
        if model is None:
            return
        known = self._models.setdefault(task.arch, model)
        if known != model:
            raise InvalidValueError(
                f"the times of {task.arch} come from two GPU models, {known} and {model}, and are not "
                f"comparable. Keep those of one model: tilewright data export … --gpu '{known}' --out FILE.parquet"
            )


def filter_by_model(records: Iterable[Record], text: str) -> Iterator[Record]:
    """The records whose GPU model contains this text, such as MI300X. Raises an error if there are none."""
    seen: dict[str, None] = {}
    found = False
    for record in records:
        model = get_gpu_model(record.task.versions) or UNKNOWN_MODEL
        seen[model] = None
        if text.casefold() in model.casefold():
            found = True
            yield record
    if not found:
        choose("GPU model", text, sorted(seen) or [UNKNOWN_MODEL])
