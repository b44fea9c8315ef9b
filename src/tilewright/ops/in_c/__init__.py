"""Functions of problems, translated to C for programs without Python."""
