"""``unmasked study``: experts rank explanations blind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmasked.cli.common import Json, Quiet, Seed, command_line, one_sentence_errors
from unmasked.errors import InputError

if TYPE_CHECKING:
    from unmasked.study.create import Wording

app = typer.Typer(
    help="A reader study: experts rank explanations of images without knowing whose they are.",
    no_args_is_help=True,
)
Folder = Annotated[Path, typer.Argument(help="Folder of the study.", show_default=False)]
Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other computers in.")]
Port = Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)]
Names = Annotated[
    list[str] | None,
    typer.Option("--name", help="One more name by which readers call the server; repeatable."),
]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key", help="Where the key is. (default: FOLDER.key.json)"),
]
Database = Annotated[
    str | None,
    typer.Option(
        envvar="UNMASKED_STUDY_DATABASE",
        show_envvar=True,
        help="PostgreSQL that keeps the answers, such as postgresql+psycopg://user@host/name. "
        "(default: a file in FOLDER)",
        show_default=False,
    ),
]
STOPPED = "Answers are saved; serve the folder again to go on."


@app.callback()
def _main() -> None: ...


@app.command()
def create(
    folder: Folder,
    manifest: Annotated[
        Path | None, typer.Option(help="CSV with the columns image, method, mask.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Output folder of reproduce cxr or explain-images."),
    ] = None,
    cases: Annotated[int | None, typer.Option(help="How many cases. (default: all)")] = None,
    readers: Annotated[int, typer.Option(help="How many readers.", min=1, max=100)] = 2,
    reader: Annotated[
        list[str] | None, typer.Option(help="A reader's name instead; repeatable.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods, such as REAL-X,L2X. (default: all)")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the instructions.")] = None,
    question: Annotated[str | None, typer.Option(help="What readers rank by.")] = None,
    sufficient: Annotated[str | None, typer.Option(help="Label of the tick of an option.")] = None,
    instructions: Annotated[
        Path | None, typer.Option(help="Text file with instructions, a blank line between parts.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="File for the key. (default: FOLDER.key.json)")
    ] = None,
    url: Annotated[
        str, typer.Option(help="Where readers will reach the server.")
    ] = "http://127.0.0.1:8765",
    database: Database = None,
    seed: Seed = 0,
) -> None:
    """Make a study: draw cases, render selections, assign a random and balanced order."""
    with one_sentence_errors():
        from unmasked.study.serving import require_packages

        require_packages()
        from unmasked.study.create import create_study
        from unmasked.study.folder import find_manifest, read_manifest

        if (manifest is None) == (source is None):
            raise InputError("give either --manifest or --from, so that there are images to rank.")
        path = manifest if manifest is not None else find_manifest(source or Path())
        wanted = None if methods is None else [m.strip() for m in methods.split(",") if m.strip()]
        made = create_study(
            folder,
            read_manifest(path, wanted),
            reader or [f"Reader {i + 1}" for i in range(readers)],
            number=cases,
            seed=seed,
            wording=_wording(title, question, sufficient, instructions),
            key=key,
            database=database,
        )
        typer.echo(
            f"Cases: {made.cases}; methods: {len(made.methods)}; readers: {len(made.readers)}; in "
            f"{made.folder}\nThe key, which nobody who reads should see: {made.key}\n\n"
            "Links, shown this once (`unmasked study links` makes new ones):"
        )
        url = url.rstrip("/")
        for name, secret in made.readers:
            typer.echo(f"{name}: {url}/r/{secret}")
        more = "" if database is None else " --database …"
        typer.echo(f"owner: {url}/o/{made.owner}\n")
        typer.echo(f"Serve it: unmasked study serve {made.folder}{more}")


def _wording(
    title: str | None, question: str | None, sufficient: str | None, instructions: Path | None
) -> Wording:
    """Read the study's wording from the options, with the defaults where nothing was given."""
    from unmasked.study.create import Wording

    usual = Wording()
    paragraphs = usual.instructions
    if instructions is not None:
        try:
            text = instructions.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--instructions must be a text file but {error}.") from error
        paragraphs = tuple(part.strip() for part in text.split("\n\n") if part.strip())
    return Wording(
        title or usual.title,
        question or usual.question,
        sufficient or usual.sufficient,
        paragraphs,
    )


