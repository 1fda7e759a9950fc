"""The sink `http`: alerts as requests, each with a key that a repeated one has too.

A request that fails for a while is repeated; one that the server refuses for good goes to a file of dead letters.
"""

from __future__ import annotations

import base64
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from penstock.errors import InputError, SqlError, TypeMismatchError
from penstock.plan.spark_types import spark_name
from penstock.redaction import masked_known, remember
from penstock.spark.results.texts import has_form
from penstock.spark.sinks import options
from penstock.spark.sinks.delivery import Delivery, Mode
from penstock.spark.sinks.digests import Digests
from penstock.spark.sinks.lengths import seconds
from penstock.spark.sinks.options import example
from penstock.spark.sinks.providers import Opens, Promise, SinkTable, TargetHome
from penstock.spark.sinks.published import Limits
from penstock.spark.sinks.templates import Template, objects_of

#: refusals that pass
_PASSING = (408, 425, 429)
#: names beside the columns that a template may have places for: of a row, and of a batch or digest
_OF_ROW = ("view", "row", "key")
_OF_ROWS = ("view", "rows", "count", "key")
_SLACK = '{"text": "${view}: ${row}"}'
_SLACK_ROWS = '{"text": "${view}: ${count} rows, ${key}: ${rows}"}'
_SEVERITIES = ("warning", "info", "error", "critical")
#: what a request waits for an answer, seconds
_TIMEOUT_SECONDS = 30.0
#: of a delivery: a stop waits for its end
_MOST_ROWS = 100
#: what no address and no header may hold
_UNSENDABLE = re.compile(r"[\x00-\x1f\x7f]")


