"""`penstock page`: shows a results folder in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[Path, typer.Argument(help="Results folder of a run.", metavar="DIR")]


def page(
    folder: Folder,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65_535)] = 4088,
    host: Annotated[
        str, typer.Option(help="Name or address of the interface; any but loopback requires a token.")
    ] = "127.0.0.1",
    page_token: Annotated[
        str | None,
        typer.Option(
            help="Token that requests must bring; default: made and printed where other machines can connect.",
            envvar="PENSTOCK_PAGE_TOKEN",
            show_default=False,
        ),
    ] = None,
    descriptor: Annotated[int | None, typer.Option("--listening", hidden=True)] = None,
) -> None:
    """Show the results folder of a run in a browser, until Ctrl-C. The page is read-only."""
    import socket

    from penstock.page.server import address_of, listen, rules_of, serve

    if descriptor is not None:
        listening = socket.socket(fileno=descriptor)
        serve(folder, listening, rules_of(listening, page_token), is_child=True)
        return
    from penstock.monitor.folder import folder_layout

    folder_layout(folder)
    listening = listen(host, port)
    rules = rules_of(listening, page_token)
    print(f"Page: {address_of(listening, rules.token)}", flush=True)
    serve(folder, listening, rules)
