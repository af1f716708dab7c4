"""`PostHoc`: what a model that learned from whole rows says of masked ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

from unmasked.errors import InputError
from unmasked.evaluation.evaluator import SEED_SHIFT, TableEvaluator
from unmasked.explainers.estimator import NetworkEstimator, Table, checkpoint_file
from unmasked.inputs.table import Column, Columns, GroupSpec, is_categorical
from unmasked.inputs.targets import model_targets, read_targets
from unmasked.masks.maskers import Groups, Masker, Zero
from unmasked.networks.tables import Factory
from unmasked.training import Settings, Training, fit, methods
from unmasked.training.progress import Show

_REMARK = (
    "these are post-hoc figures: the model was never trained on masked inputs, so they mix what is "
    "shown with how it extrapolates; EvalX does not."
)


class PostHoc(TableEvaluator, NetworkEstimator):
    """Post-hoc accuracy: a model that learned from whole rows is fed masked ones.

    It cannot tell what is shown from how the model extrapolates: masked inputs are unlike all it
    was trained on, so a good explanation may score badly and a code in the masks well.

    Parameters
    ----------
    model : the model, with ``predict_proba`` or callable. ``fit(X)`` then learns only what hidden
        values are replaced by: a column's mean or its most frequent category. By default
        ``fit(X, y)`` trains a network on everything shown.
    predictor : that network, as in `EvalX`.
    masker : what that network is given for hidden values: `Zero` (default: each column's mean, or
        no category at all), `Token`, or one of your own.
    groups, training : columns that go together, options of training, as in `RealX`.
    validation, batch_size, device, checkpoint, progress, random_state : as in `RealX`.

    Attributes
    ----------
    predictor_ : the network; or fill_ : what replaces hidden values, one for each column.
    columns_, classes_, n_features_in_, feature_names_in_, history_, interrupted_ : as in `RealX`.

    Examples
    --------
    >>> from unmasked.datasets import synthetic
    >>> rows = synthetic("S3", 400, seed=0)
    >>> evaluator = PostHoc(training=Training(epochs=2), random_state=0).fit(rows.x, rows.y)
    >>> evaluator.predict_proba(rows.x, rows.truth).shape
    (400, 2)
    """

    title = "Post-hoc"

    def __init__(
        self,
        model: Any = None,
        *,
        predictor: nn.Module | Factory | None = None,
        masker: Masker | None = None,
        groups: GroupSpec | None = None,
        training: Training | None = None,
        validation: float = 0.2,
        batch_size: int = 8192,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        progress: Show = "auto",
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.predictor = predictor
        self.masker = masker
        self.groups = groups
        self.training = training
        self.validation = validation
        self.batch_size = batch_size
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    def fit(
        self, X: Table, y: Any = None, *, validation: tuple[Table, Any] | None = None
    ) -> PostHoc:
        """Learn p(y | x) as in `RealX.fit`; with a model, the fill values of the rows of X.

        Parameters
        ----------
        X : rows to learn from: a table or images, as in `RealX.fit`; with a model a table.
        y : labels (rows,) or class probabilities (rows, classes). With a model it may be left out,
            or name its classes where the model does not.
        validation : (X_valid, y_valid) to validate on. None (default) holds out a share of the
            rows. Not used with a model.
        """
        if self.model is not None:
            return self._fit_model(X, y)
        train, valid, targets, seed = self._prepare(X, y, validation)
        trained = fit(
            methods.full(self.masker_, self._predictor_network),
            Settings(seeds=(seed + SEED_SHIFT,)),
            train,
            valid,
            self._options,
            device=self.device,
            path=checkpoint_file(self.checkpoint, "posthoc"),
            show=self.progress,
            title=self.title,
        )
        self.__dict__.pop("fill_", None)  # of an earlier fit
        self.predictor_ = trained.predictors[0]
        self._learned(trained, targets)
        return self

    def _fit_model(self, X: Table, y: Any) -> PostHoc:
        for name in ("predictor", "masker"):
            if getattr(self, name) is not None:
                raise InputError(
                    f"either model or {name} can be given but both came; leave out {name}, as a "
                    "model of your own is given fill values for what is hidden."
                )
        self._check_parts()
        table = self._read(X, reset=True)
        if isinstance(table, np.ndarray):
            raise InputError(
                "PostHoc(model=…) fills in the columns of a table, but images came; leave out "
                "model and pass predictor=… with masker=Superpixels(…)."
            )
        classes = model_targets(self.model, _own_form(X, table), len(table)).classes
        if y is not None:
            known = classes if hasattr(self.model, "classes_") else None
            named = read_targets(y, len(table), known, fitting=known is None).classes
            if len(named) != len(classes):
                raise InputError(
                    f"y must have one class for each of the model's {len(classes)} probabilities "
                    f"but has {len(named)}; leave out y."
                )
            classes = named
        self.columns_ = Columns.learn(table, self.groups)
        self.classes_, self.masker_ = classes, Groups(self.columns_.index)
        self.fill_ = tuple(
            _usual(table.iloc[:, i], column) for i, column in enumerate(self.columns_.columns)
        )
        self.__dict__.pop("predictor_", None)  # of an earlier fit
        self.soft_, self.interrupted_, self.history_, self.seconds_ = True, False, [], 0.0
        return self

    # ------------------------------------------------------------------ the work behind it

    def _inputs(self, X: Table) -> Any:
        """The networks' matrix; for a model of the user's own, rows in the form they came in."""
        table = self._read(X, reset=False)
        if not hasattr(self, "fill_"):
            return self.columns_.matrix(table)
        return _own_form(X, table)

    def _predict(self, inputs: Any, masks: NDArray[np.bool_]) -> NDArray[Any]:
        if not hasattr(self, "fill_"):
            return self._probabilities(self.predictor_, inputs, masks)
        assert isinstance(self.columns_, Columns)
        shown = masks[:, list(self.columns_.feature_of)]  # (rows, columns of the table)
        asked = model_targets(self.model, _filled(inputs, shown, self.fill_), len(masks))
        return asked.probabilities

    def _remarks(self, masks: NDArray[np.bool_]) -> list[str]:
        return [] if masks.all() else [_REMARK]

    @property
    def _masker(self) -> Masker:
        return Zero() if self.masker is None else self.masker

    @property
    def _fitted(self) -> bool:
        return super()._fitted or hasattr(self, "fill_")

    # ------------------------------------------------------------------ on disk

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``weights.safetensors`` into a folder of their own.

        Only a network that it trained itself is saved, no model of yours.

        Parameters
        ----------
        folder : where to write: a new or empty folder, or one with an earlier save of its kind,
            which is replaced.
        """
        check_is_fitted(self)
        if hasattr(self, "fill_"):
            raise InputError(
                "only a PostHoc that trained its own network can be saved, but this one has a "
                "model of yours; save the model yourself and call PostHoc(model=…).fit(X) again."
            )
        super().save(folder)


