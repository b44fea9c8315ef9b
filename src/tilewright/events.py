"""Progress of long work: your program receives events with `add_listener`."""

from tilewright.base.events import Advanced, Event, Finished, Notice, Started, Working, add_listener

__all__ = ["Advanced", "Event", "Finished", "Notice", "Started", "Working", "add_listener"]
