"""What the Ray engine costs beside the training itself: the constants of the cost model in docs/ray.md.

One worker of a local Ray is given fit tasks of clients with a handful of samples. What a task takes beyond the time
that the worker itself measured is its way there and back: of a call (a network of 10 kB), of a megabyte up (a network
of 4 MB whose payload all clients share) and of a megabyte down (each client with a payload of its own); and how busy
the coordinator is with it. The processes engine, whose every task brings its payload, for comparison. Then 100 MB of
data are placed, and what the model predicts for a cohort on one worker, two, ... up to all cores is compared with what
it takes (``curve``, for both networks; the large one trains longer); there the coordinator and the workers share the
cores, which the model does not know.

``forecast``: what the model says for a cohort of 1,000 on more workers than this machine has. It assumes that every
worker has a core as fast as one here, that the coordinator has a core of its own, that all tasks take equally long, and
that replies share one link of 1 Gbit/s to the coordinator; nothing of it was measured. ``bound`` names what limits
the round: ``workers``, ``coordinator`` or ``link``.
Example: ``python benchmarks/ray_cost.py``. Prints one JSON document.
"""

import dataclasses
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedtailor.data import DataSettings, Federation, build
from fedtailor.engines import Engine, Job, Processes, Task, cores
from fedtailor.engines.codec import result_message, task_message
from fedtailor.engines.ray import Ray
from fedtailor.engines.worker import Worker
from fedtailor.learning import TrainingSettings
from fedtailor.messages.frames import encode
from fedtailor.methods import Moment, Payload, find
from fedtailor.models import ModelSettings
from fedtailor.runs.environment import environment
from fedtailor.weights import nbytes

CLIENTS = 40
TIMES = 3
SMALL, LARGE = [32], [13_300]  # widths of the hidden layer
CURVES = {"10 kB": (SMALL, 1, 200), "4 MB": (LARGE, 20, 40)}  # hidden layer, epochs, clients in a round
COHORT, FORECAST, LINK = 1000, (2, 8, 64, 512), 1000  # clients, workers, megabits per second
WORKLOADS = {  # seconds of a task, megabytes that a client sends
    "10 kB, 5 ms": (0.005, 0.01),
    "2.3 MB, 1 s": (1.0, 2.3),
    "45 MB, 20 s": (20.0, 45.0),
}


def job_of(hidden: list[int], federation: Federation, epochs: int = 1) -> Job:
    model = ModelSettings(name="mlp", arguments={"hidden": hidden})
    return Job(find("fedavg")(), model, TrainingSettings(epochs=epochs, lr=0.01), 0, federation)


def tasks_of(job: Job, shared: bool, count: int = CLIENTS) -> list[Task]:
    payload = Payload({"model": Worker(job).initial}).pack()
    own = [payload if shared else bytes(bytearray(payload)) for _ in range(count)]
    return [Task("fit", i, Moment(0, round=1, rounds=1), i % CLIENTS, own[i]) for i in range(count)]


def overhead(engine: Engine, job: Job, shared: bool) -> dict[str, float]:
    """Of a task: milliseconds on the way, milliseconds of the coordinator's processor, bytes down and up."""
    tasks = tasks_of(job, shared)
    engine.start(job)
    list(engine.run(tasks[:4]))
    found = []
    for _ in range(TIMES):
        begin, busy = time.perf_counter(), time.process_time()
        results = list(engine.run(tasks))
        wall, busy = time.perf_counter() - begin, time.process_time() - busy
        found.append(((wall - sum(result.seconds for result in results)) / CLIENTS, busy / CLIENTS))
    return {
        "way_ms": 1e3 * statistics.median(way for way, _ in found),
        "coordinator_ms": 1e3 * statistics.median(busy for _, busy in found),
        "bytes_down": len(encode(*task_message(tasks[:1]))),
        "bytes_up": len(encode(*result_message(results[:1]))),
    }


def constants(engine: Engine, federation: Federation) -> dict[str, Any]:
    small = overhead(engine, job_of(SMALL, federation), shared=True)
    large = overhead(engine, job_of(LARGE, federation), shared=True)
    own = overhead(engine, job_of(LARGE, federation), shared=False)
    up, down = large["bytes_up"] / 1e6, own["bytes_down"] / 1e6
    return {
        "ms_per_call": round(small["way_ms"], 2),
        "ms_per_MB_up": round((large["way_ms"] - small["way_ms"]) / up, 2),
        "ms_per_MB_down": round((own["way_ms"] - large["way_ms"]) / down, 2),
        "coordinator_ms_per_call": round(small["coordinator_ms"], 2),
        "coordinator_ms_per_MB_up": round((large["coordinator_ms"] - small["coordinator_ms"]) / up, 2),
        "bytes_beside_the_weights": small["bytes_down"] - weights_of(job_of(SMALL, federation)),
    }


def beside(engine: Engine, federation: Federation) -> dict[str, Any]:
    """The same tasks on another engine."""
    ways = [overhead(engine, job_of(hidden, federation), shared=True)["way_ms"] for hidden in (SMALL, LARGE)]
    return {"ms_per_call": round(ways[0], 2), "ms_of_a_task_of_4_MB": round(ways[1], 2)}


