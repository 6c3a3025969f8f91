"""How long a user waits for ``fedtailor --help``, over the start of Python itself.

Example: ``python benchmarks/start.py``. Prints one JSON document.
"""

import json
import statistics
import subprocess
import sys
import time

TIMES = 9


def seconds(*arguments: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


if __name__ == "__main__":
    found: dict[str, list[float]] = {"python": [], "import": [], "help": []}
    for _ in range(TIMES):
        found["python"].append(seconds("-c", "pass"))
        found["import"].append(seconds("-c", "import fedtailor"))
        found["help"].append(seconds("-m", "fedtailor", "--help"))
    median = {name: statistics.median(times) for name, times in found.items()}
    print(
        json.dumps(
            {
                "help_seconds": round(median["help"], 3),
                "goal": "< 0.5",
                "help_over_python": round(median["help"] / median["python"], 1),
                "import_over_python": round(median["import"] / median["python"], 1),
                "times": TIMES,
            },
            indent=2,
        )
    )
