"""``unmasked study analyse``: what readers preferred, how surely, and how far they agree.

The only part, beside `create`, that opens the key.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unmasked.errors import InputError
from unmasked.study.answers import Answer
from unmasked.study.database import Record, open_database
from unmasked.study.folder import Study, read_study
from unmasked.study.key import key_path, read_key
from unmasked.study.statistics import (
    Floats,
    Test,
    clustered_alpha,
    clustered_wilson,
    friedman,
    holm,
    interval,
    mean_w,
    mid_ranks,
    resampled,
    shared_ranks,
    signed_rank,
)

POOLED = "all readers"
PUBLISHED = {"REAL-X": (1.08, 0.04), "L2X": (3.57, 0.10), "INVASE": (2.85, 0.11)}
PUBLISHED |= {"BASE-X": (2.29, 0.09)}
"""Mean rank and standard error in the paper's Table 4 (2 readers, 50 cases)."""


@dataclass(frozen=True)
class Ratings:
    """Answers with their methods' names, (readers, cases, methods); NaN is missing.

    places : as readers gave them; only their order counts. sufficient : 1 yes, 0 no.
    """

    readers: tuple[str, ...]
    cases: tuple[str, ...]
    methods: tuple[str, ...]
    places: Floats
    sufficient: Floats
    positions: Floats | None = None
    """Where each option stood on the reader's page, from 0."""
    labels: tuple[str, ...] = ()
    remarks: tuple[tuple[str, str, str], ...] = ()
    """(reader, case, remark)."""
    changes: int = 0
    """How many answers were given again after they had been complete."""
    unfinished: tuple[str, ...] = ()
    """Readers who can still change their answers."""

    def of(self, reader: int) -> Ratings:
        """One reader's."""
        here = slice(reader, reader + 1)
        return replace(
            self,
            readers=(self.readers[reader],),
            places=self.places[here],
            sufficient=self.sufficient[here],
        )

    @property
    def ranked(self) -> Floats:
        """Places of complete rankings, all others NaN: an option is compared with all or none."""
        whole = ~np.isnan(self.places).any(-1, keepdims=True)
        return np.where(whole, self.places, np.nan)


@dataclass(frozen=True)
class MethodResult:
    """Ranks and judgements of sufficiency that readers gave one method, summarised."""

    method: str
    rankings: int
    mean_rank: float
    se: float
    """Over cases, each the mean of its readers: two readers of one image are not two images."""
    se_ratings: float
    """Over rankings, as if all were independent."""
    low: float
    high: float
    mean_mid_rank: float
    best: float
    """Share of rankings in which it is first, alone or tied."""
    judged: int
    sufficient: float
    sufficient_low: float
    sufficient_high: float


@dataclass(frozen=True)
class Pair:
    """Two methods compared: differences of mid-ranks, first minus second; below 0: first better."""

    first: str
    second: str
    difference: float
    low: float
    high: float
    better: float
    """Share of rankings in which the first is above the second."""
    tied: float
    statistic: float
    p: float
    p_holm: float


@dataclass(frozen=True)
class Scope:
    """All results of one reader, or of all."""

    name: str
    methods: tuple[MethodResult, ...]
    friedman: Test
    pairs: tuple[Pair, ...]
    missing_rankings: int
    missing_sufficiency: int
    expected: int


@dataclass(frozen=True)
class Analysis:
    """The whole analysis."""

    ratings: Ratings
    scopes: tuple[Scope, ...]
    """Readers in their order; all readers last, where there are several."""
    agreement: dict[str, Any]
    positions: dict[str, Any]

    @property
    def pooled(self) -> Scope:
        """All readers together."""
        return self.scopes[-1]


def read_ratings(folder: Path, key: Path | None = None, database: str | None = None) -> Ratings:
    """The answers of a study, unblinded; ``database`` is of PostgreSQL, if they are there."""
    study = read_study(folder)
    secret = read_key(key or key_path(folder), study)
    opened = open_database(study.where(database), study.digest, write=False)
    try:
        records = opened.records()
    finally:
        opened.close()
    return unblind(study, secret, records)


