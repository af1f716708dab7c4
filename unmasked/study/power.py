"""Simulate how many cases and readers a study needs; make a small one to try.

::

    utility of method j in case i for reader r  =  d_j + √ρ · a_ij + √(1 − ρ) · e_ijr

with independent normal a and e. One method is better, all others are equally good: its d is
√2 · Φ⁻¹(effect), theirs 0. So ``effect`` is the share of cases in which a reader, made to choose,
puts the best method above a given other one: P(u_best > u_other). The best method's mean rank is
then 1 + (k − 1)(1 − effect) of k. ρ is the correlation of two readers' utilities in a case.

Ties: an option that is within a threshold of the next better one shares its place. The threshold
is such that a reader ties two equally good options, if there were no others, with the probability
``ties``.

A study *succeeds* when the best method is better than every other one by the tests of the analysis:
Wilcoxon's over cases, on means over readers, p < ``level`` after Holm's correction over all pairs.

The methods are made up, of known quality: cells at all four edges that decide the cardiothoracic
ratio, only those on the left, cells that miss the edges, and random cells.
"""

from __future__ import annotations

import csv
import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from unmasked.datasets.phantom import Phantom, phantom, truth_of_superpixels
from unmasked.errors import InputError, SavedError
from unmasked.plots.overlays import png, to_rgb
from unmasked.study.create import Created, Wording, create_study
from unmasked.study.folder import read_manifest, read_study
from unmasked.study.statistics import Floats, friedman_statistic, holm, mid_ranks, signed_rank_p

CASES = (5, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 300, 400)
_AT_ONCE = 2_000_000  # numbers


