"""The native engine of the emulated device: an interpreter in C that is compiled once per machine."""
