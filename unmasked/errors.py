"""The family of errors and warnings that unmasked raises.

::

    UnmaskedError
    ├── InputError      (ValueError)   what the caller passed cannot be used
    ├── SavedError      (ValueError)   a saved folder or file is damaged, foreign or too new
    ├── OutputError     (OSError)      results cannot be written where they should go
    └── MissingExtra    (ImportError)  an optional package is needed and absent

    UnmaskedWarning     (UserWarning)
    ├── DataWarning                    the data are usable, but look at this
    ├── CoverageWarning                an evaluator is asked about masks it never saw
    ├── MemoryWarning                  memory did not suffice for all at once; done in parts
    └── InterruptedWarning             training was stopped early by the user

Every message is one sentence in one form: what was expected, what came, what to do.
"""

from __future__ import annotations


class UnmaskedError(Exception):
    """Base of all errors raised on purpose by this package."""


class InputError(UnmaskedError, ValueError):
    """Error for arguments, data or options from the caller that cannot be used."""


class SavedError(UnmaskedError, ValueError):
    """A saved folder or file is damaged, foreign, or from a newer version."""


class OutputError(UnmaskedError, OSError):
    """Results cannot be written where they should go."""


class MissingExtra(UnmaskedError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str, what: str) -> None:
        super().__init__(
            f"{what} needs the package {package!r}, which is not installed; "
            f'run: pip install "unmasked[{extra}]".'
        )


class UnmaskedWarning(UserWarning):
    """Base of all warnings of this package."""


class DataWarning(UnmaskedWarning):
    """The data are usable, but something about them deserves a look."""


class CoverageWarning(UnmaskedWarning):
    """An evaluator is asked about mask sizes that it did not see in training."""


class InterruptedWarning(UnmaskedWarning):
    """Training was stopped early by the user; what was learned so far is kept."""


class MemoryWarning(UnmaskedWarning):
    """The device's memory did not suffice for all at once; the work is done in parts."""
