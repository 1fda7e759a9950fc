"""No message shows a secret of a table's options, however broken the script is."""

from __future__ import annotations

import pickle
import traceback
from contextlib import suppress

import pytest

from penstock.errors import ConnectionFailedError, InputError, SqlError, StreamFailedError, masked
from penstock.redaction import is_secret, secret_places, users_masked, without_secrets
from penstock.sql.script.script import parse_script

MARKER = "SECRET_PW_777"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{MARKER}";'


@pytest.mark.parametrize(
    "options",
    [
        f"kafka.bootstrap.servers '127.0.0.1:1', subscribe 't', kafka.sasl.jaas.config '{JAAS}'",
        f"kafka.sasl.jaas.config = '{JAAS}', subscribe 't'",
        f"'kafka.ssl.key.password' '{MARKER}', subscribe 't'",
        f"`kafka`.ssl . keystore.key '{MARKER}', subscribe 't'",
        f"subscribe 't' kafka.ssl.key.password '{MARKER}'",
        f"'subscribe' 't' 'api_token' \"{MARKER}\"",
        f"password {MARKER}, subscribe 't'",
        f"schema.registry.basic.auth.user.info 'reader:{MARKER}', subscribe 't'",
        f"-- it's here\n password '{MARKER}'",
        f"/* it's ( */ password /* ' */ 'it''s\\' {MARKER}', subscribe 't'",
        f"subscribe ')', password r'{MARKER}'",
        f"subscribe 't', client_secret '{MARKER}",
        f"url 'jdbc:postgresql://h/db?user=u&password={MARKER}', dbtable 't'",
        f"url 'jdbc:sqlserver://h;user=u;password={MARKER}' dbtable 't'",
        f"url 'jdbc:oracle:thin:scott/{MARKER}@h:1521:orcl', dbtable 't'",
    ],
)
@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE k (id INT) USING kafka OPTIONS ({});",
        "options({}",
        "CREATE TABLE k (id INT) USING kafka OPTIONS -- of ( it\n/* here */ ({});",
        "CREATE TABLE k (id INT) USING kafka OPTION ({});",
        "CREATE TABLE k (id INT) USING kafka TBLPROPERTIES ({});",
        "CREATE TABLE k (id INT) WITH ({});",
    ],
)
def test_a_line_of_sql_is_shown_without_its_secrets(options: str, script: str) -> None:
    text = script.format(options)
    for start in range(len(text)):
        told = SqlError("wrong", text, start, start + 3)
        assert MARKER not in str(told) + repr(told)
        assert MARKER not in str(pickle.loads(pickle.dumps(told)))
        lines = str(told).split("\n")
        assert lines[-1].count("^") >= 1
        assert len(lines[-1]) <= len(lines[-2]) + 1
    assert "***" in without_secrets(text, 0, 0)[0]
    with suppress(SqlError):
        assert MARKER not in repr(parse_script(text).tables)


def test_what_is_underlined_stays_underlined() -> None:
    text = f"CREATE TABLE k (id INT) USING kafka OPTIONS (password '{MARKER}', subscribe 't', token 'abcd', speed 'x')"
    start = text.index("speed")
    assert str(SqlError("wrong", text, start, start + 5)) == (
        "wrong\n  line 1: CREATE TABLE k (id INT) USING kafka OPTIONS (password '***', subscribe 't', token '***', speed 'x')\n"
        + " " * (len("  line 1: ") + start - len(MARKER) - len("abcd") + 6)
        + "^^^^^"
    )
    inside = text.index(MARKER) + 3
    assert str(SqlError("wrong", text, inside, inside + 2)).endswith("^^^")
    assert str(SqlError("wrong", text, 0, 6)).endswith("\n          ^^^^^^")


@pytest.mark.parametrize("user", [f"KEY:{MARKER}", f"KEY:a/{MARKER}/b", MARKER, f":{MARKER}"])
def test_the_user_of_a_uri_is_masked(user: str) -> None:
    text = f"CREATE TABLE k (id INT) USING csv OPTIONS (path 's3a://{user}@bucket/a', header 'x'); SELECT"
    told = str(SqlError(f"no folder s3a://{user}@bucket/a", text, text.index("header"), len(text)))
    assert MARKER not in told
    assert told.count("s3a://***@bucket/a") == 2
    assert MARKER not in str(
        SqlError(f"{MARKER} is no key", f"OPTIONS (servers 'host:1,u:{MARKER}@host:9092')", 0, 1)
    )


def test_what_is_no_user_is_shown() -> None:
    for path in ("hdfs://node:8020/a@b", "file:///tmp/a@b", "/tmp/a:b/c@d", "s3a://bucket/a@b"):
        assert users_masked(path) == path
        assert secret_places(f"OPTIONS (path '{path}')") == ()


def test_the_tables_behind_one_with_a_secret_are_masked_too() -> None:
    text = f"OPTIONS (password 'abcd'); CREATE TABLE b (i INT) USING kafka OPTIONS (password '{MARKER}')"
    assert [text[start:end] for start, end in secret_places(text)] == ["abcd", MARKER]


def test_what_an_error_comes_from_is_masked() -> None:
    text = f"OPTIONS (password '{MARKER}')"
    error = StreamFailedError("stopped")
    error.__cause__ = SqlError("no login", text, 0, 1)
    error.__cause__.__cause__ = ValueError(f"no login with {MARKER}")
    told = "".join(traceback.format_exception(error))
    assert MARKER in told
    assert MARKER not in masked(told, error)


def test_a_message_that_quotes_a_secret_is_masked() -> None:
    text = f"CREATE TABLE k (id INT) USING kafka OPTIONS (kafka.sasl.jaas.config '{JAAS}')"
    (table,) = parse_script(text).tables
    for raised in (InputError(f"no login with {JAAS}"), ConnectionFailedError(f"no login with {MARKER}")):
        with pytest.raises(SqlError) as told, table.pointing():
            raise raised
        assert MARKER not in str(told.value)
        assert "no login with ***" in str(told.value)


def test_other_options_and_other_text_are_shown_as_they_are() -> None:
    text = "CREATE VIEW v AS SELECT * FROM t WHERE token = 'abc' AND password('x') > 'options (password'"
    assert without_secrets(text, 3, 9) == (text, 3, 9)
    text = "OPTIONS (kafka.key.deserializer 'a', path 'tokens', kafka.ssl.keystore.location 'b')"
    assert secret_places(text) == ()
    names = (
        "kafka.sasl.jaas.config",
        "kafka.ssl.truststore.password",
        "fs.s3a.access.key",
        "sasl.oauthbearer.token",
    )
    assert all(map(is_secret, names))
    assert not any(map(is_secret, ("path", "event_time", "kafka.bootstrap.servers", "maxkeys", "keyspace")))
