"""A method as data: learners with a source of masks, and a selector that climbs a value.

=============  ============================  =================================
method         the predictor learns from     the selector
=============  ============================  =================================
REAL-X         random masks                  Bernoulli, REBAR
REAL-X-STEP    the same, finished first      Bernoulli, REBAR
REAL-X,        random masks, and the         Bernoulli, REBAR
exchanged      selector's of other rows;
               with predictor_first random
               ones alone before that
BASE-X         the selector's own masks      Bernoulli, REBAR
INVASE         the selector's own masks      Bernoulli, score function less
                                             a baseline that sees everything
L2X            the selector's relaxed masks  max of k Concrete draws
EVAL-X         random masks
FULL           everything
ROAR           masks given with the rows
one subset     the digits of its number
=============  ============================  =================================

`unmasked.training.methods` composes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor, nn

from unmasked.errors import InputError
from unmasked.masks.distributions import MaskLaw
from unmasked.masks.maskers import Masker
from unmasked.masks.samplers import ConcreteTopK, Sampler
from unmasked.networks.tables import Factory, SetMLP
from unmasked.shapes import Float

Network = nn.Module | Factory


@dataclass(frozen=True)
class Data:
    """Rows to learn from: inputs and class probabilities (one-hot rows where y is a label).

    masks : (explanations, rows, features), only for learners whose masks are given.
    """

    x: Float[Tensor, "rows columns"]
    target: Float[Tensor, "rows classes"]
    masks: Tensor | None = None

    @property
    def rows(self) -> int:
        return self.x.shape[0]


@dataclass(frozen=True)
class Source:
    """Origin of the masks that a learner learns from.

    A source that is the same for every setting of a seed (``shared``) makes one network for all
    of them; otherwise each setting has a network of its own.
    """

    shared = True


@dataclass(frozen=True)
class Everything(Source):
    """Every feature is shown."""


@dataclass(frozen=True)
class Random(Source):
    """Masks from a law that knows nothing about the row."""

    law: MaskLaw


@dataclass(frozen=True)
class Selected(Source):
    """The selector's own draws: the predictor can learn their code."""

    shared = False


@dataclass(frozen=True)
class Exchanged(Source):
    """For half of the rows what the selector draws for *another* row, else masks from a law.

    Neither knows the row that it is put on, so no code can be learned: at its best the predictor
    says p(y | x_s) for every mask s that comes, as it does on random masks, but it has learned
    where the selector's masks lie. The law keeps it to masks that no selector draws yet. Selectors
    with BatchNorm are refused: what they draw for one row knows the others of its batch.
    """

    law: MaskLaw
    shared = False


@dataclass(frozen=True)
class Given(Source):
    """Masks that came with the rows (`Data.masks`), one explanation for each setting."""

    shared = False


@dataclass(frozen=True)
class Subset(Source):
    """One fixed subset for each setting: feature j is shown when bit j of the level is set."""

    shared = False


@dataclass(frozen=True)
class Learner:
    """A network from what is shown to class logits, and where its masks come from."""

    network: Network
    source: Source


@dataclass(frozen=True)
class Selector:
    """A network from a row to one logit per feature, and how its masks are drawn.

    It maximises E[log q(y | x_s)], q the learner "predictor", less the sampler's cost.
    ``baseline`` names a learner whose log q(y | x) is subtracted where that only lowers the
    gradient's variance.
    """

    network: Network
    sampler: Sampler
    baseline: str | None = None


