__version__ = "0.1.0"

# Raised by every change that alters the results of a run; records of an older version are not reused.
RESULTS = 2
