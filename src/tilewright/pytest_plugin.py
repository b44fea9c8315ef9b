"""The pytest plugin: `pytest --triton-gpu gfx942 --triton-mode strict` runs Triton kernels on an emulated GPU.

pytest loads it in every run, so it imports nothing before an option asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_GPU, _MODE = "triton_gpu", "triton_mode"
_ACTIVE = "_tilewright_triton"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("tilewright", "Triton kernels on an emulated AMD GPU (Tilewright)")
    group.addoption("--triton-gpu", dest=_GPU, metavar="GPU", help="Run Triton kernels on this emulated GPU: gfx942, …")
    group.addoption("--triton-mode", dest=_MODE, metavar="MODE", help="fast (the default) or strict.")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the emulated GPU, if an option names one."""
    gpu, mode = config.getoption(_GPU), config.getoption(_MODE)
    if gpu is None and mode is None:
        return
    import pytest  # noqa: PLC0415

    from tilewright.base.errors import TilewrightError  # noqa: PLC0415

    if gpu is None:
        raise pytest.UsageError("--triton-mode needs --triton-gpu: there is no default GPU")
    try:
        from tilewright.triton import use  # noqa: PLC0415

        setattr(config, _ACTIVE, use(gpu) if mode is None else use(gpu, mode))
    except TilewrightError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the GPU in the header of the run."""
    active = getattr(config, _ACTIVE, None)
    return None if active is None else f"triton: emulated {active.name}, {active.mode.value} mode"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give Triton back its own driver."""
    active = getattr(config, _ACTIVE, None)
    if active is not None:
        active.close()