def _own_form(X: Table, table: pd.DataFrame) -> Any:
    """Return a table or a tensor as it came, and all else as an array, for the user's own model."""
    return X if isinstance(X, pd.DataFrame) or hasattr(X, "detach") else table.to_numpy()


def _usual(values: pd.Series[Any], column: Column) -> Any:
    """Return a column's fill value: the mean of numbers and dates, the most frequent of others."""
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return values.mean()
    if column.dates is not None or is_categorical(values):
        return values.mode().iloc[0]
    return column.mean


def _filled(rows: Any, shown: NDArray[np.bool_], fill: tuple[Any, ...]) -> Any:
    """Rows with hidden values replaced, in their own form: a table, a tensor or an array."""
    if isinstance(rows, pd.DataFrame):
        parts = {}
        for i, (name, value) in enumerate(zip(rows.columns, fill, strict=True)):
            column = rows.iloc[:, i]
            if not shown[:, i].all() and isinstance(value, float) and not is_categorical(column):
                column = column.astype(np.float64)  # a mean of whole numbers is not one
            parts[name] = column.where(shown[:, i], value)
        return pd.DataFrame(parts, index=rows.index)
    if hasattr(rows, "detach"):
        keep = torch.as_tensor(shown, device=rows.device)
        values = torch.tensor(fill, dtype=rows.dtype, device=rows.device)
        return torch.where(keep, rows, values)
    return np.where(shown, rows, np.array(fill, dtype=np.float64))
