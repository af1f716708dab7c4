"""Maskers: what a predictor is given when a mask hides part of a row.

A masker is a function of a row and a mask. It is written for one setting: ``x`` is
(batch, columns), ``mask`` is (batch, features), 1 = shown. Masks between 0 and 1 (the relaxed
draws of REBAR) blend shown and hidden linearly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unmasked.errors import InputError
from unmasked.shapes import Float


class Masker(ABC):
    """Hides the features that a mask leaves out."""

    @abstractmethod
    def features(self, columns: int) -> int:
        """Return the number of features that a mask over ``columns`` columns has.

        Parameters
        ----------
        columns : how many columns a row has, as networks read it.
        """

    @abstractmethod
    def width(self, columns: int) -> int:
        """Return the width of the masked input that a predictor takes for ``columns`` columns.

        Parameters
        ----------
        columns : how many columns a row has, as networks read it.
        """

    @abstractmethod
    def __call__(
        self, x: Float[Tensor, "batch columns"], mask: Float[Tensor, "batch features"]
    ) -> Float[Tensor, "batch width"]:
        """Return what the predictor may see, row by row: one row must not depend on another, as
        the rows of several settings come at once."""


@dataclass(frozen=True)
class Token(Masker):
    """Value × mask, plus the mask itself: ``[x ⊙ m, m]``. A hidden value cannot be mistaken.

    >>> Token()(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([[3., 0., 1., 0.]])
    """

    def features(self, columns: int) -> int:
        """Return ``columns``: each is a feature.

        Parameters
        ----------
        columns : how many columns a row has, as networks read it.
        """
        return columns

    def width(self, columns: int) -> int:
        """Return twice ``columns``: values and mask lie side by side.

        Parameters
        ----------
        columns : how many columns a row has, as networks read it.
        """
        return 2 * columns

    def __call__(
        self, x: Float[Tensor, "batch columns"], mask: Float[Tensor, "batch columns"]
    ) -> Float[Tensor, "batch width"]:
        return torch.cat([x * mask, mask], dim=-1)


@dataclass(frozen=True)
class Zero(Masker):
    """Value × mask, as in the authors' code: a hidden value looks like a zero.

    >>> Zero()(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([[3., 0.]])
    """

    def features(self, columns: int) -> int:
        """Return ``columns``: each is a feature.

        Parameters
        ----------
        columns : how many columns a row has, as networks read it.
        """
        return columns

    def width(self, columns: int) -> int:
        """Return ``columns``: the values alone.

        Parameters
        ----------
        columns : how many columns a row has, as networks read it.
        """
        return columns

    def __call__(
        self, x: Float[Tensor, "batch columns"], mask: Float[Tensor, "batch columns"]
    ) -> Float[Tensor, "batch columns"]:
        return x * mask


@dataclass(frozen=True)
class Groups(Masker):
    """Columns that are shown or hidden together, over any other masker.

    Parameters
    ----------
    index : ``index[c]`` is the feature that column ``c`` belongs to; features are numbered from 0
        without gaps.
    masker : hides the single columns: any but another `Groups`. None (default) is `Token`.

    Examples
    --------
    >>> Groups((0, 0, 1), Zero())(torch.ones(1, 3), torch.tensor([[1.0, 0.0]]))
    tensor([[1., 1., 0.]])
    """

    index: tuple[int, ...]
    masker: Masker = Token()

    def __init__(self, index: Sequence[int], masker: Masker | None = None) -> None:
        if isinstance(masker, Groups):
            raise InputError("a Groups masker cannot hold another; give one list of groups.")
        if not all(isinstance(i, int | np.integer) for i in index):
            raise InputError(f"group numbers must be whole numbers but came as {list(index)!r}.")
        object.__setattr__(self, "index", tuple(int(i) for i in index))
        object.__setattr__(self, "masker", Token() if masker is None else masker)
        if not self.index or set(self.index) != set(range(max(self.index) + 1)):
            raise InputError(
                "group numbers must be 0, 1, 2, … without gaps, one for each column, "
                f"but came as {sorted(set(self.index))}; renumber the groups."
            )

    def features(self, columns: int) -> int:
        """Return the number of groups.

        Parameters
        ----------
        columns : how many columns a row has; it must be the length of ``index``.
        """
        if columns != len(self.index):
            raise InputError(
                f"the groups describe {len(self.index)} columns but the data have {columns}; "
                "give one group number for each column."
            )
        return max(self.index) + 1

    def width(self, columns: int) -> int:
        """Return the width of the masker of the single columns.

        Parameters
        ----------
        columns : how many columns a row has, as networks read it.
        """
        return self.masker.width(columns)

    def __call__(
        self, x: Float[Tensor, "batch columns"], mask: Float[Tensor, "batch features"]
    ) -> Float[Tensor, "batch width"]:
        # (batch, features) -> (batch, columns): each column takes its group's mask
        return self.masker(x, mask.index_select(-1, self._index_on(mask.device)))

    def _index_on(self, device: torch.device) -> Tensor:
        """On the device, made once: a captured step cannot copy from the host."""
        cache: dict[torch.device, Tensor] = self.__dict__.setdefault("_on", {})
        if device not in cache:
            cache[device] = torch.tensor(self.index, device=device)
        return cache[device]
