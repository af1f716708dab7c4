"""Share what all estimators do: read tables, split rows, build maskers, run networks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from unmasked.errors import InputError
from unmasked.explainers.saving import (
    classes_config,
    classes_from,
    law_config,
    load_weights,
    masker_config,
    masker_from,
    network_config,
    network_from,
    read_folder,
    weights_of,
    write_folder,
)
from unmasked.inputs import remarks
from unmasked.inputs.augment import Flattened
from unmasked.inputs.images import ForImages, Pixels, is_images, read_images, unpacked
from unmasked.inputs.stored import StoredImages, StoredRows
from unmasked.inputs.table import Columns, GroupSpec
from unmasked.inputs.targets import Targets, model_targets, read_targets
from unmasked.masks.distributions import MaskLaw, UniformSize
from unmasked.masks.maskers import Groups, Masker, Token
from unmasked.masks.superpixels import Fill, Superpixels
from unmasked.networks.tables import MLP, Factory, SetMLP, build
from unmasked.training import Data, Trained, Training
from unmasked.training.device import choose_device, enough_for_a_row, in_parts
from unmasked.training.progress import Show
from unmasked.training.rows import as_tensor

DEFAULT_PREDICTOR = MLP((200, 200))
_NUMBERS = 2**24  # of rows that are run at once
Table = Any
"""A DataFrame, a numpy array, a torch tensor or nested lists; (rows, columns). Or images: an array
or tensor (rows, channels, height, width), a PyTorch ``Dataset`` of pairs (image, label), or
`StoredImages`, which stay on disk."""


class MaskedEstimator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of estimators whose networks see rows through a masker.

    Subclasses have the parameters used here: masker, groups, validation, batch_size, device,
    random_state; after fit they have columns_, classes_, masker_.
    """

    columns_: Columns | Pixels
    classes_: NDArray[Any]
    masker_: Masker
    soft_: bool
    interrupted_: bool
    history_: list[dict[str, Any]]
    seconds_: float
    split_: tuple[NDArray[np.int64], NDArray[np.int64]]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # missing is a value
        return tags

    # ------------------------------------------------------------------ reading what came in

    def _read(self, X: Table, *, reset: bool, fitted: bool = True) -> Any:
        """Check a table and return it as a DataFrame of numbers and categories.

        Images are returned as an array (rows, channels, height, width).
        """
        if not reset and fitted:
            check_is_fitted(self)
        X, _ = unpacked(X, None, labels=False)
        if is_images(X) or self._of_images(reset):
            return self._read_images(X, reset=reset)
        if reset and isinstance(self._masker, Superpixels | Fill) and np.ndim(X) == 3:
            raise InputError(
                "images must come as (rows, channels, height, width), with one channel for grey, "
                f"but came with shape {tuple(np.shape(X))}; use X[:, None]."
            )
        if hasattr(X, "detach"):
            X = X.detach().cpu().numpy()
        if isinstance(X, pd.DataFrame):
            twice = X.columns[X.columns.duplicated()]
            if len(twice):
                raise InputError(f"the column {twice[0]!r} comes twice; rename or drop one.")
            if not len(X) or not X.shape[1]:
                raise InputError(
                    f"the table must have at least one row and one column but has {len(X)} rows "
                    f"and {X.shape[1]} columns."
                )
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        values = validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite=False, accept_sparse=False
        )
        names = getattr(self, "columns_", None)
        labels = (
            [f"x{i + 1}" for i in range(values.shape[1])]
            if reset or names is None
            else [column.name for column in names.columns]
        )
        return pd.DataFrame(values, columns=labels)

    def _of_images(self, reset: bool) -> bool:
        """Return True if what was learned from were images; False if it is to learn anew."""
        return not reset and isinstance(getattr(self, "columns_", None), Pixels)

    def _read_images(self, X: Any, *, reset: bool) -> NDArray[np.float32]:
        images: Any = read_images(X)
        if reset:
            if self.groups is not None:
                raise InputError(
                    "groups are for the columns of a table, but images came; use "
                    "masker=Superpixels(…)."
                )
            learner = getattr(self, "estimator", None)
            if isinstance(images, StoredImages) and not isinstance(learner, str | None):
                raise InputError(
                    "a scikit-learn estimator learns from copies in memory, but images stored on "
                    "disk came; leave out estimator, or pass np.asarray(images)."
                )
        elif isinstance(self.columns_, Pixels):
            self.columns_.check(images)
        else:
            raise InputError(
                f"a table (rows, {len(self.columns_.columns)}) is expected, as in training, but "
                f"images of shape {images.shape} came."
            )
        return images

    def _targets(self, X: Table, y: Any, rows: int, model: Any, *, fitting: bool) -> Targets:
        """Targets from y, or from the model that is to be explained."""
        if model is not None and y is not None and fitting:
            raise InputError(
                "either y or model=… says what to explain, but both came; leave out y to explain "
                "the model."
            )
        if model is not None and y is None:
            return model_targets(model, X, rows)
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None; "
                "give labels, a matrix of probabilities, or model=…"
            )
        classes = None if fitting else self.classes_
        return read_targets(y, rows, classes, fitting=fitting)

    def _prepare(
        self, X: Table, y: Any, validation: tuple[Table, Any] | None, model: Any = None
    ) -> tuple[Data, Data, Targets, int]:
        """Learn columns and classes; return training and validation rows, and the seed."""
        self._check_parts()
        X, y = unpacked(X, y, labels=model is None)
        table = self._read(X, reset=True)
        targets = self._targets(X, y, len(table), model, fitting=True)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.classes_ = targets.classes
        self._learn(table)
        matrix = self.columns_.matrix(table)
        if isinstance(self.columns_, Columns):
            remarks.tell(self.columns_, matrix, None if targets.soft else targets.likeliest)
        if validation is None:
            train, held_out = self.split_ = _split(targets, self.validation, seed)
            return (
                _data(_taken(matrix, train), targets.probabilities[train]),
                _data(_taken(matrix, held_out), targets.probabilities[held_out]),
                targets,
                seed,
            )
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            raise InputError(
                "validation in fit must be a pair (X_valid, y_valid) but is a "
                f"{type(validation).__name__}; give a share of the rows as "
                f"{type(self).__name__}(validation=0.2)."
            )
        X_valid, y_valid = validation
        X_valid, y_valid = unpacked(X_valid, y_valid, labels=model is None)
        other = self._read(X_valid, reset=False, fitted=False)
        other_targets = self._targets(X_valid, y_valid, len(other), model, fitting=False)
        return (
            _data(matrix, targets.probabilities),
            _data(self.columns_.matrix(other), other_targets.probabilities),
            targets,
            seed,
        )

    def _learn(self, table: Any) -> None:
        """Learn columns, or the images' size, and bind the masker to them."""
        inner = self._masker
        if isinstance(table, np.ndarray | StoredImages):
            superpixels = inner if isinstance(inner, Superpixels) else Superpixels(masker=inner)
            bound = superpixels.bound(table.shape[1:])
            self.columns_ = Pixels.learn(table, bound.names, bound.index)
            self.masker_ = bound
            self.n_features_in_ = len(bound.names)
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            return
        if isinstance(inner, Superpixels | Fill):
            raise InputError(
                f"{type(inner).__name__} is for images (rows, channels, height, width), but a "
                "table came; use Token() or Zero()."
            )
        bins = isinstance(self._predictor, SetMLP) and self._predictor.bins
        self.columns_ = Columns.learn(table, self.groups, bins=bins)
        self.masker_ = inner if self.columns_.plain else Groups(self.columns_.index, inner)
        _check_tells_missing(self.masker_, self.columns_)

    def _check_parts(self) -> None:
        """Refuse parameters of a wrong kind, such as ``masker=Zero`` for ``masker=Zero()``."""
        for name, kind in (("masker", Masker), ("mask_law", MaskLaw), ("training", Training)):
            value = getattr(self, name, None)
            if value is not None and not isinstance(value, kind):
                raise InputError(f"{name} must be a {kind.__name__} but is {value!r}.")
        for name in ("selector", "predictor"):
            value = getattr(self, name, None)
            if value is not None and not callable(value):
                raise InputError(
                    f"{name} must be a torch.nn.Module or a factory (inputs, outputs) -> Module "
                    f"but is {value!r}."
                )
        check_batch_size(self.batch_size)

    # ------------------------------------------------------------------ running networks

    def _matrix(self, X: Table) -> NDArray[np.float32]:
        """Rows to explain or predict, as the networks take them."""
        table = self._read(X, reset=False)
        return self.columns_.matrix(table)

    def _run(
        self, module: nn.Module, matrix: NDArray[np.float32], masks: NDArray[Any] | None = None
    ) -> NDArray[np.float32]:
        """A network's outputs in batches; with masks, on what they show."""
        check_batch_size(self.batch_size)
        device = choose_device(self.device)
        # of wide rows, such as large images, fewer at a time
        size = min(int(self.batch_size), max(16, _NUMBERS // max(1, matrix.shape[1])))

        def run(start: int, stop: int) -> NDArray[np.float32]:
            x = torch.from_numpy(matrix[start:stop]).to(device)
            if masks is not None:
                shown = torch.as_tensor(masks[start:stop], dtype=x.dtype, device=device)
                x = self.masker_(x, shown)
            outputs: NDArray[np.float32] = module(x).cpu().numpy()
            return outputs

        try:
            with enough_for_a_row(device), torch.no_grad():
                module.to(device).eval()
                outputs, _ = in_parts(run, len(matrix), size, device)
        finally:
            module.to("cpu")
        return np.concatenate(outputs)

    def _probabilities(
        self, module: nn.Module, matrix: NDArray[np.float32], masks: NDArray[Any]
    ) -> NDArray[np.float32]:
        """softmax of a predictor's outputs on what the masks show, (rows, classes)."""
        logits = torch.from_numpy(self._run(module, matrix, masks)).double()
        return torch.softmax(logits, dim=-1).numpy()

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """Columns, features and width of the masked input."""
        columns = len(self.columns_.index)
        return columns, self.masker_.features(columns), self.masker_.width(columns)

    @property
    def _law(self) -> MaskLaw:
        """The random masks that predictors learn from."""
        law: MaskLaw | None = getattr(self, "mask_law", None)
        return UniformSize() if law is None else law

    @property
    def _masker(self) -> Masker:
        """Return the masker that was given, else `Token`, before columns are grouped."""
        return Token() if self.masker is None else self.masker

    @property
    def _predictor(self) -> nn.Module | Factory:
        """The predictor as it was asked for."""
        return DEFAULT_PREDICTOR if self.predictor is None else self.predictor

    @property
    def _predictor_network(self) -> nn.Module | Factory:
        """The predictor to build, from what the masker shows."""
        predictor = self._predictor
        if isinstance(predictor, SetMLP) and isinstance(self.columns_, Columns):
            return predictor.bound(self.columns_.numeric)
        shown = self.masker_.shown_shape if isinstance(self.masker_, Superpixels) else None
        return self._predictor if shown is None else ForImages(self._predictor, shown)

    @property
    def _options(self) -> Training | None:
        """Return the training options; an augmentation of pictures is told their size."""
        training: Training | None = self.training
        if training is None or training.augment is None or not isinstance(self.columns_, Pixels):
            return training
        return replace(training, augment=Flattened(training.augment, self.columns_.shape))

    def _learned(self, trained: Trained, targets: Targets) -> None:
        """Keep how training went."""
        self.soft_ = targets.soft
        self.history_, self.interrupted_ = trained.history, trained.interrupted
        self.seconds_ = trained.seconds

    def _config(self) -> dict[str, Any]:
        """Return the configuration that every saved estimator carries, whatever its kind."""
        return {
            "kind": type(self).__name__,
            "named": self._named,
            "columns": self.columns_.to_config(),
            "classes": classes_config(self.classes_),
            "soft": self.soft_,
            "masker": masker_config(self.masker_),
            "mask_law": law_config(self._law),
            "predictor": network_config(self._predictor),
            "interrupted": self.interrupted_,
            "batch_size": int(self.batch_size),
        }

    def _restore(self, config: dict[str, Any], masker: Masker | None) -> None:
        """The inverse of `_config`; ``masker`` stands in for one of the user's own."""
        self.classes_ = classes_from(config["classes"])
        self.masker_ = masker_from(config["masker"], masker)
        self.soft_, self.interrupted_ = config["soft"], config["interrupted"]
        self.history_, self.seconds_ = [], 0.0
        if isinstance(self.masker_, Superpixels):
            bound = self.masker_
            self.columns_ = Pixels.from_config(config["columns"], bound.names, bound.index)
            self.n_features_in_ = len(bound.names)
            return
        self.columns_ = Columns.from_config(config["columns"])
        self.n_features_in_ = len(self.columns_.columns)
        if config["named"]:
            names = [column.name for column in self.columns_.columns]
            self.feature_names_in_ = np.array(names, dtype=object)

    @property
    def _named(self) -> bool:
        return hasattr(self, "feature_names_in_")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_") and hasattr(self, "masker_") and self._fitted


class NetworkEstimator(MaskedEstimator):
    """Base of estimators that are one network of what is shown, ``predictor_``."""

    predictor_: nn.Module

    def __init__(
        self,
        predictor: nn.Module | Factory | None = None,
        *,
        model: Any = None,
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
        self.predictor = predictor
        self.model = model
        self.masker = masker
        self.groups = groups
        self.training = training
        self.validation = validation
        self.batch_size = batch_size
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    @property
    def _fitted(self) -> bool:
        return hasattr(self, "predictor_")

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``weights.safetensors`` into a folder of their own.

        Parameters
        ----------
        folder : where to write: a new or empty folder, or one with an earlier save of its kind,
            which is replaced.
        """
        check_is_fitted(self)
        write_folder(Path(folder), self._config(), weights_of(self.predictor_, "predictor"))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        predictor: nn.Module | Factory | None = None,
        masker: Masker | None = None,
        device: str = "auto",
    ) -> Self:
        """Read what `save` wrote. A network or masker of your own must be passed again.

        Parameters
        ----------
        folder : where `save` wrote.
        predictor : a network of your own, or its factory, as the constructor took it. None
            (default) takes the saved kind.
        masker : a masker of your own, as the constructor took it. None (default) takes the saved
            one.
        device : where it computes from now on: "auto" (default), the first CUDA device or else the
            CPU; or "cpu", "cuda", …
        """
        config, tensors = read_folder(Path(folder), cls.__name__)
        estimator = cls._unfitted(config, predictor, masker, device)
        estimator.predictor_ = restore_network(
            estimator._predictor_network,
            estimator._sizes[2],
            len(estimator.classes_),
            tensors,
            "predictor",
        )
        return estimator

    @classmethod
    def _unfitted(
        cls,
        config: dict[str, Any],
        predictor: nn.Module | Factory | None,
        masker: Masker | None,
        device: str,
    ) -> Self:
        """Rebuild a saved estimator from its configuration, without its weights."""
        estimator = cls(
            predictor=network_from(config["predictor"], predictor, "predictor"),
            batch_size=config["batch_size"],
            device=device,
        )
        estimator._restore(config, masker)
        return estimator


def check_batch_size(value: Any) -> None:
    """Rows that are run at once."""
    if not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"batch_size must be a whole number above 0 but is {value!r}.")


def check_validation(value: Any) -> float:
    """The share of rows to hold out."""
    if not isinstance(value, int | float | np.number) or not 0 < value < 1:
        raise InputError(
            f"validation must be the share of rows to hold out, between 0 and 1, but is {value!r}; "
            "pass rows of your own as fit(X, y, validation=(X_valid, y_valid))."
        )
    return float(value)


def restore_network(
    network: Any, inputs: int, outputs: int, tensors: dict[str, torch.Tensor], prefix: str
) -> nn.Module:
    """Build a network and put saved weights into it."""
    return load_weights(build(network, inputs, outputs, 0), tensors, prefix)


def checkpoint_file(folder: Any, name: str) -> Path | None:
    """Return the checkpoint file of a run called ``name``; None where no folder is given."""
    return None if folder is None else Path(folder) / f"{name}.safetensors"


def _data(matrix: NDArray[np.float32] | StoredRows, probabilities: NDArray[np.float32]) -> Data:
    x = as_tensor(matrix) if isinstance(matrix, StoredRows) else torch.from_numpy(matrix)
    return Data(x, torch.from_numpy(probabilities))


def _taken(
    matrix: NDArray[np.float32] | StoredRows, rows: NDArray[np.int64]
) -> NDArray[np.float32] | StoredRows:
    return matrix.take(rows) if isinstance(matrix, StoredRows) else matrix[rows]


def _check_tells_missing(masker: Masker, columns: Columns) -> None:
    """Refuse a masker under which a missing value that is shown looks like a hidden one."""
    for column in columns.lacking:
        row = torch.zeros(1, len(columns.index))
        row[0, column] = 1
        shown = torch.ones(1, len(columns.features))
        hidden = shown.clone()
        hidden[0, columns.index[column]] = 0
        if torch.equal(masker(row, shown), masker(row, hidden)):
            name = columns.features[columns.index[column]]
            raise InputError(
                f"{name!r} has missing values, and under {masker!r:.80} a missing value that is "
                "shown looks like a hidden one; use masker=Token(), or fill the values in."
            )


def _split(targets: Targets, share: Any, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training and validation positions, with the classes' shares kept where possible."""
    share = check_validation(share)
    rows = len(targets.probabilities)
    held_out = max(1, round(share * rows))
    if rows - held_out < 1:
        raise InputError(
            f"at least 2 rows are needed, to learn and to validate, but got n_samples = {rows}; "
            "give more rows."
        )
    label = targets.likeliest
    counts = np.bincount(label)
    counts = counts[counts > 0]
    stratify = (
        label if counts.min() >= 2 and len(counts) <= min(held_out, rows - held_out) else None
    )
    train, valid = train_test_split(
        np.arange(rows), test_size=held_out, random_state=seed, stratify=stratify
    )
    return np.sort(train), np.sort(valid)
