"""Bytes: trees of tensors, payloads, frames. Import the modules by name, since `frames` needs no torch."""