def unblind(study: Study, key: dict[str, Any], records: list[Record]) -> Ratings:
    """Answers in the order in which readers saw options -> in the order of methods."""
    methods = key["methods"]
    shape = (len(study.readers), len(key["cases"]), len(methods))
    places, sufficient = np.full(shape, np.nan), np.full(shape, np.nan)
    positions = np.full(shape, np.nan)
    last: dict[tuple[int, str], Answer] = {}
    changes = 0
    done = {record.reader for record in records if record.kind == "finish"}
    if any(record.kind == "close" for record in records):
        done |= set(range(len(study.readers)))
    for record in records:
        if record.kind != "answer" or record.reader is None or record.case is None:
            continue
        before = last.get((record.reader, record.case))
        given = Answer.parse(json.loads(record.content), study.options)
        changes += before is not None and before.complete and given != before
        last[record.reader, record.case] = given
    remarks = []
    for (reader, case), answer in last.items():
        shown = key["readers"][reader]["cases"][case]
        for i, method in enumerate(shown["methods"]):
            where = (reader, shown["case"], methods.index(method))
            place = answer.places[i]
            positions[where] = i
            places[where] = np.nan if place is None else place
            if answer.sufficient is not None:
                sufficient[where] = answer.sufficient[i]
        if answer.remark.strip():
            name = key["cases"][shown["case"]]["name"]
            remarks.append((study.readers[reader].name, name, answer.remark.strip()))
    return Ratings(
        readers=tuple(reader.name for reader in study.readers),
        cases=tuple(case["name"] for case in key["cases"]),
        methods=tuple(methods),
        places=places,
        sufficient=sufficient,
        positions=positions,
        labels=tuple(case["label"] for case in key["cases"]),
        remarks=tuple(remarks),
        changes=changes,
        unfinished=tuple(r.name for i, r in enumerate(study.readers) if i not in done),
    )


def analyse(ratings: Ratings, *, draws: int = 2000, seed: int = 0) -> Analysis:
    """Everything that the report shows; ``draws`` bootstrap samples and permutations."""
    if np.isnan(ratings.ranked).all():
        raise InputError(
            "an analysis needs at least one case whose options are all ranked but there is none "
            "yet; let readers answer first."
        )
    readers = [_scope(ratings.of(r), name, draws, seed) for r, name in enumerate(ratings.readers)]
    agreement: dict[str, Any] = {}
    if len(readers) > 1:
        readers.append(_scope(ratings, POOLED, draws, seed))
        agreement = _agreement(ratings, draws, seed)
    return Analysis(ratings, tuple(readers), agreement, _positions(ratings))


def _scope(ratings: Ratings, name: str, draws: int, seed: int) -> Scope:
    ranked = ratings.ranked
    whole = np.asarray(~np.isnan(ranked).any(-1))  # (readers, cases)
    shared = np.where(whole[..., None], shared_ranks(ranked), np.nan)
    middle = np.where(whole[..., None], mid_ranks(ranked), np.nan)
    used = whole.any(0)  # cases with a ranking
    expected = whole.size
    said = ~np.isnan(ratings.sufficient).any(-1)
    return Scope(
        name,
        tuple(
            _method(ratings, j, shared, middle, draws=draws, seed=seed)
            for j in range(len(ratings.methods))
        ),
        friedman(_means(middle)[used]),
        _pairs(ratings.methods, middle, ranked, draws=draws, seed=seed),
        missing_rankings=expected - int(whole.sum()),
        missing_sufficiency=expected - int(said.sum()),
        expected=expected,
    )


def _means(values: Floats) -> Floats:
    """(readers, cases, methods) -> (cases, methods): means over the readers who answered."""
    counts = (~np.isnan(values)).sum(0)
    sums = np.nansum(values, 0)
    result: Floats = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return result


