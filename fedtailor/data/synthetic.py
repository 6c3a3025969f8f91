"""A synthetic data set with the size and structure of its settings."""

from typing import TYPE_CHECKING

import numpy as np

from fedtailor.seeding import numpy_stream

from .samples import Samples, with_statistics

if TYPE_CHECKING:
    from .settings import Synthetic


def synthetic(settings: "Synthetic", seed: int) -> Samples:
    """Classes are Gaussian clouds around random centres, which differ from cluster to cluster.

    With ``classes = 0`` the target is a linear function of the features, one per cluster.
    """
    stream = numpy_stream(seed, "synthetic")
    count = settings.samples
    groups = stream.permutation(np.arange(count) % settings.clusters)
    test = stream.permutation(np.arange(count) < int(settings.test * count + 0.5))
    features = int(np.prod(settings.image)) if settings.image else settings.features
    # (clusters, classes, features): a common part plus a part per cluster
    shape = (settings.clusters, max(1, settings.classes), features)
    centres = stream.standard_normal(shape[1:]) + settings.heterogeneity * stream.standard_normal(shape)
    centres = centres.astype(np.float32)
    cloud = stream.standard_normal((count, features)).astype(np.float32)
    if settings.classes:
        y = stream.randint(settings.classes, size=count).astype(np.int64)
        x = centres[groups, y] + np.float32(settings.noise) * cloud
    else:
        error = settings.noise * stream.standard_normal(count)
        x = cloud
        y = ((cloud * centres[groups, 0]).sum(1) / np.sqrt(features) + error).astype(np.float32)
    samples = Samples(
        x=x,
        y=y,
        classes=tuple(f"class {k}" for k in range(settings.classes)),
        official_test=test,
        groups=groups,
        group_names=tuple(f"cluster {g}" for g in range(settings.clusters)),
    )
    return _as_images(samples, settings.image) if settings.image else samples


def _as_images(samples: Samples, shape: tuple[int, int, int]) -> Samples:
    from dataclasses import replace

    pixels = np.clip(samples.x * 40 + 128, 0, 255).astype(np.uint8).reshape(-1, *shape)
    return with_statistics(replace(samples, x=pixels))
