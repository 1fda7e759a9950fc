"""The sink `http` against a server on the loopback address: keys, refusals, digests, presets, secrets."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import InputError, SqlError
from penstock.redaction import masked_known
from penstock.spark.sinks.digests import Digests
from penstock.spark.sinks.templates import Template
from sink_cases import SELECTION, WINDOWS, Folder, until

SECRET = "marker-secret"


class Server:
    """Keeps what it is sent; answers with the given codes first, then with 200."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.codes: list[int] = []
        self.refused_ids: set[int] = set()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                code = owner.codes.pop(0) if owner.codes else 200
                if isinstance(body, dict) and body.get("id") in owner.refused_ids:
                    code = 422
                if code == 200:
                    owner.bodies.append(body)
                    owner.headers.append(dict(self.headers))
                self.send_response(code)
                if code in (301, 302, 303, 307, 308):
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Prints nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hooks/{SECRET}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that takes what it is sent."""
    found = Server()
    yield found
    found.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """A results folder."""
    found = Folder(tmp_path / "out")
    yield found
    found.close()


def test_a_row_is_a_request_with_a_key_of_its_own(folder: Folder, server: Server) -> None:
    folder.match([1, -1, 2], [3])
    headers = json.dumps({"Authorization": f"Bearer {SECRET}"})
    folder.deliver(folder.sink("http", url=server.url, headers=headers))
    assert server.bodies == [{"id": n, "city": f"city {n % 3}", "amount": n / 2} for n in (1, 2, 3)]
    assert {each["Authorization"] for each in server.headers} == {f"Bearer {SECRET}"}
    keys = [each["Idempotency-Key"] for each in server.headers]
    assert [key.partition("-")[2] for key in keys] == ["0", "2", "3"]
    assert SECRET not in str(folder.events.recent)


def test_a_user_in_the_address_becomes_a_header(folder: Folder, server: Server) -> None:
    url = server.url.replace("://", f"://me:{SECRET}%40@")
    folder.match([1])
    folder.deliver(folder.sink("http", url=url))
    folder.deliver(folder.sink("http", name="own", url=url, headers='{"Authorization": "Bearer x"}'))
    token = base64.b64encode(f"me:{SECRET}@".encode()).decode()
    assert [each["Authorization"] for each in server.headers] == [f"Basic {token}", "Bearer x"]
    assert token not in masked_known(f"401: {token} is wrong")


def test_a_batch_may_be_a_request(folder: Folder, server: Server) -> None:
    folder.match([1, 2], [3])
    template = '{"alerts": "${rows}", "text": "${count} of ${view}"}'
    folder.deliver(folder.sink("http", url=server.url, per="batch", batch_template=template))
    assert [each["text"] for each in server.bodies] == ["2 of large", "1 of large"]
    assert [row["id"] for row in server.bodies[0]["alerts"]] == [1, 2]


@pytest.mark.parametrize("code", [500, 503, 429, 408])
def test_a_refusal_that_passes_is_tried_again_and_rows_that_were_sent_are_not(
    folder: Folder, server: Server, code: int
) -> None:
    server.codes = [200, code, code]
    folder.match([1, 2, 3])
    folder.deliver(folder.sink("http", url=server.url))
    assert [each["id"] for each in server.bodies] == [1, 2, 3]
    retried = [event for event in folder.events.recent if event["kind"] == "sink_retried"]
    assert len(retried) == 2
    assert f"127.0.0.1 answers {code}" in retried[0]["told"]
    assert SECRET not in str(folder.events.recent)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirection_is_not_followed(folder: Folder, server: Server, code: int) -> None:
    """Else the request is sent again without its body, and counts as taken."""
    server.codes = [code]
    folder.match([1])
    folder.deliver(folder.sink("http", url=server.url))
    assert [each["id"] for each in server.bodies] == [1]
    (retried,) = [event for event in folder.events.recent if event["kind"] == "sink_retried"]
    assert f"127.0.0.1 redirects ({code})" in retried["told"]


@pytest.mark.parametrize(
    "options",
    [
        {"headers": json.dumps({"Authorization": f"Bearer {SECRET}\n"})},
        {"url": f"http://127.0.0.1:1/{SECRET} x"},
    ],
)
def test_what_no_request_can_hold_is_refused_without_its_text(
    folder: Folder, server: Server, options: dict[str, str]
) -> None:
    with pytest.raises(SqlError, match=r"line break|a blank") as refused:
        folder.sink("http", **{"url": server.url, **options})
    assert SECRET not in str(refused.value).partition("OPTIONS")[0]


def test_a_refusal_for_good_goes_to_the_dead_letters_and_the_others_arrive(
    folder: Folder, server: Server, tmp_path: Path
) -> None:
    server.refused_ids = {2}
    dead = tmp_path / "dead" / "letters.jsonl"
    folder.match([1, 2, 3])
    folder.deliver(folder.sink("http", url=server.url, dead_letters=str(dead)))
    assert [each["id"] for each in server.bodies] == [1, 3]
    (letter,) = map(json.loads, dead.read_text().splitlines())
    assert json.loads(letter["body"])["id"] == 2
    assert "refuses: 422" in letter["reason"]
    (rejected,) = [event for event in folder.events.recent if event["kind"] == "sink_rejected"]
    assert (rejected["rows"], rejected["file"]) == (1, str(dead))
    assert SECRET not in dead.read_text() + str(folder.events.recent)


def test_alerts_of_one_key_are_gathered_and_a_stop_loses_none(folder: Folder, server: Server) -> None:
    sink = folder.sink("http", url=server.url, at_most_every="1 hour", group_by="city")
    with folder.following(sink) as told:
        folder.match([0, 3, 6, 1])
        until(lambda: told["target.large"].get("deliveries") == 1)
    assert [each["id"] for each in server.bodies] == [0, 1]
    # a run that ends sends what waits, though nothing was published since
    folder.deliver(sink)
    (digest,) = server.bodies[2:]
    assert (digest["key"], digest["count"], digest["view"]) == ("city city 0", 2, "large")
    assert [row["id"] for row in digest["rows"]] == [3, 6]
    folder.deliver(sink)
    assert len(server.bodies) == 3


def test_a_digest_is_due_after_its_time(tmp_path: Path) -> None:
    digests = Digests(tmp_path / "digests.json", 60)
    assert digests.admit("a", "0", {"n": 0}, 1_000)
    assert not digests.admit("a", "1", {"n": 1}, 1_010)
    assert digests.admit("b", "2", {"n": 2}, 1_020)
    assert list(digests.due(1_059, is_over=False)) == []
    ((key, waiting),) = digests.due(1_060, is_over=False)
    assert (key, waiting.count, waiting.first) == ("a", 1, "1")
    digests.sent("a", 1_060)
    assert not digests.admit("a", "3", {"n": 3}, 1_100)
    digests.taken(4)
    again = Digests(tmp_path / "digests.json", 60)
    assert again.has(4)
    assert not again.has(5)
    assert [key for key, _ in again.due(1_120, is_over=False)] == ["a"]
    assert again.admit("b", "4", {"n": 4}, 1_200)


def test_presets_have_the_bodies_of_their_services(folder: Folder, server: Server) -> None:
    folder.match([1])
    folder.deliver(
        folder.sink("http", name="chat", url=server.url, preset="slack"),
        folder.sink(
            "http", name="pager", url=server.url, preset="pagerduty", routing_key=SECRET, severity="error"
        ),
    )
    chat, pager = sorted(server.bodies, key=len)
    assert chat == {"text": 'large: {"id": 1, "city": "city 1", "amount": 0.5}'}
    assert (pager["routing_key"], pager["event_action"]) == (SECRET, "trigger")
    payload = pager["payload"]
    assert (payload["severity"], payload["source"], payload["custom_details"]["id"]) == (
        "error",
        "penstock",
        1,
    )
    assert SECRET not in str(folder.events.recent)


def test_revisions_of_windows_have_their_marks(folder: Folder, server: Server) -> None:
    folder.answer([("a", 0, 1, False, False)], [("a", 0, 2, True, False)])
    template = '{"n": "${n}", "told": "${city} at ${w}: final ${is_final}"}'
    folder.deliver(folder.sink("http", WINDOWS, url=server.url, template=template, final_only="true"))
    (body,) = server.bodies
    assert body["n"] == 2
    assert body["told"].endswith("final true")


def test_a_value_cannot_leave_its_place() -> None:
    template = Template.parsed('{"text": "is ${a}", "a": "${a}"}', ["a"])
    hostile = '", "admin": true, "x": "'
    assert json.loads(template.filled({"a": hostile})) == {"text": f"is {hostile}", "a": hostile}


def test_a_server_that_does_not_answer_is_told_and_gets_the_rows_later(
    folder: Folder, server: Server
) -> None:
    server.codes = [503] * 6
    with folder.following(folder.sink("http", url=server.url)) as told:
        folder.match([1], [2])
        until(lambda: told["target.large"].get("deliveries") == 2)
        time.sleep(0.05)
    assert [each["id"] for each in server.bodies] == [1, 2]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "set the option url"),
        ({"url": f"ftp://h/{SECRET}"}, "url must begin with http://"),
        ({"url": "http://h", "template": "{"}, "template is no JSON"),
        ({"url": "http://h", "template": '"${town}"'}, "template names town, which does not exist"),
        (
            {"url": "http://h", "template": '{"a": ${idd}}'},
            r'template names idd, which does not exist; did you mean id\?; existing: .*\. Put a column in quotes: "\${idd}" instead',
        ),
        (
            {"url": "http://h", "template": '{"a\\"b": "${id}", "c": ${id}}'},
            r'template is no JSON\. Put a column in quotes: "\${id}" instead of \${id}\.',
        ),
        ({"url": "http://h", "headers": SECRET}, "headers is no JSON object"),
        ({"url": "http://h", "headers": "${file:/nowhere}"}, "needs the file /nowhere, which cannot be read"),
        ({"url": "http://h", "per": "minute"}, "per is 'minute'; allowed: row, batch"),
        ({"url": "http://h", "at_most_every": "soon"}, "at_most_every is 'soon'; write a number and second"),
        (
            {"url": "http://h", "per": "batch", "at_most_every": "1 minute"},
            "at_most_every belongs to per 'row'",
        ),
        ({"url": "http://h", "every": "often"}, "every is 'often'; write a number and second"),
        ({"url": "http://h", "group_by": "town"}, "group_by names column town"),
        ({"url": "http://h", "preset": "teams"}, "preset is 'teams'; allowed: none, slack, pagerduty"),
        ({"preset": "pagerduty"}, "set the option routing_key"),
        ({"url": "http://h", "mode": "upsert"}, "mode is 'upsert'; allowed: changes, append"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name_and_without_secrets(
    folder: Folder, options: dict[str, str], told: str
) -> None:
    with pytest.raises(InputError, match=told) as refused:
        folder.sink("http", SELECTION, **options)
    assert SECRET not in str(refused.value)
