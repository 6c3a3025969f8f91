"""Readers for the published files of known data sets, one module per family of formats."""