class _Refused(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the request would be sent again without its body, and with its headers to another host."""

    def redirect_request(self, *_: Any) -> None:
        """Leave the answer as it is."""


_OPENER = urllib.request.build_opener(_Refused)


@dataclass(frozen=True, slots=True)
class _Alerts:
    """What is sent, and where.

    Attributes:
        view: whose rows.
        url, headers: of each request.
        one, many: the bodies of a row, and of a batch or digest.
        is_by_batch: whether a delivery is one request.
        at_most_seconds: least time between two requests of one key; 0: all are sent.
        group_by: the columns of the key.
        timeout_seconds: how long an answer is waited for.
        dead_letters: the file of what the server refuses; None: beside what the sink keeps.
    """

    view: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    one: Template = field(repr=False)
    many: Template = field(repr=False)
    is_by_batch: bool
    at_most_seconds: float
    group_by: tuple[str, ...]
    timeout_seconds: float
    dead_letters: Path | None

    @property
    def host(self) -> str:
        """The server, for messages: the rest of the address may be a secret."""
        return urllib.parse.urlsplit(self.url).hostname or "?"


@dataclass(slots=True)
class _Sent:
    """Which requests of a delivery the server has, though the delivery was not taken as a whole.

    Attributes:
        delivery: its number.
        keys: of the requests.
    """

    delivery: int = -1
    keys: set[str] = field(default_factory=set)


class _HttpTarget:
    def __init__(self, alerts: _Alerts, sent: _Sent, home: TargetHome) -> None:
        self._alerts = alerts
        self._sent = sent
        self._home = home
        self._digests = Digests(home.folder / "digests.json", alerts.at_most_seconds)
        self._dead = alerts.dead_letters or home.folder / "dead-letters.jsonl"

    def deliver(self, delivery: Delivery) -> None:
        if self._alerts.at_most_seconds and self._digests.has(delivery.number):
            return
        if self._sent.delivery != delivery.number:
            self._sent.delivery, self._sent.keys = delivery.number, set()
        rows = objects_of(delivery.rows)
        if self._alerts.is_by_batch:
            values = {"view": delivery.view, "rows": rows, "count": len(rows), "key": ""}
            self._send(f"{delivery.sink}-{delivery.number}", self._alerts.many.filled(values), len(rows))
            return
        for ordinal, row in zip(delivery.ordinals, rows, strict=True):
            key = self._key(row)
            is_due = not self._alerts.at_most_seconds or self._digests.admit(key, ordinal, row, time.time())
            if is_due:
                values = {**row, "view": delivery.view, "row": row, "key": key}
                self._send(f"{delivery.sink}-{ordinal}", self._alerts.one.filled(values), 1)
        if self._alerts.at_most_seconds:
            self._digests.taken(delivery.number)

    def idle(self, *, is_over: bool) -> None:
        """Sends the digests that are due."""
        if not self._alerts.at_most_seconds:
            return
        now = time.time()
        for key, waiting in self._digests.due(now, is_over=is_over):
            values = {"view": self._alerts.view, "rows": waiting.rows, "count": waiting.count, "key": key}
            body = self._alerts.many.filled(values)
            self._send(f"{self._home.id}-digest-{waiting.first}", body, waiting.count)
            self._digests.sent(key, now)

    def close(self) -> None:
        """Do nothing: each request has a connection of its own."""

    def _key(self, row: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {row[name]}" for name in self._alerts.group_by)

    def _send(self, key: str, body: bytes, rows: int) -> None:
        """Sends a request, unless it was sent for this delivery before.

        Raises:
            ConnectionError: the server does not answer, or refuses for a while.
        """
        if key in self._sent.keys:
            return
        headers = {"Content-Type": "application/json", "Idempotency-Key": key, **self._alerts.headers}
        request = urllib.request.Request(self._alerts.url, body, headers, method="POST")
        try:
            with _OPENER.open(request, timeout=self._alerts.timeout_seconds):
                pass
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 400:
                raise ConnectionError(
                    f"{self._alerts.host} redirects ({error.code}), which alerts do not follow; name the new address in the option url"
                ) from None
            if error.code >= 500 or error.code in _PASSING:
                raise ConnectionError(f"{self._alerts.host} answers {error.code} {error.reason}") from None
            told = masked_known(f"{self._alerts.host} refuses: {error.code} {error.reason}")
            self._bury(key, body, rows, told)
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise ConnectionError(f"{self._alerts.host} does not answer: {reason}") from None
        except Exception as error:
            # what libraries say of a request may have its address or headers
            raise ConnectionError(f"{self._alerts.host}: {type(error).__name__}") from None
        self._sent.keys.add(key)

    def _bury(self, key: str, body: bytes, rows: int, reason: str) -> None:
        self._dead.parent.mkdir(parents=True, exist_ok=True)
        letter = {"time": time.time(), "sink": self._home.name, "key": key, "reason": reason}
        with self._dead.open("ab") as file:
            file.write(json.dumps({**letter, "body": body.decode()}).encode() + b"\n")
        self._home.rejected(rows, reason, self._dead)


class HttpProvider:
    """Rows as requests."""

    modes: tuple[Mode, ...] = ("changes", "append")
    promise: Promise = "at least once"
    limits = Limits(rows=_MOST_ROWS, batches=1)
    #: digests may wait since the run before
    is_eager = True

    def options(self) -> Iterable[str]:
        """Where requests go, what they say, and how often."""
        return (
            *("url", "preset", "template", "batch_template", "headers", "per"),
            *(
                "at_most_every",
                "group_by",
                "timeout",
                "dead_letters",
                "routing_key",
                "severity",
            ),
        )

    def open(self, spark: SparkSession, table: SinkTable) -> Opens:  # noqa: ARG002
        """See `SinkProvider`.

        Raises:
            SqlError: an option has no allowed value.
            TypeMismatchError: a column has a type that has no JSON form here.
        """
        for each in table.columns:
            if not has_form(each.type):
                raise TypeMismatchError(
                    f"table {table.name}: column {each.name} is {spark_name(each.type)}, which has no JSON form here. CAST it.",
                    *table.statement.at("using"),
                )
        preset = options.choice(table, "preset", ("none", "slack", "pagerduty"))
        url = table.options.get("url") or (_PAGERDUTY_URL if preset == "pagerduty" else None)
        if url is None:
            raise InputError(f"table {table.name}: set the option url. {example('url')}")
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise SqlError(
                f"table {table.name}: url must begin with http:// or https://", *table.statement.at("url")
            )
        if _UNSENDABLE.search(url) or " " in url:
            raise SqlError(
                f"table {table.name}: url has a blank or a control character. Write it as %20, or remove it.",
                *table.statement.at("url"),
            )
        dead = table.options.get("deadletters")
        at_most = seconds(table.statement, table.options, "at_most_every", 0.0)
        is_by_batch = options.choice(table, "per", ("row", "batch")) == "batch"
        if is_by_batch and at_most:
            raise SqlError(
                f"table {table.name}: at_most_every belongs to per 'row'; a request a batch has all of its rows.",
                *table.statement.at("at_most_every"),
            )
        one, many = _templates(table, preset)
        address, of_user = _without_user(url)
        alerts = _Alerts(
            table.view,
            address,
            {**of_user, **_headers(table)},
            one,
            many,
            is_by_batch,
            at_most,
            options.columns(table, "group_by"),
            seconds(table.statement, table.options, "timeout", _TIMEOUT_SECONDS),
            Path(dead) if dead else None,
        )
        return partial(_HttpTarget, alerts, _Sent())


_PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"


def _templates(table: SinkTable, preset: str) -> tuple[Template, Template]:
    """The bodies of a row, and of a batch or digest."""
    one: str | None
    many: str | None
    if preset == "slack":
        one, many = _SLACK, _SLACK_ROWS
    elif preset == "pagerduty":
        key = table.options.get("routingkey")
        if not key:
            raise InputError(f"table {table.name}: set the option routing_key. {example('routing_key')}")
        severity = options.choice(table, "severity", _SEVERITIES)
        payload = {"source": "penstock", "severity": severity}
        event = {"routing_key": key, "event_action": "trigger"}
        of_row = {**payload, "summary": "${view}: ${row}", "custom_details": "${row}"}
        of_rows = {
            **payload,
            "summary": "${view}: ${count} rows, ${key}",
            "custom_details": {"rows": "${rows}"},
        }
        one, many = (json.dumps({**event, "payload": each}) for each in (of_row, of_rows))
    else:
        one, many = '"${row}"', '{"view": "${view}", "key": "${key}", "count": "${count}", "rows": "${rows}"}'
    own = [*table.columns.names, *_marks(table)]
    return (
        _template(table, "template", one, (*own, *_OF_ROW)),
        _template(table, "batch_template", many, _OF_ROWS),
    )


def _marks(table: SinkTable) -> tuple[str, ...]:
    return ("revision", "coverage", "slack", "is_final", "op") if table.form.mode == "changes" else ()


def _template(table: SinkTable, option: str, preset: str, names: Iterable[str]) -> Template:
    text = table.options.get(option.replace("_", ""))
    try:
        return Template.parsed(preset if text is None else text, list(names))
    except InputError as error:
        raise SqlError(f"table {table.name}: {error}", *table.statement.at(option)) from error


def _without_user(url: str) -> tuple[str, Mapping[str, str]]:
    """An address without the user that it names, and the header that stands for the user."""
    parts = urllib.parse.urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    token = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
    remember([token])
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {token}"}


def _headers(table: SinkTable) -> Mapping[str, str]:
    text = table.options.get("headers")
    try:
        headers = json.loads(text) if text else {}
    except ValueError:
        headers = None
    if not isinstance(headers, dict) or not all(isinstance(each, str) for each in headers.values()):
        raise SqlError(
            f'table {table.name}: headers is no JSON object of texts, such as {{"Authorization": "Bearer ..."}}',
            *table.statement.at("headers"),
        )
    if any(_UNSENDABLE.search(each) or not each.isascii() for header in headers.items() for each in header):
        raise SqlError(
            f"table {table.name}: headers have a line break, or a character that is not ASCII.",
            *table.statement.at("headers"),
        )
    return cast("Mapping[str, str]", headers)


PROVIDER = HttpProvider()
