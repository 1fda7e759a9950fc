"""`penstock page`: shows a results folder in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.common import Conf, Functions, PageToken, Tune, read_script
from penstock.page.listening import DEFAULT_PORT, LOOPBACK

Folder = Annotated[Path, typer.Argument(help="Results folder of a run.", metavar="DIR")]


def page(
    folder: Folder,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65_535)] = DEFAULT_PORT,
    host: Annotated[
        str, typer.Option(help="Name or address of the interface; any but loopback requires a token.")
    ] = LOOPBACK,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Serve /metrics for Prometheus alone, at this address instead of --host and --port.",
            metavar="[HOST:]PORT",
            show_default=False,
        ),
    ] = None,
    page_token: PageToken = None,
    script: Annotated[
        Path | None,
        typer.Option(
            help="Script of the run: the page answers why a tuple is no row and tries drafts by it, with Spark.",
            metavar="SCRIPT",
            show_default=False,
        ),
    ] = None,
    conf: Conf = None,
    tune: Tune = None,
    functions: Functions = None,
    descriptor: Annotated[int | None, typer.Option("--listening", hidden=True)] = None,
    metrics_alone: Annotated[bool, typer.Option("--metrics-alone", hidden=True)] = False,
) -> None:
    """Show the results folder of a run in a browser, until Ctrl-C. The page is read-only."""
    import socket

    from penstock.page.asking import Script
    from penstock.page.child import page_address
    from penstock.page.listening import address_of, listen, rules_of

    asked = None if script is None else Script.of(script, functions, conf or (), tune or ())
    if descriptor is not None:
        from penstock.page.server import serve

        listening = socket.socket(fileno=descriptor)
        rules = rules_of(listening, page_token)
        serve(folder, listening, rules, is_child=True, metrics_alone=metrics_alone, script=asked)
        return
    if script is not None:
        read_script(script)
    from penstock.monitor.folder import folder_layout

    folder_layout(folder)
    if metrics is not None:
        host, port = page_address(metrics, "--metrics")
    listening = listen(host, port)
    rules = rules_of(listening, page_token)
    address = address_of(listening, rules.token, metrics_alone=metrics is not None)
    print(f"{'Page' if metrics is None else 'Metrics'}: {address}", flush=True)
    from penstock.page.server import serve

    serve(folder, listening, rules, metrics_alone=metrics is not None, script=asked)
