"""The encoding test where rows have times: periods, seasons, stretches, and what is no code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from small_tables import assert_one_sentence

from unmasked import InputError, encoding_test
from unmasked.evaluation.encoding.result import _worth
from unmasked.evaluation.encoding.rows import Judged, in_time, other_rows, split, time_numbers
from unmasked.evaluation.periods import blocks_of, cut_in_time
from unmasked.io.tables import as_times, not_before

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS = 600


def judged(times: NDArray[np.int64], folds: int) -> Judged:
    label = np.arange(len(times)) % 2
    plain = Judged(np.zeros((len(times), 2), bool), label, 2, np.arange(len(times)), False)
    return in_time(plain, times, folds)


# ---------------------------------------------------------------------- cutting


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_parts_are_in_order_whole_and_of_about_the_same_size(seed: int, parts: int) -> None:
    times = np.random.default_rng(seed).integers(60, size=300)
    part = cut_in_time(times, parts)
    assert sorted(set(part.tolist())) == list(range(parts))
    for number in range(parts - 1):  # every time of a part lies before every time of the next
        assert times[part == number].max() < times[part == number + 1].min()
    most = np.bincount(times).max()  # both ends of a part are off by half of a time's rows at most
    assert np.abs(np.bincount(part) - 300 / parts).max() <= most


def test_there_are_as_many_parts_as_asked_for_even_where_one_time_has_most_rows() -> None:
    times = np.array([0, *[1] * 97, 2, 3])
    assert len(set(cut_in_time(times, 4).tolist())) == 4
    assert len(set(cut_in_time(times, 9).tolist())) == 4  # there are no more times


def test_blocks_nest_and_are_long_enough() -> None:
    times = np.random.default_rng(0).permutation(1_000) // 2
    blocks = blocks_of(times, 5)
    assert len(np.unique(blocks.period)) == 5
    assert len(np.unique(blocks.season)) == 20  # of 50 rows
    for inner, outer in ((blocks.season, blocks.period), (blocks.stretch, blocks.season)):
        assert all(len(np.unique(outer[inner == one])) == 1 for one in np.unique(inner))
    sizes = np.bincount(blocks.stretch)  # 50 rows in 5 stretches; both ends give a time's 2 rows
    assert abs(sizes - 10).max() <= 4
    assert all(len(np.unique(blocks.stretch[times == one])) == 1 for one in np.unique(times))


def test_masks_are_shuffled_within_a_season_and_never_within_a_stretch() -> None:
    times = np.random.default_rng(0).permutation(ROWS)
    rows = judged(times, 3)
    assert rows.blocks is not None
    for seed in range(5):
        giver = other_rows(rows, np.random.default_rng(seed))
        assert sorted(giver) == list(range(ROWS))
        assert (rows.blocks.season[giver] == rows.blocks.season).all()
        assert (rows.blocks.stretch[giver] != rows.blocks.stretch).all()


def test_folds_are_periods_and_each_row_is_held_out_once() -> None:
    times = np.random.default_rng(1).permutation(ROWS)
    held = []
    for fitted, out in split(judged(times, 4), 4, 0):
        between = (times[fitted] > times[out].min()) & (times[fitted] < times[out].max())
        assert not between.any()
        held.extend(out.tolist())
    assert sorted(held) == list(range(ROWS))


# ---------------------------------------------------------------------- what is a code


def drift(seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Illness becomes common, and later rows show another meaningless column: nobody chose."""
    random = np.random.default_rng(seed)
    times = np.arange(ROWS)
    x = random.standard_normal((ROWS, 4))
    y = random.random(ROWS) < 0.1 + 0.8 * times / ROWS
    masks = np.eye(4, dtype=bool)[(times > ROWS / 2).astype(int)]
    return x, y.astype(int), masks, times


