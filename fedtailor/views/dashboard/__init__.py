"""The dashboard: a small server for this machine that reads runs and shows them live.

It uses the standard library only. It serves the same scripts and tables as the report, so a browser paints at once and
nothing is installed beside FedTailor.
"""
