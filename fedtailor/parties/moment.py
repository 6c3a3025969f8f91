"""The moment of a run: seed, episode and round."""

from dataclasses import dataclass

import torch

from fedtailor.seeding import seed_of, torch_stream


@dataclass(frozen=True)
class Moment:
    """Seed, episode and round of a run. Every random stream depends on them."""

    seed: int
    episode: int = 0
    round: int = 0  # counts from 1; 0 is before the first
    rounds: int = 0

    @property
    def network_seed(self) -> int:
        """The seed of the initial model. Each episode has another one."""
        return seed_of(self.seed, self.episode, "network") if self.episode else self.seed

    def stream(self, *names: int | str) -> torch.Generator:
        return torch_stream(self.seed, self.episode, self.round, *names)
