"""From a problem to a launch: kernel selection, tensor preparation, and the call."""
