"""Event files after a kill in the middle of a write."""

from pathlib import Path

from fedtailor.runs.tracking.base import Point, Subject
from fedtailor.runs.tracking.event_files import TensorBoard
from tests.support.copies import in_tensorboard

POINTS = [Point(step, {"cost/seconds": 0.5, "held/accuracy": step / 10}) for step in (1, 2, 3)]


def test_a_record_that_was_cut_is_written_again(tmp_path: Path) -> None:
    subject = Subject(tmp_path, "id", "run", "run", "fedper", {"rounds": 3})
    copy = TensorBoard(subject)
    copy.log(POINTS)
    copy.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    file.write_bytes(file.read_bytes()[:-5])  # the process was killed while it wrote round 3
    again = TensorBoard(subject)
    again.log(POINTS)
    again.close()
    assert [step for step, _ in in_tensorboard(tmp_path)["held/accuracy"]] == [1, 2, 3]
    TensorBoard(subject).log(POINTS)
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2  # nothing new, no file
