"""Bytes: trees of tensors, payloads, frames. The modules are imported by name, since frames need no torch."""
