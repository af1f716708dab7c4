"""The command line. Commands import what they need when they run, so that --help is quick."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from unmasked import __version__
from unmasked.cli.audit import audit
from unmasked.cli.demo import demo
from unmasked.cli.explain import explain
from unmasked.cli.explain_images import explain_images
from unmasked.cli.reproduce import app as reproduce
from unmasked.cli.study import app as study

app = typer.Typer(
    name="unmasked",
    help="Explanations of machine-learning predictions that can be checked.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"unmasked {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


app.command()(demo)
app.command()(explain)
app.command()(audit)
app.command()(explain_images)
app.add_typer(reproduce, name="reproduce")
app.add_typer(study, name="study")


def main() -> None:
    """Entry point of the ``unmasked`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # names of files need not be text everywhere
            stream.reconfigure(errors="backslashreplace")
    empty = next((w for w in sys.argv[1:] if not w or (w[:2] == "--" and w[-1] == "=")), None)
    if empty is not None:  # as a path it would be the folder that one is in
        what = f"{empty} has no value" if empty else "an argument is empty"
        typer.echo(f"error: {what}, perhaps for a variable that is not set; give one.", err=True)
        sys.exit(2)
    app()
