"""`Explanation`: which features were shown for each row, and how sure the selector was."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmasked.errors import InputError, MissingExtra, OutputError, SavedError

if TYPE_CHECKING:
    import pandas as pd
    import shap
    from matplotlib.axes import Axes

    from unmasked.explanation.features import FeatureValues

_FORMAT, _VERSION = "unmasked-explanation", 1
# What numpy, zip and zlib raise on files that are damaged, or not ours (an .npy is no archive).
_UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, EOFError, NotImplementedError, BadZipFile, zlib.error,
)  # fmt: skip


@dataclass(frozen=True, repr=False, eq=False)
class Explanation:
    """Selections for the rows of a table. All parameters are attributes, too.

    Parameters
    ----------
    masks : (rows, features) bool, True = shown; 1 and 0 are taken as well.
    probabilities : (rows, features) in [0, 1], how probable it is that the feature is shown;
        the masks as numbers where no probabilities are known.
    feature_names : one name for each feature, "x1", "x2", … by default.
    index : one label for each row (a DataFrame's index), 0, 1, 2, … by default.
    about : where it comes from, such as ``{"method": "REAL-X", "sparsity": 0.1}``.
    pixels : (height, width), the feature of each pixel, where the rows are images; else None.
    values : what the rows hold, where that is known, to stand beside the features' names. A
        DataFrame that is explained is known, as it was when it was explained, without a copy in
        pandas 3; for other rows use `with_values`. Files written by `save` hold no values.

    Examples
    --------
    >>> e = Explanation([[True, False], [True, True]], feature_names=["age", "dose"])
    >>> e  # doctest: +NORMALIZE_WHITESPACE
    <Explanation of 2 rows × 2 features, 75% shown (1 to 2 a row) in 2 different sets;
    most often: age 100%, dose 50%>
    >>> e.to_frame()
        age   dose
    0  True  False
    1  True   True
    """

    masks: NDArray[np.bool_]
    probabilities: NDArray[np.float32]
    feature_names: list[str]
    index: NDArray[Any]
    about: dict[str, Any] = field(default_factory=dict)
    pixels: NDArray[np.int64] | None = None
    values: FeatureValues | None = None

    def __init__(
        self,
        masks: ArrayLike,
        probabilities: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        index: ArrayLike | None = None,
        about: dict[str, Any] | None = None,
        pixels: ArrayLike | None = None,
        values: FeatureValues | None = None,
    ) -> None:
        shown = _masks(masks)
        rows, features = shown.shape
        chances = np.asarray(shown if probabilities is None else probabilities, dtype=np.float32)
        if chances.shape != shown.shape:
            raise InputError(
                f"probabilities must have the masks' shape {shown.shape} but have {chances.shape}."
            )
        names = [f"x{i + 1}" for i in range(features)] if feature_names is None else feature_names
        if len(names) != features:
            raise InputError(
                f"there must be one name for each of the {features} features but {len(names)} came."
            )
        labels = np.arange(rows) if index is None else np.asarray(index)
        if len(labels) != rows:
            raise InputError(
                f"there must be one label for each of the {rows} rows but {len(labels)} came."
            )
        object.__setattr__(self, "masks", shown)
        object.__setattr__(self, "probabilities", chances)
        object.__setattr__(self, "feature_names", [str(name) for name in names])
        object.__setattr__(self, "index", labels)
        object.__setattr__(self, "about", dict(about or {}))
        object.__setattr__(self, "pixels", None if pixels is None else _pixels(pixels, features))
        if values is not None:
            from unmasked.explanation.features import check_values

            check_values(values, rows, features)
        object.__setattr__(self, "values", values)

    def __len__(self) -> int:
        return len(self.masks)

    def __getitem__(self, rows: slice | ArrayLike) -> Explanation:
        """Some of the rows: a slice, a list of positions or a boolean array."""
        chosen = rows if isinstance(rows, slice) else np.atleast_1d(np.asarray(rows))
        if not isinstance(chosen, slice) and not chosen.size:  # numpy reads [] as floats
            chosen = slice(0, 0)
        return Explanation(
            self.masks[chosen],
            self.probabilities[chosen],
            self.feature_names,
            self.index[chosen],
            self.about,
            self.pixels,
            None if self.values is None else self.values.take(chosen),
        )

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Count the features that each row shows, (rows,)."""
        return self.masks.sum(1).astype(np.int64)

    @property
    def fraction(self) -> float:
        """The fraction of all features that is shown."""
        return float(self.masks.mean()) if self.masks.size else 0.0

    def top(self, k: int) -> Explanation:
        """Show exactly the k most probable features of each row (ties: the earlier feature).

        Parameters
        ----------
        k : how many, from 0 to all features.
        """
        features = self.masks.shape[1]
        if not isinstance(k, int | np.integer) or not 0 <= k <= features:
            raise InputError(
                f"k must be a whole number from 0 to the {features} features but is {k!r}."
            )
        order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, :k]
        masks = np.zeros_like(self.masks)
        np.put_along_axis(masks, order, True, axis=1)
        about = {**self.about, "top": int(k)}
        return Explanation(
            masks,
            self.probabilities,
            self.feature_names,
            self.index,
            about,
            self.pixels,
            self.values,
        )

    def with_values(self, X: Any) -> Explanation:
        """Return this explanation with the values of the explained rows beside its features.

        Parameters
        ----------
        X : the rows, with one column for each feature. A DataFrame is matched by its row labels
            and column names, so it may hold more; an array by position.

        Examples
        --------
        >>> e = Explanation([[True, False]], feature_names=["age", "dose"])
        >>> e.with_values([[51, 0.5]]).shown(0)
        ['age = 51']
        """
        import pandas as pd

        from unmasked.explanation.features import FeatureValues
        from unmasked.explanation.shap import matched_rows, table_data

        if self.pixels is not None:
            raise InputError("this explanation is of images, which have no values to name.")
        table = (
            matched_rows(X, self.index, self.feature_names)
            if isinstance(X, pd.DataFrame)
            else pd.DataFrame(table_data(X, self.index, self.feature_names))
        )
        return Explanation(
            self.masks,
            self.probabilities,
            self.feature_names,
            self.index,
            self.about,
            values=FeatureValues.of(table, range(table.shape[1])),
        )

    def shown(self, row: int) -> list[str]:
        """List what one row shows, as "age = 51", the most probable feature first.

        Without values (see `with_values`) the names alone.

        Parameters
        ----------
        row : the row's position, from 0; −1 is the last.
        """
        from unmasked.explanation.features import shown_texts

        one = self[self._position(row)]
        return shown_texts(one.masks, one.probabilities, one.feature_names, one.values)[0]

    def feature_sets(self) -> pd.DataFrame:
        """Count the rows that show each set of features, the commonest set first.

        One line means one set for all rows. Columns: ``features`` (a tuple of names), ``size``,
        ``rows`` (how many show exactly these) and ``share`` of the rows.

        >>> Explanation([[1, 0], [1, 1], [1, 0]], feature_names=["age", "dose"]).feature_sets()
              features  size  rows     share
        0       (age,)     1     2  0.666667
        1  (age, dose)     2     1  0.333333
        """
        import pandas as pd

        from unmasked.explanation.features import count_sets

        first, counts = count_sets(self.masks)
        names = np.array(self.feature_names, dtype=object)
        return pd.DataFrame(
            {
                "features": [tuple(names[self.masks[row]].tolist()) for row in first],
                "size": self.sizes[first],
                "rows": counts,
                "share": counts / max(1, len(self)),
            }
        )

    def pixel_masks(self) -> NDArray[np.bool_]:
        """Return the mask of each image, pixel by pixel, (rows, height, width), True = shown."""
        if self.pixels is None:
            raise InputError("this explanation is of a table, not of images; it has no pixels.")
        found: NDArray[np.bool_] = self.masks[:, self.pixels]
        return found

    def to_frame(self, what: Literal["masks", "probabilities"] = "masks") -> pd.DataFrame:
        """The masks (or probabilities) as a DataFrame with feature names and row labels.

        Parameters
        ----------
        what : "masks" (default) or "probabilities".
        """
        import pandas as pd

        if what not in ("masks", "probabilities"):
            raise InputError(f"what must be 'masks' or 'probabilities' but is {what!r}.")
        return pd.DataFrame(getattr(self, what), columns=self.feature_names, index=self.index)

    def to_shap(self, data: Any = None) -> shap.Explanation:
        """As a ``shap.Explanation``, for SHAP's plots; needs ``pip install "unmasked[compare]"``.

        Its values are the probabilities of being shown, (rows, features); 0 and 1 where only masks
        are known. They are no Shapley values: a row's sum is the number of features that is shown
        on average, not a prediction. So there are no base values, and plots that add up to a
        prediction (waterfall, force, decision) refuse it. The others (bar, beeswarm, heatmap) work,
        but write "SHAP value" at an axis of probabilities: name it with ``ax.set_xlabel``.

        Parameters
        ----------
        data : the explained rows, which colour SHAP's plots. A DataFrame is matched by its row
            labels and column names, so it may hold more; an array by position. Without it,
            the values that the explanation knows are taken. Images are
            (rows, channels, height, width). Then values are (rows, height, width, 1, 1), a
            pixel's those of its feature, as SHAP's image plot takes them.
        """
        try:
            import shap
        except ImportError as error:
            raise MissingExtra("shap", "compare", "Explanation.to_shap") from error
        from unmasked.explanation.shap import image_data, table_data

        values = self.probabilities.astype(np.float64)
        known = not np.isin(values, (0, 1)).all()
        output = "probability of being shown" if known else "shown"
        if self.pixels is not None:
            rows = None if data is None else image_data(data, len(self), self.pixels.shape)
            return shap.Explanation(
                values[:, self.pixels][..., None, None],  # one channel, one output
                data=rows,
                output_names=[output],
            )
        if data is None and self.values is not None and self.values.one_column_each:
            data = self.values.table.to_numpy()
        rows = None if data is None else table_data(data, self.index, self.feature_names)
        return shap.Explanation(
            values,
            data=rows,
            feature_names=self.feature_names,
            output_names=output,
        )

    def plot(
        self,
        row: int | None = None,
        ax: Axes | None = None,
        *,
        most: int = 30,
        image: ArrayLike | None = None,
    ) -> Axes:
        """One row as bars, or all rows as a heat map; returns the axes.

        Of images, a row is a map of probabilities, or its selection over the image. All rows
        together are a map of how often each pixel is shown. A row's bars name its values, where
        they are known.

        Parameters
        ----------
        row : the row's position, from 0; None (default) for all rows.
        ax : matplotlib's axes to draw on; None (default) makes new ones.
        most : draw at most so many features, 30 by default: the most often shown, or of one row the
            most probable.
        image : (channels, height, width) of the row, for its selection to be drawn over; None by
            default.
        """
        from unmasked.plots import figures

        if row is not None:
            self._position(row)
        if image is not None and row is None:
            raise InputError("image= needs the row that it is the image of; give plot(row, …).")
        if self.pixels is not None:
            if row is None:
                rates = self.masks.mean(0) if len(self) else np.zeros(self.masks.shape[1])
                return figures.pixel_map(
                    rates[self.pixels], title="how often shown", scale="share of the images", ax=ax
                )
            if image is None:
                chances = self.probabilities[row][self.pixels]
                return figures.pixel_map(chances, title=f"image {self.index[row]}", ax=ax)
            if np.shape(image)[-2:] != self.pixels.shape:
                raise InputError(
                    f"the image must be {self.pixels.shape[0]} × {self.pixels.shape[1]} pixels, as "
                    f"the explained ones, but came with shape {np.shape(image)}."
                )
            shown = self.masks[row][self.pixels]
            return figures.over_image(image, shown, title=f"image {self.index[row]}", ax=ax)
        if image is not None:
            raise InputError("image= is for explanations of images, but this one is of a table.")
        if row is None:
            return figures.heat_map(self.masks, self.feature_names, ax=ax, most=most)
        return figures.one_row(
            self.probabilities[row],
            self.masks[row],
            self.feature_names,
            title=f"row {self.index[row]}",
            ax=ax,
            most=most,
            values=self._values_of(row),
        )

    def _position(self, row: int) -> int:
        if not -len(self) <= row < len(self):
            raise InputError(f"row must lie between 0 and {len(self) - 1} but is {row}.")
        return row

    def _values_of(self, row: int) -> list[str] | None:
        """A row's value of each feature, where they are known."""
        if self.values is None:
            return None
        where = np.array([row])
        return [self.values.texts(i, where)[0] for i in range(len(self.feature_names))]

    def save(self, path: str | Path) -> None:
        """Write one ``.npz`` file that `load` and ``numpy.load`` read.

        Parameters
        ----------
        path : the file, with its ending; an earlier one is replaced.
        """
        path = Path(path)
        header = json.dumps({"format": _FORMAT, "version": _VERSION, "about": self.about})
        index = self.index
        if index.dtype == object:  # strings and the like; numpy would have to pickle them
            index = np.array([str(label) for label in index], dtype=str)
        arrays: dict[str, Any] = {
            "header": np.array(header),
            "masks": self.masks,
            "probabilities": self.probabilities,
            "feature_names": np.array(self.feature_names, dtype=str),
            "index": index,
        }
        if self.pixels is not None:
            arrays["pixels"] = self.pixels
        try:
            with open(path, "wb") as file:
                np.savez_compressed(file, **arrays)
        except OSError as error:
            raise OutputError(
                f"the explanation cannot be written to {path} ({error.strerror or error}); "
                "choose another place."
            ) from error

    @classmethod
    def load(cls, path: str | Path) -> Explanation:
        """Read what `save` wrote; refuses anything else.

        Parameters
        ----------
        path : the file that `save` wrote.
        """
        path = Path(path)
        if not path.is_file():
            raise SavedError(f"{path} must be a file written by Explanation.save but is not there.")
        try:
            # Opened here, as numpy leaves a path open when the archive is damaged.
            with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
                header = dict(json.loads(str(file["header"])))
                values = {k: file[k] for k in ("masks", "probabilities", "feature_names", "index")}
                pixels = file["pixels"] if "pixels" in file.files else None
        except _UNREADABLE as error:
            raise SavedError(
                f"{path} is damaged or was not written by Explanation.save ({error})."
            ) from error
        if header.get("format") != _FORMAT or header.get("version") != _VERSION:
            raise SavedError(
                f"{path} has format {header.get('format')!r} version {header.get('version')!r} "
                f"but this program reads {_FORMAT!r} version {_VERSION}."
            )
        names = [str(name) for name in values["feature_names"]]
        return cls(
            values["masks"],
            values["probabilities"],
            names,
            values["index"],
            header["about"],
            pixels,
        )

    def __repr__(self) -> str:
        return f"<{self._summary()}>"

    def _repr_html_(self) -> str:
        """For notebooks: the first rows and most shown features; of images, a map."""
        from unmasked.explanation.html import explanation_html

        return explanation_html(
            self._summary(),
            self.masks,
            self.probabilities,
            self.feature_names,
            self.index,
            self.pixels,
            self.values,
        )

    def _summary(self) -> str:
        rows, features = self.masks.shape
        text = f"Explanation of {rows:,} rows × {features:,} features"
        if not (rows and features):
            return text
        from unmasked.explanation.features import count_sets, one_set_text, same_for_all

        text += f", {self.fraction:.0%} shown"
        if same_for_all(self.masks):
            return f"{text}: {one_set_text(self.masks[0], self.feature_names, 'row')}"
        sizes, rates = self.sizes, self.masks.mean(0)
        first = np.argsort(-rates, kind="stable")[:5]
        often = ", ".join(f"{self.feature_names[i]} {rates[i]:.0%}" for i in first)
        sets = f" in {len(count_sets(self.masks)[0]):,} different sets" if rows > 1 else ""
        return f"{text} ({sizes.min()} to {sizes.max()} a row){sets}; most often: {often}"


def _pixels(pixels: ArrayLike, features: int) -> NDArray[np.int64]:
    found = np.asarray(pixels)
    if found.ndim != 2 or found.dtype.kind not in "iu":
        raise InputError(
            "pixels must be an array (height, width) of feature numbers but has shape "
            f"{found.shape} and type {found.dtype}."
        )
    if found.size and (found.min() < 0 or found.max() >= features):
        raise InputError(
            f"pixels must hold feature numbers from 0 to {features - 1} but go from "
            f"{found.min()} to {found.max()}."
        )
    return found.astype(np.int64)


def _masks(masks: ArrayLike) -> NDArray[np.bool_]:
    values = np.asarray(masks)
    if values.ndim != 2:
        raise InputError(
            f"masks must be a table (rows, features) but came with shape {values.shape}."
        )
    if values.dtype == bool:
        return values.copy()
    try:
        good = np.isin(values, (0, 1))
    except TypeError:
        good = np.zeros(values.shape, dtype=bool)
    if not good.all():
        wrong = values[~good].tolist()[0]
        raise InputError(
            f"masks must hold 0 (hidden) and 1 (shown) only but hold {wrong!r}; "
            "cut attributions at a threshold or at the top k first."
        )
    return values.astype(bool)
