"""Trackers: copies of a run in TensorBoard, MLflow and Weights & Biases.

The run's database is the truth. A tracker's copy is brought up to date from it: after every round, at the end, and
after a resume. What the copy has already is not sent again, so it has every round once, whatever was killed when.
"""

from fedtailor.runs.tracking.following import following
from fedtailor.runs.tracking.mirrors import add_files, mirror, track
from fedtailor.runs.tracking.trackers import check_trackers

__all__ = ["add_files", "check_trackers", "following", "mirror", "track"]
