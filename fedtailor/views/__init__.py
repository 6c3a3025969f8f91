"""What people see of a run: progress in the terminal, tables, curves and a report."""