@dataclass(frozen=True)
class Design:
    """Assumptions about methods and readers, and the level of the tests, for simulated studies."""

    effect: float
    """The share of cases in which a reader puts the best method above a given other one."""
    methods: int = 4
    agreement: float = 0.5
    """The correlation of two readers' utilities in a case."""
    ties: float = 0.1
    """The share of pairs of equally good options that a reader ties."""
    level: float = 0.05

    def __post_init__(self) -> None:
        if not 0.5 <= self.effect < 1:
            raise InputError(
                "--effect must be the share of cases in which a reader prefers the best method to "
                f"another, from 0.5 (no effect) to below 1, but is {self.effect:g}."
            )
        if not 2 <= self.methods <= 8:
            raise InputError(f"--methods must be from 2 to 8 but is {self.methods}.")
        for name in ("agreement", "ties"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise InputError(f"--{name} must be from 0 to below 1 but is {value:g}.")
        if not 0 < self.level < 0.5:
            raise InputError(f"--level must be above 0 and below 0.5 but is {self.level:g}.")

    @property
    def mean_ranks(self) -> tuple[float, float]:
        """The best method's mean rank, and each other one's, without ties.

        >>> Design(effect=0.7).mean_ranks
        (1.9, 2.7)
        """
        best = 1 + (self.methods - 1) * (1 - self.effect)
        others = (self.methods * (self.methods + 1) / 2 - best) / (self.methods - 1)
        return round(best, 12), round(others, 12)


@dataclass(frozen=True)
class Power:
    """Share of simulated studies of one size that succeed, and its standard error."""

    readers: int
    cases: int
    power: float
    se: float
    friedman: float
    """How often Friedman's test finds any difference."""


def simulate(
    design: Design, cases: int, readers: int, studies: int, rng: np.random.Generator
) -> Floats:
    """Places (studies, readers, cases, methods) that simulated readers give."""
    shape = (studies, readers, cases, design.methods)
    seen = rng.standard_normal((studies, 1, cases, design.methods))
    own = rng.standard_normal(shape)
    utility = np.sqrt(design.agreement) * seen + np.sqrt(1 - design.agreement) * own
    utility[..., 0] += np.sqrt(2) * norm.ppf(design.effect)
    return with_ties(utility, np.sqrt(2) * norm.ppf(0.5 + design.ties / 2))


def with_ties(utility: Floats, threshold: float) -> Floats:
    """Places along the last axis, best first: an option that is within ``threshold`` of the next
    better one shares its place.

    >>> with_ties(np.array([3.0, 1.0, 2.9, 0.0]), 0.5)
    array([1., 2., 1., 3.])
    """
    order = np.argsort(-utility, axis=-1)
    ordered = np.take_along_axis(utility, order, -1)
    steps = (ordered[..., :-1] - ordered[..., 1:]) >= threshold
    first = np.ones((*utility.shape[:-1], 1))
    places = np.concatenate([first, 1 + np.cumsum(steps, -1)], -1)
    result = np.empty_like(utility)
    np.put_along_axis(result, order, places, -1)
    return result


def power_of(
    design: Design, cases: int, readers: int, *, studies: int = 1000, seed: int = 0
) -> Power:
    """Simulate ``studies`` studies of this size; return the share that succeeds."""
    rng = np.random.default_rng([seed, cases, readers])
    most = max(1, _AT_ONCE // (cases * readers * design.methods))
    succeeded, differ = 0, 0
    for start in range(0, studies, most):
        count = min(most, studies - start)
        places = simulate(design, cases, readers, count, rng)
        means = mid_ranks(places).mean(1)  # (studies, cases, methods)
        succeeded += int(first_is_best(means, design.level).sum())
        tested = chi2.sf(friedman_statistic(means), design.methods - 1)
        differ += int((tested < design.level).sum())
    share = succeeded / studies
    error = float(np.sqrt(share * (1 - share) / studies))
    return Power(readers, cases, share, error, differ / studies)


def first_is_best(means: Floats, level: float) -> NDArray[np.bool_]:
    """Mark each study that succeeds, by readers' mean mid-ranks (studies, cases, methods)."""
    pairs = list(itertools.combinations(range(means.shape[-1]), 2))
    with_first = [i for i, (a, _) in enumerate(pairs) if a == 0]
    p = np.stack([signed_rank_p(means[..., a] - means[..., b]) for a, b in pairs], -1)
    better = means[..., :1].mean(-2) < means[..., 1:].mean(-2)
    result: NDArray[np.bool_] = ((holm(p)[:, with_first] < level) & better).all(-1)
    return result


def power_table(
    design: Design,
    readers: Sequence[int],
    *,
    cases: Sequence[int] = CASES,
    wanted: float = 0.8,
    studies: int = 1000,
    seed: int = 0,
) -> list[Power]:
    """Power for each number of readers, up to the first number of cases that has what is wanted."""
    rows = []
    for number in readers:
        for size in sorted(cases):
            rows.append(power_of(design, size, number, studies=studies, seed=seed))
            if rows[-1].power >= wanted:
                break
    return rows


def needed(rows: Sequence[Power], wanted: float) -> dict[int, int | None]:
    """{readers: fewest cases with the wanted power, or None if no number tried suffices}."""
    result: dict[int, int | None] = {}
    for row in rows:
        result.setdefault(row.readers, None)
        if row.power >= wanted and result[row.readers] is None:
            result[row.readers] = row.cases
    return result


METHODS = ("all edges", "left edges", "missed edges", "random")
"""From best to worst."""
_GRID = 16
WORDING = Wording(
    title="Is the heart enlarged? Which explanation shows it?",
    question=(
        "Rank the options: which selection shows best what you need to judge whether the heart is "
        "enlarged? Options that are equally good may share a place."
    ),
    sufficient="Sufficient to judge the heart's size",
)


def write_phantoms(folder: Path, cases: int, size: int = 256, seed: int = 0) -> Path:
    """Films and masks as files, with the manifest that lists them."""
    films = phantom(cases, size=size, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for i, masks in enumerate(selections(films, seed)):
        image = f"film{i}.png"
        values = to_rgb(films.x[i], limits=(0, 1))
        (folder / image).write_bytes(png(values))
        for j, (method, mask) in enumerate(zip(METHODS, masks, strict=True)):
            name = f"film{i}-{j}.png"
            (folder / name).write_bytes(png(np.repeat(255 * mask[..., None], 3, 2).astype("u1")))
            lines.append([image, method, name, f"film {i}", int(films.y[i])])
    manifest = folder / "manifest.csv"
    with open(manifest, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["image", "method", "mask", "case", "label"], *lines])
    return manifest


def selections(films: Phantom, seed: int) -> NDArray[np.bool_]:
    """(films, methods, lines, columns): what each made-up method selects."""
    rng = np.random.default_rng([seed, 7])
    truth = truth_of_superpixels(films.truth, _GRID).reshape(-1, _GRID, _GRID)
    middle = (films.thorax.mean(1) * _GRID / films.x.shape[-1]).astype(int)  # (films,)
    left = truth & (np.arange(_GRID) < middle[:, None])[:, None, :]
    missed = np.roll(truth, -4, axis=1) & ~truth
    random = rng.permuted(truth.reshape(len(truth), -1), axis=1).reshape(truth.shape)
    return np.stack([truth, left, missed, random], axis=1)


def check_demo(folder: Path) -> None:
    """Refuse a folder that is not an earlier demonstration's: its links would stop working."""
    try:
        found = read_study(folder).title == WORDING.title
    except SavedError:
        found = False
    if not found:
        raise InputError(
            f"--out must be a new folder or that of an earlier demonstration but {folder} is "
            "neither; choose another."
        )


def create_demo(
    folder: Path, *, cases: int = 8, seed: int = 0, secret: bytes | None = None
) -> Created:
    """A study of phantom films with two readers."""
    with tempfile.TemporaryDirectory() as scratch:
        manifest = write_phantoms(Path(scratch), cases, seed=seed)
        return create_study(
            folder,
            read_manifest(manifest),
            ["Reader 1", "Reader 2"],
            seed=seed,
            wording=WORDING,
            secret=secret,
        )
