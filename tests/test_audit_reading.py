"""Explanations as they come: formats, matching of rows and columns, cuts, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from small_audits import FEATURES, attributions, honest, table
from small_tables import assert_one_sentence

from unmasked import Explanation, InputError
from unmasked.auditing.explanations import Given, check_header, read_all, read_one
from unmasked.auditing.matching import Cut, Matched, cut, first, match

X, Y = table()
MASKS = honest()
FRAME = pd.DataFrame(MASKS, columns=FEATURES, index=X.index)


def read(thing, **more):
    return match(read_one("it", thing, FEATURES, **more), FEATURES, True, X.index)


class Lime:
    """What LIME returns for one row."""

    def __init__(self, weights: dict[int, list[tuple[int, float]]]) -> None:
        self._weights = weights

    def as_map(self) -> dict[int, list[tuple[int, float]]]:
        return self._weights


def shap_like(values, names=None) -> SimpleNamespace:
    return SimpleNamespace(values=values, data=None, base_values=0.0, feature_names=names)


# ---------------------------------------------------------------------- formats

IN_MEMORY = {
    "array": MASKS,
    "booleans": MASKS.astype(bool),
    "frame": FRAME,
    "frame of booleans": FRAME.astype(bool),
    "tensor": torch.tensor(MASKS),
    "captum": (torch.tensor(MASKS, dtype=torch.float32),),
    "explanation": Explanation(MASKS, feature_names=FEATURES, index=X.index),
    "shap": shap_like(MASKS.astype(float), FEATURES),
    "shap without names": shap_like(MASKS),
    "lists": MASKS.tolist(),
}


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_every_form_in_memory_gives_the_same_masks(kind):
    found = read(IN_MEMORY[kind])
    assert (found.values.astype(bool) == MASKS.astype(bool)).all()
    assert (found.rows == np.arange(len(X))).all()


def write_csv(path):
    FRAME.to_csv(path.with_suffix(".csv"))
    return path.with_suffix(".csv")


def write_tsv(path):
    FRAME.to_csv(path.with_suffix(".tsv"), sep="\t", index_label="patient")
    return path.with_suffix(".tsv")


def write_bare_csv(path):
    np.savetxt(path.with_suffix(".csv"), MASKS, fmt="%d", delimiter=",")
    return path.with_suffix(".csv")


def write_unnamed_csv(path):
    pd.DataFrame(MASKS).to_csv(path.with_suffix(".csv"), index=False)
    return path.with_suffix(".csv")


def write_parquet(path):
    FRAME.sample(frac=1, random_state=0).to_parquet(path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def write_npy(path):
    np.save(path.with_suffix(".npy"), MASKS)
    return path.with_suffix(".npy")


def write_npz(path):
    np.savez(path.with_suffix(".npz"), masks=MASKS, feature_names=FEATURES, index=list(X.index))
    return path.with_suffix(".npz")


def write_explanation(path):
    IN_MEMORY["explanation"].save(path.with_suffix(".npz"))
    return path.with_suffix(".npz")


@pytest.mark.parametrize(
    "write",
    [write_csv, write_tsv, write_bare_csv, write_unnamed_csv, write_parquet, write_npy, write_npz,
     write_explanation],
)  # fmt: skip
def test_every_file_gives_the_same_masks(write, tmp_path):
    path = write(tmp_path / "masks")
    id_column = "patient" if path.suffix in (".csv", ".tsv") else None
    found = read(path, id_column=id_column)
    assert (found.values.astype(bool) == MASKS.astype(bool)).all()
    (named,) = read_all(str(path), FEATURES, id_column=id_column)
    assert named.name == "masks"  # the file's stem


def test_lime_of_one_label_and_of_several():
    maps = [{1: [(0, 0.5), (3, -0.2)]}, {0: [(1, 0.3)]}]
    one = read_one("lime", [Lime(found) for found in maps], FEATURES)
    assert one.values.tolist() == [[0.5, 0, 0, -0.2, 0], [0, 0.3, 0, 0, 0]]
    both = read_one("lime", [Lime({0: [(0, 1.0)], 1: [(0, -1.0)]})] * 2, FEATURES)
    assert both.values.shape == (2, 5, 2)
    with pytest.raises(InputError, match="names feature 9"):
        read_one("lime", [Lime({0: [(9, 1.0)]})], FEATURES)


def test_names_of_several_explanations(tmp_path):
    write_npy(tmp_path / "a")
    found = read_all([MASKS, tmp_path / "a.npy", IN_MEMORY["shap"]], FEATURES)
    assert [one.name for one in found] == ["explanation 1", "a", "explanation 3"]
    with pytest.raises(InputError, match="two explanations are called 'a'"):
        read_all([tmp_path / "a.npy", str(tmp_path / "a.npy")], FEATURES)
    lime = read_all([Lime({0: [(0, 1.0)]})] * 3, FEATURES)
    assert len(lime) == 1  # a list of LIME's is one explanation
    assert len(lime[0].values) == 3
    with pytest.raises(InputError, match="at least one explanation"):
        read_all({}, FEATURES)


def test_what_cannot_be_read_gets_one_sentence(tmp_path):
    bad = {
        "text.csv": "age,dose\nhigh,low\n",
        "twice.csv": "age,age\n0,1\n",
        "torn.npy": "not numpy",
        "torn.npz": "not numpy",
        "masks.pdf": "x",
    }
    for name, content in bad.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError) as caught:
            read_one("it", tmp_path / name, FEATURES)
        assert_one_sentence(caught.value)
    np.savez(tmp_path / "many.npz", a=MASKS, b=MASKS)
    for thing in (tmp_path / "many.npz", tmp_path / "absent.csv", "text", 3, {"a": 1},
                  (torch.zeros(2, 2), torch.zeros(2, 2)), np.zeros(3), [["a", "b"]]):  # fmt: skip
        with pytest.raises(InputError) as caught:
            read_one("it", thing, FEATURES)
        assert_one_sentence(caught.value)
    with pytest.raises(InputError, match="'age' twice"):
        check_header(tmp_path / "twice.csv")


# ---------------------------------------------------------------------- rows and columns


def test_rows_match_by_label_and_columns_by_name_in_any_order():
    shuffled = FRAME.sample(frac=1, random_state=3)[FEATURES[::-1]]
    found = read(shuffled)
    assert (found.values == MASKS).all()
    assert found.how == "rows by label, columns by name"


def test_without_labels_the_order_counts():
    found = read(FRAME.reset_index(drop=True))
    assert (found.values == MASKS).all()
    assert found.how == "rows by order, columns by name"
    renamed = FRAME.set_axis([f"feature_{i}" for i in range(5)], axis=1)
    assert read(renamed).how == "rows by label, columns by position"
    strangers = FRAME.set_axis([f"q{i}" for i in range(len(X))])
    assert read(strangers).how == "rows by order, columns by name"


def test_a_table_that_counts_its_rows_takes_labels_in_any_order():
    ids = pd.RangeIndex(len(X))
    frame = FRAME.reset_index(drop=True).sample(frac=1, random_state=1)
    found = match(read_one("it", frame, FEATURES), FEATURES, True, ids)
    assert (found.values == MASKS).all()
    assert found.how.startswith("rows by label")


def test_labels_read_as_text_match_numbers():
    ids = pd.RangeIndex(len(X))
    given = Given("it", MASKS[::-1], None, np.array([str(i) for i in range(len(X))])[::-1])
    assert (match(given, FEATURES, True, ids).values == MASKS).all()
    given = Given("it", MASKS[::-1], None, np.arange(len(X))[::-1])
    assert (match(given, FEATURES, True, pd.Index([str(i) for i in ids])).values == MASKS).all()


def test_missing_rows_are_named_with_both_numbers():
    with pytest.raises(InputError) as caught:
        read(FRAME.drop(index=["p7", "p11"]))
    text = str(caught.value)
    assert "398 rows" in text
    assert "400" in text
    assert "'p7', 'p11' missing" in text
    assert_one_sentence(caught.value)
    with pytest.raises(InputError, match="10 rows but the table has 400"):
        read(MASKS[:10])
    with pytest.raises(InputError, match="'p0' twice"):
        read(pd.concat([FRAME.iloc[:1], FRAME.iloc[:-1]]))
    with pytest.raises(InputError, match="rows 'q' not in the table"):
        read(FRAME.rename(index={"p0": "q"}))


def test_some_rows_are_enough_where_that_is_allowed():
    given = read_one("it", FRAME.iloc[[5, 2, 9]], FEATURES)
    found = match(given, FEATURES, True, X.index, some=True)
    assert found.rows.tolist() == [2, 5, 9]
    assert (found.values == MASKS[[2, 5, 9]]).all()


def test_other_columns_are_named_with_both_numbers():
    with pytest.raises(InputError) as caught:
        read(FRAME.drop(columns="dose").assign(shoe=0, hat=1))
    text = str(caught.value)
    for part in ("6 columns", "5 features", "'dose' missing", "'shoe', 'hat' not in the table"):
        assert part in text
    with pytest.raises(InputError, match="4 columns but the table has 5"):
        read(MASKS[:, :4])


# ---------------------------------------------------------------------- cuts

CLASSES = np.array(["ill", "well"])


def matched(values, ranks=None) -> Matched:
    return Matched("it", np.asarray(values), ranks, np.arange(len(values)), "")


def test_top_and_fraction_take_the_largest_by_absolute_value():
    values = np.array([[0.1, -3.0, 2.0, 0.0], [5.0, 5.0, 5.0, 1.0]])
    (one,) = cut(matched(values), Cut.read(2, None, 4), CLASSES, None, signed=False)
    assert one.masks.astype(int).tolist() == [[0, 1, 1, 0], [1, 1, 0, 0]]  # ties: the earlier
    assert (one.name, one.cut) == ("it", {"top": 2})
    (signed,) = cut(matched(values), Cut.read(None, 0.25, 4), CLASSES, None, signed=True)
    assert signed.masks.astype(int).tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]


def test_a_sweep_is_one_explanation_for_each_size():
    values = attributions(X)
    found = cut(matched(values), Cut.read([3, 1], None, 5), CLASSES, None, signed=False)
    assert [one.name for one in found] == ["it, top 1", "it, top 3"]
    assert [set(one.masks.sum(1)) for one in found] == [{1}, {3}]
    assert (found[0].masks <= found[1].masks).all()
    assert {one.source for one in found} == {"it"}


def test_first_may_differ_between_rows():
    order = np.array([[2, 0], [1, 2]])
    assert first(order, np.array([1, 2]), 4).astype(int).tolist() == [[0, 0, 1, 0], [0, 1, 1, 0]]


def test_masks_need_no_cut_and_attributions_do():
    (one,) = cut(matched(MASKS), None, CLASSES, None, signed=False)
    assert one.order is None
    with pytest.raises(InputError, match=r"holds 0\.5 but masks hold 0 and 1") as caught:
        cut(matched([[0.5, 1.0]]), None, CLASSES, None, signed=False)
    assert_one_sentence(caught.value)
    with pytest.raises(InputError, match="NaN"):
        cut(matched([[np.nan, 1.0]]), Cut((1,)), CLASSES, None, signed=False)


def test_attributions_of_several_classes_need_a_class():
    values = np.stack([attributions(X), -2 * attributions(X)[:, ::-1]], axis=-1)
    given = read_one("it", shap_like(values, FEATURES), FEATURES)
    found = match(given, FEATURES, True, X.index)
    with pytest.raises(InputError, match="for 2 classes; name one of ill, well") as caught:
        cut(found, Cut((2,)), CLASSES, None, signed=False)
    assert_one_sentence(caught.value)
    with pytest.raises(InputError, match="is none of them"):
        cut(found, Cut((2,)), CLASSES, "dead", signed=False)
    (ill,) = cut(found, Cut((2,)), CLASSES, "ill", signed=False)
    (second,) = cut(found, Cut((2,)), CLASSES, 1, signed=False)
    assert (ill.masks == cut(matched(values[..., 0]), Cut((2,)), CLASSES, None, signed=False)[0]
            .masks).all()  # fmt: skip
    assert (second.masks != ill.masks).any()
    listed = read_one("it", [values[..., 0], values[..., 1]], FEATURES)  # SHAP's older form
    assert (listed.values == values).all()


@pytest.mark.parametrize(
    ("top", "fraction"), [(0, None), (6, None), (1.5, None), (None, 0.0), (None, 1.2), (1, 0.5),
                          ([], None), (True, None)]
)  # fmt: skip
def test_impossible_cuts_are_refused(top, fraction):
    with pytest.raises(InputError) as caught:
        Cut.read(top, fraction, 5)
    assert_one_sentence(caught.value)
