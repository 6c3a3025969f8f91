"""How long a run will take, from the time of a few training steps on this machine."""

import os
import time

import numpy as np
import torch

from fedtailor.learning import TrainOptions, train
from fedtailor.learning.tensors import tensors
from fedtailor.runs.assembly import Assembly
from fedtailor.runs.cohort import largest_cohort

STEPS = 3  # that are timed, after one that is not
FORWARD = 1 / 3  # share of a forward pass in a training step


def expected_seconds(made: Assembly, episodes: int = 1) -> float | None:
    """About how long the rounds, evaluations and the final pass will take; None if it cannot be estimated.

    It times a few mini-batches and counts those of the run. What a method does besides training is not in it, apart
    from the passes over the data that the method declares. The assembly's network is trained: use it for nothing else.
    """
    settings = made.experiment
    if made.job.device != "cpu" or settings.engine.kind == "ray":
        return None  # other hardware than this process
    step = _seconds_of_a_step(made)
    if step is None:
        return None
    workers = 1 if settings.engine.kind == "inline" else settings.engine.workers or os.cpu_count() or 1
    return step * episodes * steps_of_a_run(made) / min(workers, made.clients)


def steps_of_a_run(made: Assembly) -> float:
    """The mini-batches of all rounds, of evaluations (a forward pass counts a third), and of the final pass."""
    settings, federation, training = made.experiment, made.job.federation, made.job.training
    batch = training.batch_size
    by_client = -(-federation.train.sizes // batch) * made.method.passes(training.epochs)  # mini-batches of a task
    if training.steps:
        by_client = np.full(federation.everyone, training.steps)
    final = [*made.tested, *made.tested_newcomers]
    tests = float((-(-federation.test.sizes[final] // batch)).sum()) * FORWARD
    every = settings.evaluation.every
    tested = settings.rounds // every if every else 0
    mean = float(by_client[: made.clients].mean())
    rounds = settings.rounds * largest_cohort(settings, made.clients) * mean
    return rounds + tested * tests + (float(by_client[final].sum()) + tests if settings.evaluation.final else 0)


def _seconds_of_a_step(made: Assembly) -> float | None:
    samples, training = made.job.federation.samples, made.job.training
    largest = int(made.job.federation.train.sizes[: made.clients].argmax())
    rows = made.job.federation.train[largest][: training.batch_size]
    stream = torch.Generator().manual_seed(0)
    try:
        x, y = tensors(samples, rows, client=largest)
        train(made.network, x, y, training, stream, TrainOptions(steps=1))
        began = time.perf_counter()
        train(made.network, x, y, training, stream, TrainOptions(steps=STEPS))
        return (time.perf_counter() - began) / STEPS
    except Exception:  # what is wrong with the model or the loss will be said by the run itself
        return None
