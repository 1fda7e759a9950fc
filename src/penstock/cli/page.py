"""`penstock page`: shows a results folder in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.common import Conf, Functions, PageToken, Tune, read_script
from penstock.page.listening import DEFAULT_PORT, LOOPBACK, METRICS_TOKEN_VARIABLE

Folder = Annotated[str, typer.Argument(help="Results folder of a run.", metavar="DIR")]


def page(
    folder: Folder,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65_535)] = DEFAULT_PORT,
    host: Annotated[
        str, typer.Option(help="Name or address of the interface; any but loopback requires a token.")
    ] = LOOPBACK,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Serve only /metrics, for Prometheus, at this address instead of --host and --port.",
            metavar="[HOST:]PORT",
            show_default=False,
        ),
    ] = None,
    page_token: PageToken = None,
    script: Annotated[
        Path | None,
        typer.Option(
            help="Script of the run: by it, and with Spark, the page explains why a tuple does not match, and tries drafts.",
            metavar="SCRIPT",
            show_default=False,
        ),
    ] = None,
    conf: Conf = None,
    tune: Tune = None,
    functions: Functions = None,
    listening: Annotated[int | None, typer.Option(hidden=True)] = None,
    metrics_listening: Annotated[int | None, typer.Option(hidden=True)] = None,
    metrics_token: Annotated[
        str | None, typer.Option(hidden=True, envvar=METRICS_TOKEN_VARIABLE, show_envvar=False)
    ] = None,
) -> None:
    """Show the results folder of a run in a browser, until Ctrl-C. The page is read-only."""
    import socket

    from penstock.page.asking import Script
    from penstock.page.child import page_address
    from penstock.page.listening import Place

    asked = None if script is None else Script.of(script, functions, conf or (), tune or ())
    given = ((listening, page_token, False), (metrics_listening, metrics_token, True))
    places = [
        Place.of(socket.socket(fileno=number), token, metrics_alone=alone)
        for number, token, alone in given
        if number is not None
    ]
    is_child = bool(places)
    if not is_child:
        from penstock.monitor.folder import folder_layout

        folder_layout(folder)
        if script is not None:
            read_script(script)
        if metrics is not None:
            host, port = page_address(metrics, "--metrics")
        places = [Place.taken(host, port, page_token, metrics_alone=metrics is not None)]
        print(f"{'Page' if metrics is None else 'Metrics'}: {places[0].address}", flush=True)
    from penstock.page.server import serve

    serve(folder, places, is_child=is_child, script=asked)
