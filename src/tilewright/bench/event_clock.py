"""Time on a GPU: events in the stream, around the launches of one sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tilewright.bench.timing import MAX_BATCH

if TYPE_CHECKING:
    from tilewright.runtime.device import Device
    from tilewright.runtime.streams import Stream, StreamEvent


class _EventPair(NamedTuple):
    """The events of a sample, and the functions that record them in the stream."""

    start: StreamEvent
    stop: StreamEvent
    record_start: Callable[[], None]
    record_stop: Callable[[], None]


class EventClock:
    """A `Clock` of a device. All samples of a request are put into the stream before any is waited for.

    A GPU must have work queued before a sample: otherwise it waits for the host during the sample, and that time would
    count. So each series of samples begins with untimed launches, as many as one sample has. With `before`, that
    function provides the work: it is called before each sample, outside its time. `busy` is called once while samples
    wait in the stream, so that it reads the GPU under load.
    """

    def __init__(
        self,
        device: Device,
        stream: Stream | None,
        *,
        max_batch: int = MAX_BATCH,
        before: Callable[[], None] | None = None,
        busy: Callable[[], None] | None = None,
    ) -> None:
        self.device = device
        self.stream = stream
        self.max_batch = max_batch
        self._before = before
        self._busy = busy
        self._pairs: list[_EventPair] = []

    def take_samples(self, call: Callable[[], None], count: int, batch: int) -> list[float]:
        while len(self._pairs) < count:
            self._pairs.append(self._create_pair())
        pairs = self._pairs[:count]
        with self.device.make_current():
            if self._before is None:
                for _ in range(batch):
                    call()
            for pair in pairs:
                if self._before is not None:
                    self._before()
                pair.record_start()
                for _ in range(batch):
                    call()
                pair.record_stop()
        if self._busy is not None:
            self._busy()
        pairs[-1].stop.synchronize()
        return [pair.stop.elapsed_ms(pair.start) * 1000 / batch for pair in pairs]

    def _create_pair(self) -> _EventPair:
        start, stop = self.device.event(), self.device.event()
        return _EventPair(start, stop, start.make_recorder(self.stream), stop.make_recorder(self.stream))
