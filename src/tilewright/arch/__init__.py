"""GPUs, data types and layouts."""

from tilewright.arch.load import arch_names, cut_features, find_gpu_name, load, load_file
from tilewright.arch.spec import Arch, Shape, Triple

__all__ = ["Arch", "Shape", "Triple", "arch_names", "cut_features", "find_gpu_name", "load", "load_file"]