@app.command()
def serve(
    folder: Folder,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    name: Names = None,
    database: Database = None,
    workers: Annotated[
        int, typer.Option(help="Processes that serve; one that dies is started again.", min=1)
    ] = 1,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network of a proxy whose X-Forwarded-For is believed; repeatable."
        ),
    ] = None,
) -> None:
    """Serve a study to its readers' browsers until it is stopped."""
    with one_sentence_errors(STOPPED):
        from unmasked.study.serving import serve_study

        def ready(url: str) -> None:
            typer.echo(f"The study is served at {url} (Ctrl-C stops it).")
            if host not in ("127.0.0.1", "localhost", "::1"):
                typer.echo(
                    "note: other computers can reach it, without encryption; use it in a network "
                    "that you trust, or behind a proxy that speaks HTTPS. Links must have an "
                    "address that readers can reach: unmasked study links FOLDER --url URL.",
                    err=True,
                )

        serve_study(
            folder,
            host=host,
            port=port,
            names=name or (),
            database=database,
            workers=workers,
            proxies=proxy or (),
            ready=ready,
        )


@app.command()
def links(
    folder: Folder,
    reader: Annotated[
        list[str] | None, typer.Option(help="Whose link; repeatable. (default: everybody's)")
    ] = None,
    owner: Annotated[bool, typer.Option("--owner", help="The owner's link.")] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Only revoke links, make no new ones.")
    ] = False,
    url: Annotated[
        str, typer.Option(help="Where readers reach the server.")
    ] = "http://127.0.0.1:8765",
    database: Database = None,
) -> None:
    """Make new links, or revoke them. Earlier links of the same people stop working."""
    with one_sentence_errors():
        from unmasked.study.serving import require_packages

        require_packages()
        from unmasked.study.links import renew_links

        names = [*(reader or []), *(["owner"] if owner else [])]
        for name, path in renew_links(folder, names, revoke=revoke, database=database):
            typer.echo(f"{name}: {url.rstrip('/')}{path}" if path else f"{name}: revoked")


@app.command()
def close(folder: Folder, database: Database = None) -> None:
    """End a study for all readers; no answer can be changed after this."""
    with one_sentence_errors():
        from unmasked.study.serving import require_packages

        require_packages()
        from unmasked.study.database import open_database
        from unmasked.study.folder import read_study

        study = read_study(folder)
        opened = open_database(study.where(database), study.digest)
        try:
            opened.close_study()
        finally:
            opened.close()
        typer.echo("The study is closed.")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the study.")] = Path("study-demo"),
    host: Host = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="Port to listen on. (default: the first free from 8765)")
    ] = None,
    cases: Annotated[int, typer.Option(help="How many cases.", min=1, max=500)] = 8,
    seed: Seed = 0,
) -> None:
    """Try it: a small study on drawn X-rays, served at once to two example readers."""
    with one_sentence_errors(STOPPED):
        from unmasked.study.serving import (
            PORT,
            bound_socket,
            free_port,
            require_packages,
            serve_study,
        )

        require_packages()
        from unmasked.study.links import renew_links
        from unmasked.study.power import check_demo, create_demo

        chosen = free_port(host, PORT) if port is None else port
        bound_socket(host, chosen).close()  # a port in use is told before links are made anew
        if os.path.lexists(out):  # a demonstration that goes on
            check_demo(out)
            secrets = [path for _, path in renew_links(out)]
        else:
            made = create_demo(out, cases=cases, seed=seed)
            secrets = [f"/r/{secret}" for _, secret in made.readers] + [f"/o/{made.owner}"]

        def ready(url: str) -> None:
            *readers, owner = secrets
            for path in readers:
                typer.echo(f"{url}{path}")
            typer.echo(
                f"Open a link above to be that reader. The owner's: {url}{owner}\n"
                f"Ctrl-C stops the server; then: unmasked study analyse {out}",
                err=True,
            )

        serve_study(out, host=host, port=chosen, ready=ready)


