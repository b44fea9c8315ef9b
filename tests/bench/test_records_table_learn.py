"""From records to a table to learn from: times and failures, never counters."""

from __future__ import annotations

import numpy as np
import pytest
from journalled import counted, failed, task, timed

from tilewright.base.errors import InvalidValueError
from tilewright.bench.record import OK, STATUSES, Record
from tilewright.learn.from_records import to_measurements


def test_times_and_failures() -> None:
    table = to_measurements(
        [timed(99, us=8), *(failed(n, status) for n, status in enumerate(STATUSES) if status != OK)]
    )
    found = dict(zip(table.kernel.to_list(), table.status.to_list(), strict=True))
    tried = [status for status in STATUSES if status not in ("quarantined", "not_recorded")]
    assert len(table) == len(tried)
    assert sorted(found.values()) == sorted(
        {"fault": "failed", "build_failed": "failed", "crashed": "failed", "out_of_memory": "failed"}.get(each, each)
        for each in tried
    )
    place = table.kernel.to_list().index("kernel-99")
    assert (table.us[place], table.us_min[place], table.us_max[place], table.runs[place]) == (8, 4, 16, 20)
    assert np.isnan(table.us).sum() == len(tried) - 1
    assert set(table.source.to_list()) == {"gpu:0 tests 1"}


@pytest.mark.parametrize(
    "record", [counted(1), Record(task=task(device="emulated:gfx942"), status="wrong", message="")]
)
def test_an_emulated_device_teaches_nothing_about_time(record: Record) -> None:
    with pytest.raises(InvalidValueError, match="has counters and no time"):
        to_measurements([timed(1), record])


def test_cold_and_warm_are_not_mixed() -> None:
    both = [timed(1, us=5), timed(1, us=9, cold=True)]
    with pytest.raises(InvalidValueError, match="cold caches and some with warm"):
        to_measurements(both)
    assert to_measurements(both, cold=True).us.tolist() == [9]
    assert to_measurements(both, cold=False).us.tolist() == [5]