def weights_of(job: Job) -> int:
    return nbytes(Worker(job).initial)


def placing(engine: Ray, federation: Federation) -> dict[str, Any]:
    """Placing 100 MB of data, and what a worker's own memory grows by when it gets them."""
    count = 100_000_000 // federation.samples.x[0].nbytes
    rows = np.resize(np.arange(len(federation.samples)), count)
    large = dataclasses.replace(federation, samples=federation.samples.take(rows))
    engine.start(job_of(SMALL, federation))
    list(engine.run(tasks_of(job_of(SMALL, federation), True, 4)))
    before = own_memory(engine._pool[0].pid)
    begin = time.perf_counter()
    engine.start(job_of(SMALL, large))
    seconds = time.perf_counter() - begin
    list(engine.run(tasks_of(job_of(SMALL, large), True, 4)))
    grown = own_memory(engine._pool[0].pid) - before
    megabytes = sum(array.nbytes for array in large.arrays().values()) / 1e6
    return {
        "ms_per_MB_placed": round(1e3 * seconds / megabytes, 2),
        "placed_MB": round(megabytes),
        "worker_grew_MB": grown,
    }


def own_memory(pid: int) -> int:
    """Megabytes that no other process shares."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return round(int(line.split()[1]) / 1e3)
    raise RuntimeError(f"no memory of {pid}")


def parts(found: dict[str, Any], cohort: int, workers: int, task: float, up: float) -> dict[str, float]:
    """The seconds of a round that the workers and the coordinator need; a client sends ``up`` megabytes."""
    way = (found["ms_per_call"] + found["ms_per_MB_up"] * up) / 1e3
    busy = (found["coordinator_ms_per_call"] + found["coordinator_ms_per_MB_up"] * up) / 1e3
    return {"workers": math.ceil(cohort / workers) * (task + way), "coordinator": cohort * busy}


def forecast(found: dict[str, Any]) -> dict[str, Any]:
    """Rounds of 1,000 clients on other numbers of workers, by the cost model."""
    made: dict[str, Any] = {}
    for name, (task, up) in WORKLOADS.items():
        alone = max(parts(found, COHORT, 1, task, up).values())
        rows = {}
        for workers in FORECAST:
            needed = {**parts(found, COHORT, workers, task, up), "link": COHORT * up * 8 / LINK}
            bound = max(needed, key=lambda part: needed[part])
            faster = round(alone / needed[bound], 1)
            rows[str(workers)] = {"seconds": round(needed[bound], 2), "over_one_worker": faster, "bound": bound}
        made[name] = rows
    return made


def curve(found: dict[str, Any], federation: Federation) -> dict[str, Any]:
    """Cohorts on one worker, two, ... up to all cores."""
    drawn: dict[str, Any] = {}
    for name, (hidden, epochs, count) in CURVES.items():
        job = job_of(hidden, federation, epochs)
        rows = {str(n): prediction(found, job, n, count) for n in range(1, cores() + 1)}
        for row in rows.values():
            row["over_one_worker"] = round(rows["1"]["seconds"] / row["seconds"], 2)
        drawn[name] = {"cohort": count, "workers": rows}
    return drawn


def prediction(found: dict[str, Any], job: Job, workers: int, count: int) -> dict[str, float]:
    """A cohort on several workers: measured, and as the cost model has it from one worker's constants."""
    tasks = tasks_of(job, True, count)
    with Ray(workers) as engine:
        engine.start(job)
        while any(worker.answer is not None for worker in engine._pool):
            list(engine.run(tasks[: 2 * workers]))
        walls, works = [], []
        for _ in range(TIMES):
            begin = time.perf_counter()
            results = list(engine.run(tasks))
            walls.append(time.perf_counter() - begin)
            works.append(statistics.fmean(result.seconds for result in results))
    task, up = statistics.median(works), len(encode(*result_message(results[:1]))) / 1e6
    return {
        "ms_per_task": round(1e3 * task, 2),
        "seconds": round(statistics.median(walls), 3),
        "predicted": round(max(parts(found, count, workers, task, up).values()), 3),
    }


def measure() -> dict[str, Any]:
    federation = build(DataSettings.model_validate({"clients": CLIENTS, "samples": 400, "partition": "iid"}), 0)
    begin = time.perf_counter()
    with Ray(1) as engine:
        opened = time.perf_counter()
        engine.start(job_of(SMALL, federation))
        ready = time.perf_counter()
        found = constants(engine, federation)
        placed = placing(engine, federation)
    with Processes(1) as other:
        processes = beside(other, federation)
    return {
        **found,
        **placed,
        "start_seconds": {"local Ray": round(opened - begin, 1), "first worker": round(ready - opened, 1)},
        "processes": processes,
        "curve": curve(found, federation),
        "forecast": forecast(found),
        "clients": CLIENTS,
        "times": TIMES,
        "environment": environment(),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
