"""The broker for tests says that it answers only where it is the one that does."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

pytest.importorskip("kafka")

from penstock_lab.servers import kafka
from penstock_lab.servers.processes import LOOPBACK


def test_a_port_that_another_program_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(
            sys, "argv", ["kafka", "start", "--port", str(port), "--jars", "none", "--data", str(tmp_path)]
        )
        # another broker answers there
        monkeypatch.setattr(kafka.KafkaBroker, "_answers", lambda _: True)
        monkeypatch.setattr(kafka.KafkaBroker, "_format", lambda _: None)
        monkeypatch.setattr(kafka, "java_executable", lambda: "true")
        with pytest.raises(SystemExit) as ended:
            kafka.main()
    assert ended.value.code not in (0, None)
    told = capsys.readouterr()
    assert f"Port {port} of 127.0.0.1 is taken by another program" in told.err
    assert "Kafka answers" not in told.out
    assert not list(tmp_path.rglob("*.pid"))
