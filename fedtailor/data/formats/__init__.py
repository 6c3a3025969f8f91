"""Readers of the files in which known data sets are published, one module per family of formats."""