def _method(
    ratings: Ratings, j: int, shared: Floats, middle: Floats, *, draws: int, seed: int
) -> MethodResult:
    ranks = shared[..., j]  # (readers, cases)
    given = ranks[~np.isnan(ranks)]
    per_case = _means(shared)[:, j]
    per_case = per_case[~np.isnan(per_case)]
    low, high = _interval(ranks, draws, seed)
    enough = ratings.sufficient[..., j]
    judged = enough[~np.isnan(enough)]
    said = (~np.isnan(enough)).sum(0).astype(float)  # (cases,): by how many readers
    rate_low, rate_high = clustered_wilson(np.nansum(enough, 0), said)
    return MethodResult(
        method=ratings.methods[j],
        rankings=len(given),
        mean_rank=_mean(given),
        se=_standard_error(per_case),
        se_ratings=_standard_error(given),
        low=low,
        high=high,
        mean_mid_rank=_mean(middle[..., j][~np.isnan(middle[..., j])]),
        best=_mean(given == 1),
        judged=len(judged),
        sufficient=_mean(judged),
        sufficient_low=rate_low,
        sufficient_high=rate_high,
    )


def _interval(values: Floats, draws: int, seed: int) -> tuple[float, float]:
    """The bootstrap interval, by cases, of the mean of (readers, cases)."""
    counts = (~np.isnan(values)).sum(0).astype(float)
    low, high = interval(resampled(np.nansum(values, 0), counts, draws, seed))
    return float(low), float(high)


def _pairs(
    methods: tuple[str, ...], middle: Floats, ranked: Floats, *, draws: int, seed: int
) -> tuple[Pair, ...]:
    means = _means(middle)
    means = means[~np.isnan(means).any(-1)]
    found = []
    for a, b in itertools.combinations(range(len(methods)), 2):
        test = signed_rank(means[:, a] - means[:, b])
        low, high = _interval(middle[..., a] - middle[..., b], draws, seed)
        both = (ranked[..., a] - ranked[..., b])[~np.isnan(ranked[..., a])]
        found.append(
            Pair(
                methods[a],
                methods[b],
                difference=_mean((middle[..., a] - middle[..., b])[~np.isnan(middle[..., a])]),
                low=low,
                high=high,
                better=_mean(both < 0),
                tied=_mean(both == 0),
                statistic=test.statistic,
                p=test.p,
                p_holm=float("nan"),
            )
        )
    corrected = holm(np.array([pair.p for pair in found]))
    return tuple(replace(pair, p_holm=float(p)) for pair, p in zip(found, corrected, strict=True))


def _agreement(ratings: Ratings, draws: int, seed: int) -> dict[str, Any]:
    """W of the rankings, α of the ranks and of sufficiency."""
    w = mean_w(ratings.ranked, draws=draws, seed=seed)
    whole = ~np.isnan(ratings.ranked)
    ranks = np.where(whole, shared_ranks(ratings.ranked), np.nan)
    result: dict[str, Any] = {
        "kendall_w": {"value": w.value, "low": w.low, "high": w.high, "cases": w.cases}
        | {"null": w.null, "null_95": w.null_high, "p": w.p}
    }
    for name, values, level in (
        ("alpha_rank", ranks, "ordinal"),
        ("alpha_sufficient", ratings.sufficient, "nominal"),
    ):
        value, low, high = clustered_alpha(values, level, draws=draws, seed=seed)  # type: ignore[arg-type]
        result[name] = {"value": value, "low": low, "high": high, "level": level}
    return result


def _positions(ratings: Ratings) -> dict[str, Any]:
    """Mean mid-rank of options by where they stood on the page: all alike, if that is no matter."""
    if ratings.positions is None:
        return {}
    whole = np.asarray(~np.isnan(ratings.ranked).any(-1))  # (readers, cases)
    order = np.argsort(ratings.positions[whole], axis=-1)  # (rankings, methods)
    by_place = np.take_along_axis(mid_ranks(ratings.ranked[whole]), order, -1)
    test = friedman(by_place)
    return {
        "mean_mid_rank": by_place.mean(0).tolist(),
        "se": [_standard_error(column) for column in by_place.T],
        "statistic": test.statistic,
        "p": test.p,
        "rankings": test.blocks,
    }


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _standard_error(values: Floats) -> float:
    """Of a mean: the sample's standard deviation / √n."""
    count = len(values)
    return float(np.std(values, ddof=1) / np.sqrt(count)) if count > 1 else float("nan")
