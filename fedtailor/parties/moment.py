"""A place in a run, which names the random streams."""

from dataclasses import dataclass

import torch

from fedtailor.seeding import seed_of, torch_stream


@dataclass(frozen=True)
class Moment:
    """A place in a run: seed, episode and round. It names the random streams."""

    seed: int
    episode: int = 0
    round: int = 0  # counts from 1; 0 is before the first
    rounds: int = 0

    @property
    def network_seed(self) -> int:
        """The seed of the initial model, which every episode draws anew."""
        return seed_of(self.seed, self.episode, "network") if self.episode else self.seed

    def stream(self, *names: int | str) -> torch.Generator:
        return torch_stream(self.seed, self.episode, self.round, *names)
