"""Judge measured times: each figure has a wide plausible range, outside of which something is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch

# Events cannot see more time than the host, which waits for them. Clocks drift by far less.
_EVENTS = (0.0, 1.05)
# A copy reaches 60 to 90 % of the memory's bandwidth; a partitioned or throttled GPU far less, and none more than it.
_BANDWIDTH = (0.1, 1.1)
# Idle GPUs run at a tenth of their clock, boosted ones somewhat above the nominal one.
_CLOCK = (0.05, 1.2)
# Estimates are within a factor of about two where they were compared with measured times; small problems are worse.
_ESTIMATE = (0.2, 20.0)


@dataclass(frozen=True, slots=True)
class TimingCheck:
    """A ratio and its plausible range. `text` gives the figures behind it."""

    name: str
    ratio: float
    low: float
    high: float
    text: str

    @property
    def ok(self) -> bool:
        return self.low <= self.ratio <= self.high

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "ratio": self.ratio,
            "low": self.low,
            "high": self.high,
            "ok": self.ok,
            "text": self.text,
        }


def check_copy(found: Mapping[str, Any], arch: Arch) -> Iterator[TimingCheck]:
    """Check the times of a copy: against the host's clock, the memory's bandwidth, and the engine's clock."""
    yield TimingCheck(
        "events and host clock",
        found["events_us"] / found["host_us"],
        *_EVENTS,
        f"{found['events_us']:,.0f} µs by events, {found['host_us']:,.0f} µs on the host's clock",
    )
    rate = 2 * found["bytes"] / found["copy_us"] / 1e3 if found["copy_us"] > 0 else float("inf")
    peak = arch.memory.bandwidth_gbs
    text = f"{rate:,.0f} GB/s for a copy of {found['bytes'] >> 20:,} MiB; the memory has {peak:,.0f} GB/s"
    yield TimingCheck("copy bandwidth", min(rate / peak, 1e9), *_BANDWIDTH, text)
    if found["clock_mhz"] is not None:
        clock = arch.compute.clock_mhz
        text = f"{found['clock_mhz']:,.0f} MHz under load; the peak is {clock:,} MHz"
        yield TimingCheck("engine clock", found["clock_mhz"] / clock, *_CLOCK, text)


def check_kernel(found: Mapping[str, Any]) -> Iterator[TimingCheck]:
    """Check the time of a kernel against its estimate, if there is one."""
    if found["estimate_us"]:
        text = f"{found['us']:,.2f} µs measured, {found['estimate_us']:,.2f} µs estimated, for {found['problem']}"
        yield TimingCheck("kernel and estimate", found["us"] / found["estimate_us"], *_ESTIMATE, text)
