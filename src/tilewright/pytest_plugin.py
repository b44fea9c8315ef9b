"""The pytest plugin: `pytest --triton-gpu gfx942 --triton-mode strict` runs Triton kernels on an emulated GPU.

pytest loads it in every run, so it imports nothing before an option asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_GPU, _MODE, _CHECK = "triton_gpu", "triton_mode", "triton_check"
_ACTIVE = "_tilewright_triton"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("tilewright", "Triton kernels on an emulated AMD GPU (Tilewright)")
    group.addoption("--triton-gpu", dest=_GPU, metavar="GPU", help="Run Triton kernels on this emulated GPU: gfx942, …")
    group.addoption("--triton-mode", dest=_MODE, metavar="MODE", help="fast (the default) or strict.")
    help_ = "Check every launch: races, uninitialized, barriers, progress (several with commas), or all."
    group.addoption("--triton-check", dest=_CHECK, metavar="WORDS", help=help_)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the emulated GPU, if an option names one."""
    gpu, mode, checks = (config.getoption(name) for name in (_GPU, _MODE, _CHECK))
    if gpu is None and mode is None and checks is None:
        return
    import pytest  # noqa: PLC0415

    from tilewright.base.errors import TilewrightError  # noqa: PLC0415

    if gpu is None:
        option = "--triton-mode" if mode is not None else "--triton-check"
        raise pytest.UsageError(f"{option} needs --triton-gpu: there is no default GPU")
    try:
        from tilewright.triton import use  # noqa: PLC0415

        setattr(config, _ACTIVE, use(gpu, mode or "fast", checks=checks or ()))
    except TilewrightError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the GPU in the header of the run."""
    active = getattr(config, _ACTIVE, None)
    if active is None:
        return None
    checks = f", checks: {', '.join(sorted(active.checks))}" if active.checks else ""
    return f"triton: emulated {active.name}, {active.mode.value} mode{checks}"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give Triton back its own driver."""
    active = getattr(config, _ACTIVE, None)
    if active is not None:
        active.close()