def test_a_choice_that_merely_changes_over_time_is_no_code() -> None:
    """Without times the mask says of which half a row is: 0.3 or 0.7 ill, log 2 − H(0.3) = 0.08."""
    x, y, masks, times = drift()
    alone = encoding_test(x, y, masks)
    assert alone.verdict == "encodes"
    assert alone.nats == pytest.approx(0.08, abs=0.05)  # gains ± log(0.7 / 0.5): error 0.02
    known = encoding_test(x, y, masks, times=times)
    assert known.verdict != "encodes"
    assert known.nats < 0.02


def test_a_code_is_a_code_at_any_time_and_in_any_order_of_rows() -> None:
    x, y, _, times = drift()
    code = np.eye(4, dtype=bool)[2 + y]
    found = encoding_test(x, y, code, times=times)
    assert found.verdict == "encodes"
    # within a season y is known by its share: the mean of H(0.1 … 0.9) is 0.53 nats
    assert found.low > 0.3
    order = np.random.default_rng(0).permutation(ROWS)
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(times[order], "D")
    again = encoding_test(x[order], y[order], code[order], times=dates.astype(str).tolist())
    assert again.verdict == "encodes"
    # the same periods; only the shuffles are drawn in another order
    assert again.nats == pytest.approx(found.nats, abs=4 * found.gains.std() / np.sqrt(ROWS))


def test_what_neighbouring_rows_are_worth() -> None:
    random = np.random.default_rng(0)
    once, clusters = random.normal(size=80), np.repeat(np.arange(80), 5)
    assert _worth(np.repeat(once, 5), clusters) == pytest.approx(80)  # copies add nothing
    assert _worth(np.zeros(400), clusters) == 400
    # Σ of 80 squared sums has a relative error of √(2/80) = 0.16
    assert 400 / (1 + 4 * 0.16) < _worth(random.normal(size=400), clusters) <= 400
    assert _worth(random.normal(size=400), np.repeat(np.arange(20), 20)) == 20  # too few to tell


def test_a_handful_of_times_accuses_nobody() -> None:
    x, y, _, times = drift()
    found = encoding_test(x, y, np.eye(4, dtype=bool)[2 + y], times=times // 100)
    assert found.verdict == "cannot tell"
    assert found.effective_rows <= 6


# ---------------------------------------------------------------------- reading times


def test_times_are_numbers_dates_or_text_of_dates() -> None:
    assert time_numbers([3.5, 1, 1, 9], 4).tolist() == [1, 0, 0, 2]
    dates = ["2024-02-01", "2023-12-31", "2024-01-01"]
    for form in (dates, pd.Series(pd.to_datetime(dates)), np.array(dates, "datetime64[D]")):
        assert time_numbers(form, 3).tolist() == [2, 0, 1]


def test_since_reads_what_the_times_are() -> None:
    dates = as_times(pd.Series(["2024-02-01", "2023-12-31", "2024-01-01"]), "times")
    assert not_before(dates, "2024-01-01", "since").tolist() == [True, False, True]
    zoned = dates.dt.tz_localize("Europe/Vienna")
    assert not_before(zoned, "2024-01-01", "since").tolist() == [True, False, True]
    assert not_before(dates, "2024-01-01T00:00:00Z", "since").tolist() == [True, False, True]
    assert not_before(pd.Series([1, 2, 3]), "2", "since").tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"groups": np.arange(ROWS)}, "both came; give one"),
        ({"times": np.arange(9)}, "one value for each of the 600 rows"),
        ({"times": [None, *range(ROWS - 1)]}, "missing values"),
        ({"times": ["2024-01-01"] * (ROWS - 1) + ["Ulm"]}, "dates but holds 'Ulm'"),
        ({"times": np.arange(ROWS) % 3}, "at least 5 different times"),
        ({"y": np.arange(ROWS) >= 580}, "two classes"),
    ],
)
def test_times_that_cannot_be_used_get_one_sentence(change: Any, words: str) -> None:
    x, y, masks, times = drift()
    given = {"y": y, "masks": masks, "times": times, **change}
    with pytest.raises(InputError, match=words) as caught:
        encoding_test(x, **given)
    assert_one_sentence(caught.value)