@app.command()
def analyse(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results. (default: FOLDER-analysis)")
    ] = None,
    key: KeyFile = None,
    database: Database = None,
    draws: Annotated[
        int, typer.Option(help="Bootstrap samples and permutations.", min=100, max=100_000)
    ] = 2000,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Open the key: mean ranks, tests, agreement of readers, sufficiency; tables and a report."""
    with one_sentence_errors():
        from unmasked.study.serving import require_packages

        require_packages()
        from unmasked.study.analysis import analyse as run
        from unmasked.study.analysis import read_ratings
        from unmasked.study.report import write_analysis
        from unmasked.study.tables import as_text

        found = run(read_ratings(folder, key, database), draws=draws, seed=seed)
        place = out or folder.resolve().with_name(folder.resolve().name + "-analysis")
        words = write_analysis(place, found, command_line())
        if json:
            typer.echo((place / "results.json").read_text(encoding="utf-8"))
        elif not quiet:
            typer.echo(as_text(found))
            for sentence in words:
                typer.echo(f"• {sentence}")
            typer.echo(f"\nReport: {place / 'report.html'}")


@app.command()
def power(
    effect: Annotated[
        float,
        typer.Option(
            help="Share of cases in which a reader, made to choose, puts the best method above a "
            "given other one; 0.5 is no effect. All others are supposed equally good."
        ),
    ],
    methods: Annotated[int, typer.Option(help="How many methods are compared.")] = 4,
    readers: Annotated[str, typer.Option(help="Numbers of readers to try.")] = "1,2,3,4",
    agreement: Annotated[
        float,
        typer.Option(
            help="Correlation of what two readers see in a case, beyond the effect: 0, each sees "
            "something else; near 1, a second reader adds nothing."
        ),
    ] = 0.5,
    ties: Annotated[float, typer.Option(help="How often two equally good methods are tied.")] = 0.1,
    wanted: Annotated[
        float, typer.Option("--power", help="Share of studies that should succeed.")
    ] = 0.8,
    level: Annotated[float, typer.Option(help="Level of the tests.")] = 0.05,
    studies: Annotated[int, typer.Option(help="Simulated studies for each size.", min=100)] = 1000,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Estimate how many cases and readers are needed, by simulated studies.

    A study succeeds when the best method is better than every other one: Wilcoxon's test over
    cases, after Holm's correction over all pairs, as in study analyse.
    """
    with one_sentence_errors():
        from unmasked.study.power import CASES, Design, needed, power_table

        try:
            numbers = [int(part) for part in readers.split(",")]
        except ValueError:
            numbers = []
        if not numbers or not all(1 <= n <= 100 for n in numbers) or not 0 < wanted < 1:
            raise InputError(
                f"--readers must list numbers from 1 to 100 and --power lie between 0 and 1 but "
                f"are {readers!r} and {wanted:g}."
            )
        design = Design(effect, methods, agreement, ties, level)
        rows = power_table(design, numbers, wanted=wanted, studies=studies, seed=seed)
        enough = needed(rows, wanted)
        if json:
            from dataclasses import asdict
            from json import dumps

            typer.echo(
                dumps(
                    {**asdict(design), "mean_ranks": design.mean_ranks}
                    | {"rows": [asdict(r) for r in rows], "cases": enough}
                )
            )
            return
        best, others = design.mean_ranks
        typer.echo(
            f"Supposed: the best of {methods} methods stands above a given other one in "
            f"{effect:.0%} of a reader's cases.\nMean ranks are then {best:.2f} for the best and "
            f"{others:.2f} for each other one, before ties.\n"
        )
        typer.echo("readers  cases  power (± SE)   Friedman")
        for row in rows:
            typer.echo(
                f"{row.readers:7d}  {row.cases:5d}  {row.power:.3f} ± {row.se:.3f}  "
                f"{row.friedman:8.3f}"
            )
        typer.echo("")
        for number, cases in enough.items():
            name = "1 reader" if number == 1 else f"{number} readers"
            found = f"{cases} cases" if cases else f"more than {max(CASES)} cases"
            typer.echo(f"{name}: {found} for a power of {wanted:g}")
