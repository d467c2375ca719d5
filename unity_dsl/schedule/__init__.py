"""The step of a device as data: what it computes, converts, sends and waits for, in order."""