@dataclass(frozen=True)
class Method:
    """Recipe of what is trained: learners by name (one is "predictor") and a selector, or none.

    predictor_first : finish and freeze the predictor before the selector starts ("STEP");
        otherwise all networks move in every step (Algorithm 1 of the paper). A predictor that is
        to meet exchanged masks learns from random ones first, and goes on beside the selector.
    """

    masker: Masker
    learners: Mapping[str, Learner]
    selector: Selector | None = None
    predictor_first: bool = False

    def __post_init__(self) -> None:
        baseline = None if self.selector is None else self.selector.baseline
        if baseline is not None and (baseline not in self.learners or self.predictor_first):
            raise InputError(
                f"the baseline must be a learner trained beside the selector, one of "
                f"{', '.join(self.learners)}, but is {baseline!r}."
            )
        if self.exchanges and self.selector is None:
            raise InputError(
                "masks are exchanged between the rows of a selector, but there is none."
            )
        source = self.learners["predictor"].source
        if self.predictor_first and not (source.shared or isinstance(source, Exchanged)):
            raise InputError(
                "a predictor that learns from the selector's masks cannot be finished before the "
                "selector; leave out predictor_first."
            )

    @property
    def practice(self) -> Method | None:
        """Return the method of a predictor on random masks before exchanged ones; None without."""
        own = self.learners["predictor"]
        if not self.predictor_first or not isinstance(own.source, Exchanged):
            return None
        return Method(self.masker, {"predictor": replace(own, source=Random(own.source.law))})

    @property
    def phases(self) -> tuple[frozenset[str], ...]:
        """The networks that move, phase after phase (of a ``practice``, `fit` makes its own)."""
        learners = frozenset(self.learners)
        if self.selector is None:
            return (learners,)
        if self.predictor_first and not self.exchanges:
            return (learners, frozenset({"selector"}))
        return (learners | {"selector"},)

    @property
    def exchanges(self) -> bool:
        """Return True if a learner is shown rows by masks drawn for other rows of the batch."""
        return any(isinstance(own.source, Exchanged) for own in self.learners.values())

    @property
    def joint(self) -> bool:
        """Return True if the predictor learns from the selector's own masks."""
        return isinstance(self.learners["predictor"].source, Selected)

    def shared(self, name: str) -> bool:
        """Return True if one learner of this name serves all settings of a world."""
        return name in self.learners and self.learners[name].source.shared


RESTART_SHIFT = 15_485_863
"""From the seed of one restart to the next."""


def restart_seeds(seed: int, restarts: int) -> tuple[int, ...]:
    """The seeds of the same setting trained several times.

    >>> restart_seeds(3, 2)
    (3, 15485866)
    """
    return tuple(seed + RESTART_SHIFT * i for i in range(restarts))


@dataclass(frozen=True)
class Settings:
    """The settings trained as one program: every level (λ, or k) in every world.

    A *world* is what settings share: one seed, one data set, one predictor where it does not
    depend on the level. Setting number ``world * len(levels) + i`` has seed ``seeds[world]`` and
    level ``levels[i]``.
    """

    levels: tuple[float, ...] = (0.0,)
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        for level in self.levels:
            if not 0 <= level < float("inf"):
                raise InputError(
                    f"sparsity (λ, the price in nats of showing everything) must be at least 0 "
                    f"but is {level}."
                )
        if any(seed < 0 for seed in self.seeds):
            raise InputError(f"seeds must be at least 0 but are {self.seeds}.")
        if not self.levels or not self.seeds:
            raise InputError("at least one sparsity and one seed are needed, but none came.")


def takes_given_masks(method: Method) -> bool:
    """Return True if a learner learns from masks that come with the rows."""
    return any(isinstance(own.source, Given) for own in method.learners.values())


def check_method(method: Method, settings: Settings, columns: int, explanations: int) -> None:
    """Refuse what a method cannot be trained with: levels, masks, networks."""
    levels = settings.levels
    given = takes_given_masks(method)
    if given and 0 < explanations < len(levels):
        raise InputError(
            f"one explanation for each of the {len(levels)} levels is needed, but "
            f"{explanations} came."
        )
    sampler = None if method.selector is None else method.selector.sampler
    if isinstance(sampler, ConcreteTopK) and max(levels) > sampler.largest:
        raise InputError(
            f"k must be at most the sampler's largest, {sampler.largest}, but is {max(levels):g}."
        )
    width = method.masker.width(columns)
    for name, own in [*method.learners.items(), ("selector", method.selector)]:
        network = getattr(own, "network", None)
        inner = getattr(network, "network", network)  # a wrapper for images checks predictors
        if (name == "selector" and isinstance(inner, SetMLP)) or (
            isinstance(network, SetMLP) and width != 2 * columns
        ):
            raise InputError(
                "SetMLP is a predictor that takes values and mask side by side, but came as "
                f"the {name} with {method.masker}; use it with masker=Token()."
            )
