"""`audit`: do explanations show what a prediction rests on, or do they give the answer away?"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.auditing.evaluators import Model
from unmasked.auditing.explanations import Given, read_all
from unmasked.auditing.matching import Audited, Cut, Matched, cut, match
from unmasked.auditing.model import (
    AuditTable,
    Learning,
    check_classes,
    check_learning,
    explained,
    named_frame,
    read_rows,
    read_training,
)
from unmasked.auditing.result import AuditResult
from unmasked.auditing.run import Work
from unmasked.auditing.settings import AuditSettings
from unmasked.auditing.store import Store
from unmasked.checks import is_whole
from unmasked.errors import InputError
from unmasked.inputs.targets import as_array, model_targets
from unmasked.io.tables import as_times, not_before
from unmasked.training.progress import Show


def audit(
    explanations: Any,
    X: Any,
    y: Any = None,
    *,
    top: Any = None,
    fraction: Any = None,
    of_class: Any = None,
    signed: bool = False,
    model: Any = None,
    groups: Any = None,
    times: Any = None,
    since: Any = None,
    ids: Any = None,
    train: Any = None,
    rest: Literal["train", "drop"] | None = None,
    settings: AuditSettings | None = None,
    checkpoint: str | Path | None = None,
    progress: Show = "auto",
    random_state: int = 0,
    id_column: str | None = None,
) -> AuditResult:
    """Audit explanations of the rows of X, whoever made them.

    **Only rows count that neither the explainer nor the model it explains was trained on.**
    Evaluators are trained on the audited rows themselves, by cross-fitting, or on ``train``.

    Parameters
    ----------
    explanations : one explanation, a list, or a dictionary of names. Each is 0/1 masks or
        attributions (rows, features): an array, a tensor, a DataFrame or a file (.csv, .tsv,
        .parquet, .npy, .npz). An `Explanation`, a ``shap.Explanation``, a list of LIME's and what
        Captum returns are taken, too. Rows match by label where both sides have labels, else by
        order; columns by name where both have names, else by position.
    X, y : the table and the labels. Without y, the model's likeliest classes are the labels.
    top, fraction : where attributions are cut: the k largest of each row, or that fraction of the
        features; several make a sweep.
    of_class : which class's attributions, where they came for each class.
    signed : rank attributions by value instead of by absolute value; False by default.
    model : the explained model (``predict_proba`` or callable): whether the choice of features
        gives *its prediction* away is tested as well, and there are post-hoc figures.
    groups : (rows,) what belongs together, such as a patient's rows; kept in one fold.
    times : (rows,) numbers or dates, instead of groups: folds are periods, and rows near in time
        are resampled together.
    since : audit only rows of this time or later; the evaluators learn from the earlier ones.
    ids : (rows,) labels of the rows, by default the index of a DataFrame.
    train : (X, y) rows for the evaluators to learn from, instead of cross-fitting.
    rest : what to do with rows that are not audited: "train" lets the evaluators learn from them,
        "drop" leaves them out. By default rows from ``since`` on that an explanation lacks are an
        error, and earlier ones are learned from.
    settings : everything else, see `AuditSettings`.
    checkpoint : a folder where finished pieces are kept, so that a stopped audit goes on.
    progress : True for a bar, False for none, or "auto" (default): a bar in terminals and
        notebooks.
    random_state : everything random follows from it; 0 by default.
    id_column : the column that labels rows in files and DataFrames of masks.

    Examples
    --------
    >>> import numpy as np
    >>> from unmasked.auditing import AuditSettings
    >>> random = np.random.default_rng(0)
    >>> x = random.normal(size=(300, 4))
    >>> y = (x[:, 0] > 0).astype(int)
    >>> quick = AuditSettings(learner="boosting", bootstrap_draws=50, sample=20)
    >>> found = audit({"code": np.eye(4, dtype=bool)[1 + y]}, x, y, settings=quick)
    >>> found["code"].verdict
    'encodes'
    """
    work = plan(
        explanations, X, y, top=top, fraction=fraction, of_class=of_class, signed=signed,
        model=model, groups=groups, times=times, since=since, ids=ids, train=train, rest=rest,
        settings=settings, checkpoint=checkpoint, random_state=random_state, id_column=id_column,
    )  # fmt: skip
    return work.run(progress)


def plan(
    explanations: Any,
    X: Any,
    y: Any,
    *,
    top: Any,
    fraction: Any,
    of_class: Any,
    signed: bool,
    model: Any,
    groups: Any,
    times: Any,
    since: Any,
    ids: Any,
    train: Any,
    rest: str | None,
    settings: AuditSettings | None,
    checkpoint: str | Path | None,
    random_state: Any,
    id_column: str | None,
) -> Work:
    """Read and check everything that `audit` is given, before any long work."""
    options = AuditSettings() if settings is None else settings
    if not isinstance(options, AuditSettings):
        raise InputError(f"settings must be AuditSettings but is {type(options).__name__}.")
    if rest not in (None, "train", "drop"):
        raise InputError(f"rest must be 'train', 'drop' or None but is {rest!r}.")
    seed = _seed(random_state)
    frame, named = named_frame(X)
    model = explained(model, list(frame.columns), named)
    table = read_rows(X, y, model=model, ids=ids, groups=groups, times=times)
    later = _later(times, since)
    columns = list(table.frame.columns)
    given = read_all(explanations, columns, id_column=id_column)
    matched = [_matched(one, table, later, some=rest is not None) for one in given]
    where = Cut.read(top, fraction, len(columns))
    table, spare, matched, notes = _audited_rows(
        table, matched, rest if since is None or rest == "drop" else "train", options, seed, since,
        trained=train is not None,
    )  # fmt: skip
    learning = None if train is None else read_training(train, table, model if y is None else None)
    if learning is None and spare is not None and rest != "drop":
        learning = Learning(spare.frame, spare.label, spare.times)
    if learning is not None:
        check_learning(learning)
    audited = [
        one for m in matched for one in cut(m, where, table.classes, of_class, signed=signed)
    ]
    check_classes(table, options.folds, options.encoding_folds)
    asked = None if model is None else Model(model, table.X, table.classes)
    both = y is not None and model is not None
    predicted = model_targets(model, table.X, len(table)).likeliest if both else None
    store = _store(checkpoint, table, audited, options, seed, learning, predicted)
    return Work(table, audited, options, seed, learning, store, asked, notes, y is None, predicted)


def _later(times: Any, since: Any) -> NDArray[np.int64] | None:
    """Positions of the rows that are to be audited, (rows,); None for all."""
    if since is None:
        return None
    if times is None:
        raise InputError("since says from which time on rows are audited, but no times came.")
    series = times if isinstance(times, pd.Series) else pd.Series(as_array(times))
    found = np.flatnonzero(not_before(as_times(series, "times"), since, "since (--since)"))
    if not len(found):
        raise InputError(
            f"no row is of {since} or later, so nothing is left to audit; give an earlier since."
        )
    return found


def _matched(
    one: Given, table: AuditTable, later: NDArray[np.int64] | None, *, some: bool
) -> Matched:
    """An explanation of all rows, or of the later ones, put into their order."""
    columns = list(table.frame.columns)
    if later is None:
        return match(one, columns, table.named, table.ids, some=some)
    rows = len(one.values)
    if rows != len(table) and (rows == len(later) or one.ids is None):
        found = match(one, columns, table.named, table.ids[later], some=some)
        return replace(found, rows=later[found.rows])
    found = match(one, columns, table.named, table.ids, some=rows != len(table))
    keep = np.flatnonzero(np.isin(found.rows, later))
    if len(keep) < len(later) and not some:
        raise InputError(
            f"explanation {one.name!r} has {len(keep):,} of the {len(later):,} rows to audit; give "
            "all of them, or rest='train' or rest='drop' (--rest) for those without masks."
        )
    return found.take(keep, found.rows[keep])


def _audited_rows(
    table: AuditTable,
    matched: list[Matched],
    rest: str | None,
    options: AuditSettings,
    seed: int,
    since: Any = None,
    *,
    trained: bool = False,
) -> tuple[AuditTable, AuditTable | None, list[Matched], list[str]]:
    """The rows to audit, those left over, and a sample where there are too many.

    since : from when on rows are audited. trained : whether evaluators have rows of their own.
    """
    notes = []
    rows, spare = matched[0].rows, None
    for other in matched[1:]:
        if not np.array_equal(other.rows, rows):
            raise InputError(
                f"explanations {matched[0].name!r} and {other.name!r} explain different rows "
                f"({len(rows):,} and {len(other.rows):,}); give masks of the same rows."
            )
    if len(rows) < len(table):
        left = np.setdiff1d(np.arange(len(table)), rows)
        spare = table.take(left)
        which = "have masks" if since is None else f"have masks and are of {since} or later"
        learned = rest == "train" and not trained
        notes.append(
            f"{len(rows):,} of the table's {len(table):,} rows {which} and were audited; the "
            f"evaluators {'learned from' if learned else 'never saw'} the other {len(left):,}."
        )
        table = table.take(rows)
    if len(table) > options.max_rows:
        keep = np.random.default_rng((seed, 3)).permutation(len(table))[: options.max_rows]
        keep = np.sort(keep)
        notes.append(f"a random {len(keep):,} of {len(table):,} rows were audited.")
        table = table.take(keep)
        matched = [m.take(keep, keep) for m in matched]
    notes.append("matched: " + "; ".join(f"{m.name}, {m.how}" for m in matched) + ".")
    return table, spare, matched, notes


def _store(
    checkpoint: str | Path | None,
    table: AuditTable,
    audited: list[Audited],
    options: AuditSettings,
    seed: int,
    learning: Learning | None,
    predicted: NDArray[np.int64] | None,
) -> Store:
    """A place that belongs to exactly these rows, masks and settings."""
    if checkpoint is None:
        return Store(None)
    digest = hashlib.sha256(f"{options!r} {seed}".encode())
    parts = [(table.frame, table.label)]
    if learning is not None:
        parts.append((learning.X, learning.label))
    for frame, label in parts:
        digest.update(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes())
        digest.update(label.tobytes())
    order = None if learning is None else learning.times
    for name, numbers in (
        ("", table.groups), ("times", table.times), ("order", order), ("predicted", predicted),
    ):  # fmt: skip
        if numbers is not None:
            digest.update(name.encode() + numbers.tobytes())
    for one in audited:
        digest.update(one.source.encode() + one.masks.tobytes())
        digest.update(b"" if one.order is None else one.order.tobytes())
    return Store(Path(checkpoint) / digest.hexdigest()[:16])


def _seed(random_state: Any) -> int:
    whole = is_whole(random_state)
    if not whole or random_state < 0:
        raise InputError(f"random_state must be a whole number from 0 up but is {random_state!r}.")
    return int(random_state)
