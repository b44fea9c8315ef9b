"""A second engine of the emulated device, in C: an interpreter that is compiled once per machine."""
