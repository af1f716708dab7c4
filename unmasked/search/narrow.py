"""Networks that know a part of a table's columns, as networks of whole rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from unmasked.search.values import SetPredictor
from unmasked.shapes import Float

_HIDDEN = -7.0  # the logit of a feature that nothing shows


@dataclass(frozen=True)
class Part:
    """Some of a table's features, with the columns of its matrix that belong to them.

    features : their numbers, ascending. columns : of the whole matrix. index : for each of these
    columns its feature's place in ``features``.
    """

    features: tuple[int, ...]
    columns: tuple[int, ...]
    index: tuple[int, ...]

    @classmethod
    def of(cls, features: Sequence[int], index: Sequence[int]) -> Part:
        """Of a matrix whose column c belongs to feature ``index[c]``."""
        kept = tuple(sorted(features))
        place = {feature: i for i, feature in enumerate(kept)}
        columns = tuple(c for c, feature in enumerate(index) if feature in place)
        return cls(kept, columns, tuple(place[index[c]] for c in columns))

    @property
    def plain(self) -> bool:
        """Whether every column is a feature of its own, in order."""
        return self.index == tuple(range(len(self.index)))

    def numeric(self, whole: Mapping[int, tuple[float, ...]]) -> dict[int, tuple[float, ...]]:
        """{column of the part: edges of its bins}, from the same of the whole matrix."""
        return {i: whole[c] for i, c in enumerate(self.columns) if c in whole}


class PartSelector(nn.Module):
    """A selector of some features, (batch, columns) -> logits of all; the others stay hidden."""

    def __init__(self, selector: nn.Module, part: Part, features: int) -> None:
        super().__init__()
        self.selector = selector
        self.features = features
        self.columns, self.shown = list(part.columns), list(part.features)

    def forward(self, x: Float[Tensor, "batch columns"]) -> Float[Tensor, "batch features"]:
        """The part's logits in their places."""
        logits = x.new_full((len(x), self.features), _HIDDEN)
        logits[:, self.shown] = self.selector(x[:, self.columns])
        return logits


class PartPredictor(nn.Module):
    """A predictor from some columns, told all: [x · m, m] of the whole row."""

    def __init__(self, predictor: SetPredictor, part: Part, columns: int) -> None:
        super().__init__()
        self.predictor = predictor
        self.part = part
        self.inputs = [*part.columns, *(columns + c for c in part.columns)]

    def forward(self, x: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch classes"]:
        """Logits from what is shown of the part."""
        logits: Tensor = self.predictor(x[:, self.inputs])
        return logits
