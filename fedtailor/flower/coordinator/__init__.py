"""The coordinator of a federation: it waits for nodes, sends them tasks and records the run."""
