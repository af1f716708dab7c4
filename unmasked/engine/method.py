"""A method as data: which networks it has, what each learns from, and in which order."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from unmasked.errors import InputError
from unmasked.masking import Masker
from unmasked.masklaws import MaskLaw
from unmasked.networks import Factory
from unmasked.samplers import RebarBernoulli, Sampler
from unmasked.shapes import Float


@dataclass(frozen=True)
class Data:
    """Rows to learn from: inputs and class probabilities (one-hot rows where y is a label)."""

    x: Float[Tensor, "rows columns"]
    target: Float[Tensor, "rows classes"]

    @property
    def rows(self) -> int:
        return self.x.shape[0]


@dataclass(frozen=True)
class Method:
    """What is trained.

    predictor : learns from masks drawn from ``law``, never from the selector's. It does not
        depend on the sparsity, so all settings of a seed share one.
    selector : None for an evaluator, which is a predictor on random masks and nothing else.
    predictor_first : finish and freeze the predictor before the selector starts ("STEP");
        otherwise both move in every step (Algorithm 1 of the paper).
    """

    masker: Masker
    law: MaskLaw
    predictor: nn.Module | Factory
    selector: nn.Module | Factory | None = None
    sampler: Sampler = field(default_factory=RebarBernoulli)
    predictor_first: bool = False

    @property
    def phases(self) -> tuple[frozenset[str], ...]:
        """The networks that move, phase after phase."""
        if self.selector is None:
            return (frozenset({"predictor"}),)
        if self.predictor_first:
            return (frozenset({"predictor"}), frozenset({"selector"}))
        return (frozenset({"predictor", "selector"}),)


@dataclass(frozen=True)
class Settings:
    """The settings trained as one program: every sparsity λ with every seed.

    A *world* is what settings share: one seed, one predictor. Setting number
    ``world * len(sparsities) + i`` has seed ``seeds[world]`` and λ ``sparsities[i]``.
    """

    sparsities: tuple[float, ...] = (0.0,)
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        for sparsity in self.sparsities:
            if not 0 <= sparsity < float("inf"):
                raise InputError(
                    f"sparsity (λ, the price in nats of showing everything) must be at least 0 "
                    f"but is {sparsity}."
                )
        if any(seed < 0 for seed in self.seeds):
            raise InputError(f"seeds must be at least 0 but are {self.seeds}.")
        if not self.sparsities or not self.seeds:
            raise InputError("at least one sparsity and one seed are needed, but none came.")
