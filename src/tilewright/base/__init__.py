"""The ground everything stands on: errors, knobs, events, digests."""
