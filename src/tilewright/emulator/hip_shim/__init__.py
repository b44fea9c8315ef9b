"""The HIP shim: a HIP library for emulated devices. Kernel libraries run on it unchanged."""
