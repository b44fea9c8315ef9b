"""The emulated device: compiled AMD code objects, executed on the CPU."""
