"""The routes of the page."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import unquote

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from penstock.errors import DamagedError, InputError, PenstockError, UnknownNameError
from penstock.monitor.book import Document
from penstock.page.answers import encoded
from penstock.page.asking import Asking, Script
from penstock.page.deadlines import Outcomes, deadlines_answer
from penstock.page.folder import FolderReader, Snapshot, UnreadError
from penstock.page.guard import Guard, Refusal, is_browser
from penstock.page.listening import Rules
from penstock.page.metrics import Exposition
from penstock.page.plans import plans_answer
from penstock.page.quarantine import MOST_LIMIT as MOST_RECORDS
from penstock.page.quarantine import quarantine_answer, records_answer
from penstock.page.rows import FORMATS, ORDERS, Asked, file_name, rows_answer, rows_file
from penstock.page.rows import MOST_LIMIT as MOST_ROWS
from penstock.page.view import view_answer
from penstock.page.views import KINDS, MOST_LIMIT, ONLY, SORTS, one_of
from penstock.page.windows import window_answer, windows_answer

_log = logging.getLogger(__name__)
STATIC = Path(str(resources.files("penstock.page"))) / "static"
#: addresses that index.html answers; a name is one part of them, whatever it has
PAGES = (
    *("/", "/queries", "/queries/{name}", "/windows", "/windows/{name}", "/plans", "/deadlines"),
    *("/rows", "/rows/{name}", "/quarantine", "/quarantine/{name}"),
)
#: header of the questions that start Spark
ASKED = "penstock-ask"
#: open streams of /api/changes
_MOST_CLIENTS = 300
#: seconds: least between two overviews of a client, and between two signs of life
_CHANGES_SECONDS, _ALIVE_SECONDS = 1.0, 5.0
#: answers that are worked out at a time
_WORKERS = 4
#: seconds that a scrape spends on what promises came to
_SCRAPE_SECONDS = 0.2
#: requests that may wait for one of these
_MOST_WAITING = 64

#: bytes of a file that are sent in one go
_PART = 1 << 16

Worked = TypeVar("Worked")
Answer = Callable[[Request, Snapshot], bytes]


class _Static(StaticFiles):
    """Files of the page; a browser asks each time whether they have changed."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "no-cache"
        return response


