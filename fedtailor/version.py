__version__ = "0.2.0.dev0"

# Raised by every change that alters the results of a run; records of an older version are not reused.
RESULTS = 2
