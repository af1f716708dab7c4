"""The reader study: experts rank explanations blind.

::

    manifest.csv ── create ──> STUDY/            study.json, pictures/, answers.sqlite
                          └──> STUDY.key.json    which option is which method, kept apart
    STUDY/ ── serve ──> readers' browsers ──> answers.sqlite (append-only)
    STUDY/ + STUDY.key.json ── analyse ──> tables, a plot, a report

Only `analysis` and `create` know the key's file; the server has no code that opens it.
"""
