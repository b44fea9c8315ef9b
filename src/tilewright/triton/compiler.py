"""The compiler that Triton requires of a backend. It compiles for no target: Triton's own AMD backend does."""

from __future__ import annotations

from triton.backends.compiler import BaseBackend, GPUTarget


class EmulatedBackend(BaseBackend):  # type: ignore[misc]  # Triton's classes have no types
    """A backend without targets."""

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:  # noqa: ARG004
        """Return False: code for emulated GPUs is the code of real ones."""
        return False


# Triton looks for a class that is not abstract. It never makes an object of one that supports no target, and the other
# abstract methods change from version to version.
EmulatedBackend.__abstractmethods__ = frozenset()
