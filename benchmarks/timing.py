"""Seconds for a row of methods that take turns, so that other programs disturb all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Timed:
    """An explainer of rows: (rows, features) in, (rows, features) out.

    rows : how many are explained, from the first. parts : whether a round explains a part of them,
    for slow ones; else each round explains all, ``repeats`` times. After `take_turns`, values :
    (rows, features), seconds and processor : for a row, medians over rounds and repeats.
    """

    explain: Callable[[NDArray[Any]], NDArray[Any]]
    rows: int
    parts: bool = True
    repeats: int = 1
    found: list[NDArray[Any]] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)

    def round(self, x: NDArray[Any], number: int, rounds: int) -> None:
        """Explain a part, or everything, and remember how long it took."""
        own = x[: self.rows]
        part = np.array_split(own, rounds)[number] if self.parts else own
        for _ in range(self.repeats):
            wall, cpu = time.perf_counter(), time.process_time()
            found = self.explain(part)
            self.walls.append((time.perf_counter() - wall) / len(part))
            self.busy.append((time.process_time() - cpu) / len(part))
        if self.parts or not self.found:
            self.found.append(found)

    @property
    def values(self) -> NDArray[Any]:
        return np.concatenate(self.found)

    @property
    def seconds(self) -> float:
        return statistics.median(self.walls)

    @property
    def processor(self) -> float:
        return statistics.median(self.busy)


def take_turns(methods: Iterable[Timed], x: NDArray[Any], rounds: int) -> None:
    """All methods, one after the other, ``rounds`` times."""
    methods = list(methods)
    for number in range(rounds):
        for method in methods:
            method.round(x, number, rounds)
