"""What the page refuses, and that every answer has its security headers."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from page_cases import SLOW_SECONDS, Answered, Page, page_folder, served
from penstock.errors import InputError
from penstock.page import server
from penstock.page.child import page_address
from penstock.page.guard import HEADERS
from penstock.page.listening import Place, listen

TOKEN = "a-token-of-32-characters-or-so"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_folder(tmp_path_factory.mktemp("guard") / "out").output


@pytest.fixture(scope="module")
def page(folder: Path) -> Iterator[Page]:
    with served(folder) as served_page:
        yield served_page


@pytest.fixture(scope="module")
def guarded(folder: Path) -> Iterator[Page]:
    with served(folder, TOKEN, is_loopback=False) as served_page:
        yield served_page


def _is_guarded(answer: Answered) -> bool:
    return all(answer.headers.get(name) == value for name, value in HEADERS.items()) and bool(
        answer.headers.get("cache-control")
    )


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/static/index.html",
        "/static/none.js",
        "/api/overview",
        "/api/views?sort=x",
        "/nothing",
        "/api/rows/none",
    ],
)
def test_every_answer_has_the_security_headers(page: Page, path: str) -> None:
    answer = page.get(path)
    assert _is_guarded(answer)
    assert "server" not in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"])
def test_the_page_is_read_only(page: Page, method: str) -> None:
    answer = page.get("/api/overview", method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert _is_guarded(answer)


def test_an_overview_says_when_it_is_sent(page: Page) -> None:
    for _ in range(2):
        before = time.time()
        sent = json.loads(page.get("/api/overview").body)["now"]
        assert before - 0.001 <= sent <= time.time() + 0.001


def test_head_answers_without_a_body(page: Page) -> None:
    for path in ("/", "/api/overview", "/api/changes", "/api/rows/large/download", "/static/index.html"):
        answer = page.get(path, "HEAD")
        assert (answer.status, answer.body) == (200, b"")


BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"


@pytest.mark.parametrize("path", ["/nothing", "/queries/x/y", "/api/nothing"])
def test_a_browser_sees_a_page_where_an_address_is_none(page: Page, path: str) -> None:
    answer = page.get(path, Accept=BROWSER)
    assert (answer.status, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b"/static/js/main.js" in answer.body
    assert _is_guarded(answer)
    assert page.get(path).json() == {"error": "The page has no such address."}


def test_a_browser_sees_why_it_is_refused_in_words(page: Page) -> None:
    answer = page.get("/api/views/<b>", Accept=BROWSER)
    assert (answer.status, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b"<p>View &lt;b&gt; does not exist.</p>" in answer.body
    answer = page.get("/", Accept=BROWSER, Host="evil.example")
    assert (answer.status, b"<p>The Host header must name this machine" in answer.body) == (400, True)
    assert _is_guarded(answer)


def test_a_body_is_refused(page: Page) -> None:
    assert page.get("/api/overview", body="x" * 100_000).status == 413


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.evil:1"),
        *("10.0.0.1", "0.0.0.0:80", "[::]", "[fe80::1]:80", "::1", "[127.0.0.1]", "127.1", "2130706433"),
    ],
)
def test_another_host_is_refused_on_loopback(page: Page, host: str) -> None:
    answer = page.get("/api/overview", Host=host)
    assert answer.status == 400
    assert "Host" in answer.json()["error"]
    assert _is_guarded(answer)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:80", "[::1]", "127.0.1.1:80", "127.0.1.1"]
)
def test_this_machine_has_several_names(page: Page, host: str) -> None:
    assert page.get("/api/overview", Host=host).status == 200


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/static/../server.py",
            "/static/..%2f..%2fserver.py",
            "/static/%2e%2e/server.py",
            "/static/..\\server.py",
        ),
        *("/static//etc/passwd", "/static/%2fetc%2fpasswd", "/../../etc/passwd", "/static/index.html%00.js"),
        *("/static/....//server.py", "/static/", "/static"),
    ],
)
def test_no_file_beside_the_page_is_served(page: Page, path: str) -> None:
    answer = page.get(path)
    assert answer.status in (307, 404)
    assert b"import" not in answer.body


def test_static_files_are_asked_for_again(page: Page) -> None:
    answer = page.get("/static/index.html")
    assert answer.headers["cache-control"] == "no-cache"
    assert page.get("/static/index.html", If_None_Match=answer.headers["etag"]).status == 304


def test_a_long_address_and_large_headers_are_refused(page: Page) -> None:
    assert page.get("/api/views?search=" + "x" * 100_001).status == 413
    for path, headers in (("/" + "x" * 200_000, {}), ("/", {"X": "x" * 20_000}), ("/", {"X": "x" * 900_000})):
        try:
            answer = page.get(path, **headers)
        except ConnectionError:  # closed before all was sent
            continue
        assert answer.status in (400, 413)
        assert _is_guarded(answer)
    assert page.get("/healthz").status == 200


def test_what_is_no_request_is_refused_with_the_headers(page: Page) -> None:
    with socket.create_connection(("127.0.0.1", page.port), SLOW_SECONDS) as connection:
        connection.sendall(b"\x16\x03\x01 no request\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"content-security-policy: default-src 'none'" in answer
    assert b'{"error": ' in answer


def test_slow_requests_are_closed(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 0.5)
    connections = [socket.create_connection(("127.0.0.1", page.port), SLOW_SECONDS) for _ in range(2)]
    silent, dripping = connections
    until = time.monotonic() + SLOW_SECONDS
    is_closed = False
    while not is_closed and time.monotonic() < until:
        try:
            dripping.sendall(b"GET / HTTP/1.1\r\nX: ")
        except OSError:
            is_closed = True
        time.sleep(0.1)
    assert is_closed
    with suppress(ConnectionError):
        assert silent.recv(1) == b""
    for each in connections:
        each.close()
    assert page.get("/healthz").status == 200


def test_a_byte_after_the_request_does_not_prolong_the_time_to_take_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 2.0)
    monkeypatch.setattr(server, "_TAKING_SECONDS", 0.5)
    is_over = threading.Event()

    async def large(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(50):
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
        is_over.set()

    config = uvicorn.Config(large, http=server.BoundedProtocol, ws="none", lifespan="off", log_config=None)
    serving = uvicorn.Server(config)
    with listen("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=serving.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        with socket.create_connection(listening.getsockname(), SLOW_SECONDS) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.recv(1)
            # the server has begun to wait by now
            time.sleep(0.2)
            connection.sendall(b"G")
            was_closed = is_over.wait(10)
        serving.should_exit = True
        thread.join(SLOW_SECONDS)
    assert was_closed


def test_nothing_is_answered_without_the_token(guarded: Page) -> None:
    for path in (
        "/",
        "/healthz",
        "/static/index.html",
        "/api/overview",
        "/api/changes",
        "/metrics",
        "/nothing",
        "/?token=wrong",
    ):
        answer = guarded.get(path)
        assert answer.status == 401
        assert list(answer.json()) == ["error"]
        assert _is_guarded(answer)


def test_the_token_is_taken_from_the_address_the_cookie_or_a_header(guarded: Page) -> None:
    assert guarded.address.endswith(f"/?token={TOKEN}")
    answer = guarded.get(f"/queries/a%2Fb?sort=name&token={TOKEN}")
    assert (answer.status, answer.headers["location"]) == (303, "/queries/a%2Fb?sort=name")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert guarded.get("/api/overview", Cookie=cookie.partition(";")[0]).status == 200
    assert guarded.get("/api/overview", Authorization=f"Bearer {TOKEN}").status == 200
    assert guarded.get("/api/overview", Authorization=f"Basic {TOKEN}").status == 401
    assert guarded.get("/api/overview", Cookie="penstock_token=wrong; x").status == 401
    assert guarded.get(f"//evil.example/?token={TOKEN}").headers["location"] == "/evil.example/"


def test_an_interface_of_the_network_has_a_token_in_any_case() -> None:
    with listen("0.0.0.0", 0) as listening:
        place = Place.of(listening, None)
        assert not place.rules.is_loopback
        assert place.rules.token is not None
        assert len(place.rules.token) >= 32
        assert place.address.endswith(f"?token={place.rules.token}")
        assert Place.of(listening, "own").rules.token == "own"
    with listen("localhost", 0) as listening:
        assert Place.of(listening, None).rules.token is None


def test_an_address_that_cannot_be_used_is_one_sentence() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(
            InputError, match=rf"The page cannot use 127\.0\.0\.1:{port}: Address already in use"
        ):
            listen("127.0.0.1", port)
    with pytest.raises(InputError, match=r"no\.host\.invalid is not a host name or address"):
        listen("no.host.invalid", 0)


def test_the_address_of_a_run_is_a_port_or_a_host_and_a_port() -> None:
    assert page_address("8080") == ("127.0.0.1", 8080)
    assert page_address("0.0.0.0:0") == ("0.0.0.0", 0)
    assert page_address("[::1]:80") == ("::1", 80)
    for wrong in ("", "x", "host:", "1:2:x", "65536", "-1"):
        with pytest.raises(InputError, match="write --page PORT"):
            page_address(wrong)


def test_many_clients_follow_changes(page: Page) -> None:
    clients = [page.connection() for _ in range(50)]
    firsts: list[bytes] = []

    def follow(client: http.client.HTTPConnection) -> None:
        client.request("GET", "/api/changes")
        response = client.getresponse()
        assert response.headers["content-type"].startswith("text/event-stream")
        firsts.append(response.readline() + response.readline())
        client.close()

    threads = [threading.Thread(target=follow, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SLOW_SECONDS)
    assert len(firsts) == 50
    assert len({first.partition(b',"version":')[2] for first in firsts}) == 1
    assert all(first.startswith(b'event: overview\ndata: {"now":') for first in firsts)