class Routes:
    """What the page answers.

    Args:
        reader: follows the folder.
        script: by which it answers what needs Spark; None: it does not.
    """

    def __init__(self, reader: FolderReader, script: Script | None = None) -> None:
        self._reader = reader
        self._asking = Asking(script, reader.folder)
        self._clients = 0
        self._changed = asyncio.Event()
        self._is_closing = False
        self._workers = CapacityLimiter(_WORKERS)
        self._judgements, self._outcomes = reader.judgements, Outcomes()
        self._exposition = Exposition(reader.current, self._kept)

    def app(self, rules: Rules, *, metrics_alone: bool = False) -> ASGIApp:
        """The page as an ASGI application; it reads the folder as long as it runs.

        Args:
            rules: who may ask.
            metrics_alone: whether /metrics is all that it answers.
        """
        routes: list[Route | Mount] = [
            *(Route(path, _index) for path in PAGES),
            Route("/api/overview", self._answers(lambda _, snapshot: _timed(snapshot.overview))),
            Route("/api/changes", self._changes),
            Route("/api/views", self._answers(_views)),
            Route("/api/views/{name}", self._answers(self._view)),
            Route("/api/views/{name}/why", self._why),
            Route("/api/views/{name}/try", self._try),
            Route("/api/windows", self._answers(self._windows)),
            Route("/api/windows/{name}", self._answers(self._window)),
            Route("/api/plans", self._answers(lambda _, snapshot: plans_answer(snapshot))),
            Route("/api/deadlines", self._answers(self._deadlines)),
            Route("/api/rows/{name}", self._answers(self._rows)),
            Route("/api/rows/{name}/download", self._download),
            Route("/api/quarantine", self._answers(lambda _, snapshot: quarantine_answer(snapshot))),
            Route("/api/quarantine/{name}", self._answers(self._records)),
            Mount("/static", _Static(directory=STATIC)),
        ]
        metrics = [Route("/metrics", self._scrape), Route("/healthz", _healthy)]
        handlers: dict[Any, Any] = {HTTPException: _http_error, PenstockError: _failure}
        app = Starlette(
            routes=metrics if metrics_alone else [*metrics, *routes],
            exception_handlers=handlers,
            lifespan=self._lifespan,
        )
        return Guard(app, rules)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def published() -> None:
            loop.call_soon_threadsafe(self._publish)

        self._reader.published = published
        self._reader.start()
        try:
            yield
        finally:
            await to_thread.run_sync(self._reader.close)

    def close(self) -> None:
        """Ends the open streams."""
        self._is_closing = True
        self._publish()

    def _publish(self) -> None:
        """Wakes whoever waits for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _view(self, request: Request, snapshot: Snapshot) -> bytes:
        return view_answer(self._reader.layout, snapshot, named(request), self._asking.script)

    async def _why(self, request: Request) -> Response:
        asked, view = request.query_params, await self._asked_view(request)
        record = number(request, "quarantined", 1, 1 << 31) if "quarantined" in asked else None
        relation = asked.get("input") or None
        answer = self._asking.why(view, row=asked.get("row"), quarantined=record, relation=relation)
        return await _awaited(request, answer)

    async def _try(self, request: Request) -> Response:
        asked, view = request.query_params, await self._asked_view(request)
        answer = self._asking.attempt(view, sql=asked.get("sql") or None, since=asked.get("since") or None)
        return await _awaited(request, answer)

    async def _asked_view(self, request: Request) -> str:
        """The whole name of the view that is asked about."""
        # a page of another origin cannot send it without asking first, which is refused
        if request.headers.get(ASKED) is None:
            raise HTTPException(400, f"Questions that start Spark need the header {ASKED}: 1.")
        if request.method == "HEAD":
            raise HTTPException(405, "Questions are asked with GET.")
        snapshot = await to_thread.run_sync(self._reader.current, limiter=self._workers)
        return snapshot.views.index.named(named(request))

    def _windows(self, _: Request, snapshot: Snapshot) -> bytes:
        return windows_answer(self._reader.layout, snapshot, self._judgements)

    def _window(self, request: Request, snapshot: Snapshot) -> bytes:
        asked = request.query_params
        return window_answer(
            self._reader.layout,
            snapshot,
            self._judgements,
            named(request),
            key=asked.get("key") or None,
            value=asked.get("value") or None,
        )

    def _deadlines(self, _: Request, snapshot: Snapshot) -> bytes:
        return deadlines_answer(self._reader.layout, snapshot, self._outcomes)

    def _rows(self, request: Request, snapshot: Snapshot) -> bytes:
        given = request.query_params
        asked = Asked(
            limit=number(request, "limit", 100, MOST_ROWS),
            search=given.get("search", ""),
            order=one_of("order", given.get("order", ORDERS[0]), ORDERS),
            at=number(request, "at", 0, 1 << 53) if "at" in given else None,
            is_back=one_of("back", given.get("back", "0"), ("0", "1")) == "1",
        )
        return rows_answer(self._reader.layout, snapshot, named(request), asked)

    def _records(self, request: Request, snapshot: Snapshot) -> bytes:
        limit = number(request, "limit", 100, MOST_RECORDS)
        reason = request.query_params.get("reason", "")
        return records_answer(self._reader.layout, snapshot, named(request), reason, limit)

    async def _download(self, request: Request) -> Response:
        file_format = one_of("format", request.query_params.get("format", "csv"), tuple(FORMATS))
        search, name = request.query_params.get("search", ""), named(request)

        def work() -> IO[bytes]:
            return rows_file(self._reader.layout, self._reader.current(), name, file_format, search)

        file = await self._worked_out(request, work)
        if isinstance(file, Response):
            return file
        shown = f'attachment; filename="{file_name(name, file_format)}"'
        headers = {"content-disposition": shown}
        if request.method == "HEAD":
            file.close()
            return Response(media_type=FORMATS[file_format], headers=headers)
        return StreamingResponse(_sent(file), media_type=FORMATS[file_format], headers=headers)

    async def _worked_out(self, request: Request, work: Callable[[], Worked]) -> Worked | Response:
        """What a thread of the page works out, or why it cannot."""
        if self._workers.statistics().tasks_waiting >= _MOST_WAITING:
            raise HTTPException(429, "The page has too many requests to answer; try again in a moment.")
        try:
            return await to_thread.run_sync(work, limiter=self._workers)
        except PenstockError:
            raise
        except Exception as error:
            # a file of another version, or half of one: the page goes on
            _log.warning("cannot answer %s: %s: %s", request.url.path, type(error).__name__, error)
            return Refusal(503, "The page cannot answer this now: a file of the folder cannot be read.")

    def _kept(self, views: Mapping[str, Document]) -> Mapping[str, float | None]:
        found = self._judgements.of(self._reader.layout, views, _SCRAPE_SECONDS)
        return {name: None if judgement is None else judgement.within for name, judgement in found.items()}

    async def _scrape(self, request: Request) -> Response:
        accepted = request.headers.get("accept", "")
        answer = await self._worked_out(request, lambda: self._exposition.answer(accepted))
        if isinstance(answer, Response):
            return answer
        content, content_type = answer
        return Response(content, headers={"content-type": content_type})

    def _answers(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """A route that works out its answer beside the others, from the newest snapshot."""

        async def endpoint(request: Request) -> Response:
            content = await self._worked_out(request, lambda: answer(request, self._reader.current()))
            if isinstance(content, Response):
                return content
            return _json(content)

        return endpoint

    async def _changes(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if self._clients >= _MOST_CLIENTS:
            raise HTTPException(503, f"The page follows changes for {_MOST_CLIENTS} clients at most.")
        await to_thread.run_sync(self._reader.current, limiter=self._workers)
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[bytes]:
        self._clients += 1
        try:
            sent = 0
            while not self._is_closing:
                self._reader.touch()
                changed = self._changed
                snapshot = self._reader.newest
                if snapshot is not None and snapshot.version != sent:
                    sent = snapshot.version
                    yield b"event: overview\ndata: " + _timed(snapshot.overview) + b"\n\n"
                    await asyncio.sleep(_CHANGES_SECONDS)
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), _ALIVE_SECONDS)
                except TimeoutError:
                    yield b": alive\n\n"
        finally:
            self._clients -= 1


def _timed(overview: bytes) -> bytes:
    """An overview, a JSON object, with the time at which it is sent: that of a run that has ended was read long ago."""
    return b'{"now":%.3f,' % time.time() + overview.removeprefix(b"{")


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


async def _awaited(request: Request, answer: Coroutine[Any, Any, bytes]) -> Response:
    """An answer to a question, which ends when the reader leaves."""
    asked, left = asyncio.create_task(answer), asyncio.create_task(_left(request))
    try:
        await asyncio.wait((asked, left), return_when=asyncio.FIRST_COMPLETED)
        # nobody reads the answer to a reader who has left
        return _json(await asked) if asked.done() else Response(status_code=204)
    finally:
        asked.cancel()
        left.cancel()
        await asyncio.gather(asked, left, return_exceptions=True)


async def _left(request: Request) -> None:
    """Returns when the connection of a request is closed."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _views(request: Request, snapshot: Snapshot) -> bytes:
    asked = request.query_params
    return snapshot.views.answer(
        snapshot.version,
        search=asked.get("search", ""),
        sort=one_of("sort", asked.get("sort", "rows"), SORTS),
        order=one_of("order", asked.get("order", "desc"), ("asc", "desc")),
        kind=one_of("kind", asked.get("kind", ""), ("", *KINDS)),
        only=one_of("only", asked.get("only", ""), ("", *ONLY)),
        offset=number(request, "offset", 0, 1 << 53),
        limit=number(request, "limit", 100, MOST_LIMIT),
    )


