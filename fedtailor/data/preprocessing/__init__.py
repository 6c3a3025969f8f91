"""Pre-processing: missing values, categories and scales, from statistics of training samples only.

A client summarises its training samples (`Summary`); the summaries of all clients give one `Preprocessing`, in a
simulation and on the nodes of a real federation alike.
"""

from .fitting import Kind, agree, fit, needed, with_own
from .prepared import Preprocessing
from .settings import Preprocess
from .summary import Summary, check_missing

__all__ = ["Kind", "Preprocess", "Preprocessing", "Summary", "agree", "check_missing", "fit", "needed", "with_own"]
