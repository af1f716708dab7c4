"""The tables of `benchmarks/tables.py`: where they come from, how they are read and split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, train_test_split

RARE = 20  # classes of fewer rows are left out
JUDGED = 2500  # test rows at most


@dataclass(frozen=True)
class Source:
    """A Parquet file and what of it is explained.

    beside : a file with the same rows in the same order, whose columns are added.
    group : a column whose rows belong together. against : a class, against all others.
    within : the column "late" says whether "event" came within so many days ("time"); rows that
        were watched for less are left out.
    """

    file: str
    target: str
    beside: str | None = None
    group: str | None = None
    drop: tuple[str, ...] = ()
    against: str | None = None
    within: float | None = None


SOURCES = {
    "adult": Source("adult", "income"),
    "arrhythmia": Source("arrhythmia", "rhythm", against="normal"),
    "attrition": Source("attrition", "Attrition"),
    "bioresponse": Source("bioresponse", "active"),
    "bow": Source("bow", "source"),
    "brca100": Source(
        "brca100", "subtype", "brca100_patient", group="patient", drop=("first_of_pair",)
    ),
    "caravan": Source("caravan", "Purchase"),
    "cells": Source("cells", "class"),
    "churn": Source("churn", "churn"),
    "compas": Source("compas", "two_year_recid"),
    "covid": Source("covid", "result", group="subject_id"),
    "credit": Source("credit", "Status"),
    "credit_default": Source("credit_default", "default_next_month"),
    "flchain": Source("flchain", "late", drop=("time", "event"), within=5 * 365.25),
    "flights": Source("flights", "late"),
    "grants": Source("grants", "class"),
    "hpc": Source("hpc", "class"),
    "leaf": Source("leaf", "species"),
    "lending": Source("lending", "Class"),
    "leukemia": Source("leukemia", "leukemia"),
    "loans": Source("loans", "grade"),
    "spam": Source("spam", "spam"),
    "support2": Source("support2", "hospdead", "support2_hospdead", drop=("time", "event")),
    "tissue": Source("tissue", "y"),
}
TOO_FEW = ("leukemia", "tissue")
"""Tables of so few rows that half of them teaches little; only where they are asked for."""


@dataclass(frozen=True)
class Table:
    """Rows, their classes 0 … n − 1, and which of them belong together."""

    name: str
    X: pd.DataFrame
    y: NDArray[np.int64]
    groups: NDArray[Any] | None
    rows_in_file: int


@dataclass(frozen=True)
class Parts:
    """Row numbers: what the explainer learns from, what the judge learns from, what is judged."""

    explainer: NDArray[np.int64]
    judge: NDArray[np.int64]
    test: NDArray[np.int64]


def find_file(folders: Sequence[Path], name: str) -> Path:
    """The Parquet file of that name in the first folder that has it."""
    for folder in folders:
        if (folder / f"{name}.parquet").is_file():
            return folder / f"{name}.parquet"
    places = ", ".join(str(folder) for folder in folders)
    raise SystemExit(f"{name}.parquet is expected in one of {places}; pass its folder by --tables.")


def read(name: str, folders: Sequence[Path], most: int, seed: int) -> Table:
    """A table of at most so many rows, which are drawn by the seed."""
    source = SOURCES[name]
    frame = pd.read_parquet(find_file(folders, source.file))
    if source.beside:
        more = pd.read_parquet(find_file(folders, source.beside))
        frame = pd.concat([frame, more], axis=1)
    rows = len(frame)
    frame = prepared(frame, source)
    if len(frame) > most:
        frame = frame.sample(most, random_state=seed).reset_index(drop=True)
    labels = frame[source.target].astype(str)
    frequent = labels.map(labels.value_counts()) >= RARE
    frame, labels = frame[frequent].reset_index(drop=True), labels[frequent]
    groups = frame[source.group].to_numpy() if source.group else None
    gone = [source.target, *source.drop, *([source.group] if source.group else [])]
    _, y = np.unique(labels, return_inverse=True)
    return Table(name, frame.drop(columns=gone), y, groups, rows)


def prepared(frame: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Rows whose class is known, with the target as it is explained."""
    if source.within is not None:
        known = (frame["event"] == 1) | (frame["time"] > source.within)
        frame = frame[known & (frame["time"] > 0)]
        frame = frame.assign(late=frame["time"] <= source.within)
    if source.against is not None:
        frame = frame.assign(**{source.target: frame[source.target] == source.against})
    return frame.reset_index(drop=True)


def split(table: Table, seed: int) -> Parts:
    """A quarter to test, the rest halved; stratified, and groups are never parted."""
    rest, test = _parted(table, np.arange(len(table.y)), 4, seed)
    explainer, judge = _parted(table, rest, 2, seed)
    return Parts(explainer, judge, test[:JUDGED])


def halved(table: Table, parts: Parts, seed: int) -> NDArray[np.int64]:
    """Another half of the rows that are not tested, for an explainer."""
    return _parted(table, np.sort(np.concatenate([parts.explainer, parts.judge])), 2, seed)[0]


def _parted(
    table: Table, rows: NDArray[np.int64], parts: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows without one of so many parts, and that part; both in random order."""
    random = np.random.default_rng(seed)
    y = table.y[rows]
    if table.groups is None:
        big, small = train_test_split(rows, test_size=1 / parts, stratify=y, random_state=seed)
    else:
        folds = StratifiedGroupKFold(parts, shuffle=True, random_state=seed)
        first, second = next(folds.split(rows, y, table.groups[rows]))
        big, small = rows[first], rows[second]
    return random.permutation(big), random.permutation(small)


def codes(X: pd.DataFrame, table: pd.DataFrame | None = None) -> NDArray[np.float64]:
    """Numbers as they are and categories as their places in the alphabet; NaN where missing.

    table : where X is a part of it, so that a category has the same code in every part.
    """
    whole = X if table is None else table
    return np.column_stack([_coded(X[name], whole[name]) for name in X.columns])


def is_text(column: pd.Series[Any]) -> bool:
    """Whether a column holds categories."""
    return not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)


def _coded(column: pd.Series[Any], whole: pd.Series[Any]) -> NDArray[np.float64]:
    if not is_text(whole):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    known = whole.astype("string").astype("category").cat.categories
    places = pd.Categorical(column.astype("string"), categories=known).codes.astype(np.float64)
    return np.where(places < 0, np.nan, places)
