"""From a problem to a launch: which kernel, what must be done to its tensors, and the call."""
