"""A whole toolchain for AMD GPUs from wheels on PyPI: no root, no distribution packages, no system headers."""
