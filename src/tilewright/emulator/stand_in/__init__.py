"""A HIP library for emulated devices: kernel libraries run on it unchanged."""
