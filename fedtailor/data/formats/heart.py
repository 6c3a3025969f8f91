"""Heart Disease: the patients of four hospitals, in files that come with FedTailor."""

from pathlib import Path

import numpy as np

from fedtailor.data.files import SourceFiles
from fedtailor.data.samples import Column, Samples

PLACE = Path(__file__).parents[1] / "bundled" / "heart-disease"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
NO_YES = {"0": "no", "1": "yes"}

# Each column, and the names of its codes in the files; a column without names holds numbers.
COLUMNS: dict[str, dict[str, str]] = {
    "age": {},
    "sex": {"0": "female", "1": "male"},
    "chest pain": {"1": "typical angina", "2": "atypical angina", "3": "non-anginal", "4": "asymptomatic"},
    "resting blood pressure": {},
    "cholesterol": {},
    "fasting blood sugar above 120": NO_YES,
    "resting ECG": {"0": "normal", "1": "ST-T abnormality", "2": "hypertrophy"},
    "maximum heart rate": {},
    "exercise angina": NO_YES,
    "ST depression": {},
    "ST slope": {"1": "up", "2": "flat", "3": "down"},
    "major vessels": {},
    "thallium scan": {"3": "normal", "6": "fixed defect", "7": "reversible defect"},
}
ZERO_IS_MISSING = ("resting blood pressure", "cholesterol")  # no patient has 0 of these


def heart_disease(_: SourceFiles) -> Samples:
    """920 patients, 13 columns, many values missing; the label says whether the vessels are narrowed."""
    tables = [_hospital(PLACE / f"processed.{name}.data") for name in HOSPITALS]
    x = np.concatenate([x for x, _ in tables])
    return Samples(
        x=x,
        y=np.concatenate([y for _, y in tables]),
        classes=("healthy", "disease"),
        official_test=np.zeros(len(x), bool),
        groups=np.repeat(np.arange(len(HOSPITALS)), [len(y) for _, y in tables]),
        group_names=HOSPITALS,
        columns=tuple(Column(name, tuple(codes.values())) for name, codes in COLUMNS.items()),
    )


def _hospital(path: Path) -> tuple[np.ndarray, np.ndarray]:
    rows = [line.split(",") for line in path.read_text(encoding="ascii").split()]
    columns = []
    for place, (name, codes) in enumerate(COLUMNS.items()):
        numbers = {code: float(index) for index, code in enumerate(codes)}
        cells = [row[place] for row in rows]
        column = np.array([np.nan if cell == "?" else numbers[cell] if codes else float(cell) for cell in cells])
        if name in ZERO_IS_MISSING:
            column[column == 0] = np.nan
        columns.append(column)
    grades = np.array([int(row[-1]) for row in rows])  # 0: healthy, 1 to 4: grades of the disease
    return np.stack(columns, 1).astype(np.float32), (grades > 0).astype(np.int64)
