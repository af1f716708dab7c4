"""Share what the commands need: options, one-sentence errors with exit code 2, quiet output."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from unmasked.errors import InputError, OutputError, UnmaskedError, UnmaskedWarning

if TYPE_CHECKING:
    from unmasked.evaluation import Scores
    from unmasked.training.progress import Show

Seed = Annotated[int, typer.Option(help="Everything random follows from this number.", min=0)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, …")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
Epochs = Annotated[
    int | None, typer.Option(help="Passes over the training rows; default: chosen by size.", min=1)
]


@contextmanager
def one_sentence_errors(resume_hint: str = "") -> Iterator[None]:
    """User errors become one sentence and exit code 2; Ctrl-C becomes exit code 130.

    Warnings become notes, each said once, from however many places it comes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("default", UnmaskedWarning)
        warnings.showwarning = _Notes()
        try:
            yield
        except UnmaskedError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo(f"stopped. {resume_hint}".rstrip(), err=True)
            raise typer.Exit(130) from None


@contextmanager
def only_run(folder: Path) -> Iterator[None]:
    """Refuse to work on an output folder while another run of the same user and machine does."""
    from filelock import FileLock, Timeout

    user = os.getuid() if hasattr(os, "getuid") else 0
    own = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    try:
        lock = FileLock(Path(tempfile.gettempdir()) / f"unmasked-{user}-{own}.lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise OutputError(
            f"another run of unmasked is working on {folder}; wait until it ends, or choose "
            "another folder with --out."
        ) from None
    except (OSError, NotImplementedError):  # where nothing can be locked, runs are not kept apart
        yield
        return
    try:
        yield
    finally:
        lock.release()


class _Notes:
    """Prints each of our warnings once; stands in for ``warnings.showwarning``."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def __call__(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, UnmaskedWarning) and str(message) not in self._printed:
            self._printed.add(str(message))
            typer.echo(f"note: {message}", err=True)


def command_line() -> str:
    """The command as the user gave it, with no more of absolute paths than where they end and of
    addresses than how they begin.

    It goes into results, which are passed on: where things lie on a machine is nobody's business.
    """
    program = Path(sys.argv[0]).name
    name = "python -m unmasked" if program == "__main__.py" else program
    return " ".join([name, *(shlex.quote(_passed_on(argument)) for argument in sys.argv[1:])])


def _passed_on(argument: str) -> str:
    """An argument without the folders of an absolute path, also behind --option= or NAME=.

    >>> [_passed_on(given) for given in ("/home/ann/films", "--out=/home/ann/out", "a/b", "/")]
    ['films', '--out=out', 'a/b', '/']
    >>> _passed_on("SHAP=/home/ann/k=v/shap.csv")
    'SHAP=shap.csv'
    >>> _passed_on("--database=postgresql://ann:secret@host/name")
    '--database=postgresql://…'
    """
    name, equals, value = argument.partition("=")
    if not Path(argument).is_absolute() and equals:
        return f"{name}={_passed_on(value)}"
    scheme, is_url, _ = argument.partition("://")
    if is_url:  # it may hold a password
        return f"{scheme}://…"
    path = Path(argument)
    return path.name if path.is_absolute() and path.name else argument


def shown(*, quiet: bool, json: bool) -> Show:
    """Choose how to show progress: bars on a terminal, lines in a log, nothing if unwelcome."""
    if quiet or json:
        return False
    return "auto" if sys.stderr.isatty() else "lines"


RESUME = "Run the same command again to go on where it stopped."


def say(
    results: dict[str, Any],
    sentences: Sequence[str],
    end: str,
    *,
    json: bool,
    quiet: bool,
    more: Sequence[str] = (),
) -> None:
    """Print a command's end: ``results.json``, sentences and where to look, or nothing."""
    if json:
        from unmasked.io.output_folder import to_json

        typer.echo(to_json(results))
    elif not quiet:
        for sentence in sentences:
            typer.echo(f"• {sentence}")
        for line in more:
            typer.echo(line)
        typer.echo(f"\n{end}")


def without_remarks(scores: Scores) -> Scores:
    """Scores to be printed below a summary, which holds their remarks."""
    return replace(scores, remarks=[])


def read_sparsity(text: str) -> float | list[float] | str:
    """``--sparsity`` as it was written: a number, several, or auto."""
    if text == "auto":
        return text
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--sparsity must be a number, numbers such as 0.1,0.2 or auto but is {text!r}."
        ) from None
    return values[0] if len(values) == 1 else values


def of_the_model(prices: float | list[float] | str) -> float | None:
    """``--sparsity`` beside ``--model``: a λ that it was trained with; None is the chosen one."""
    if isinstance(prices, list):
        raise InputError(
            "beside --model, --sparsity must be one of the λ that the model was trained with but "
            f"is {', '.join(f'{price:g}' for price in prices)}; give one."
        )
    return None if isinstance(prices, str) else prices
