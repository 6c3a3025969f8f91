"""Views of runs and catalogues: progress in the terminal, tables, curves, reports."""