def _sent(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while content := file.read(_PART):
            yield content


def number(request: Request, name: str, default: int, most: int) -> int:
    """A parameter that is a number.

    Args:
        request: what is asked.
        name: the parameter's.
        default: where it is not given.
        most: the largest that is allowed; the smallest is 0.

    Raises:
        InputError: it is none, or is too large.
    """
    given = request.query_params.get(name)
    if given is None:
        return default
    if not given.isascii() or not given.isdigit() or len(given) > 16 or int(given) > most:
        raise InputError(f"{name}={given[:40]}: a number from 0 to {most:,} is allowed.")
    return int(given)


def named(request: Request) -> str:
    """The name in an address."""
    return unquote(request.path_params["name"], errors="replace")


async def _index(_: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})


async def _healthy(_: Request) -> Response:
    return _json(encoded({"healthy": True}))


async def _http_error(request: Request, error: HTTPException) -> Response:
    if error.status_code == 404 and is_browser(request.headers):
        # the page itself says that it has no such address
        return FileResponse(STATIC / "index.html", 404, headers={"cache-control": "no-cache"})
    sentences = {404: "The page has no such address.", 405: "The page is read-only: it answers GET and HEAD."}
    return Refusal(error.status_code, sentences.get(error.status_code, error.detail))


async def _failure(_: Request, error: PenstockError) -> Response:
    if isinstance(error, UnknownNameError):
        return Refusal(404, str(error))
    if isinstance(error, DamagedError):
        return Refusal(503, f"{error.path} {error.fault}")
    return Refusal(
        400 if isinstance(error, InputError) and not isinstance(error, UnreadError) else 503, str(error)
    )
