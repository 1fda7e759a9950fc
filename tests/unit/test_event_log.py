"""The event log is kept in files of bounded size; no turn of files loses, tears or repeats an event."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from killing import forked
from penstock.spark.storage import events
from penstock.spark.storage.events import EventLog, newest_events, older_files
from penstock.spark.storage.failpoints import EVENT_NAMES

_SMALL = 4_096


def _written(path: Path) -> list[int]:
    """The numbers of the events in all files, in order."""
    files = [*older_files(path), *([path] if path.exists() else [])]
    return [json.loads(line)["number"] for file in files for line in file.read_text().splitlines()]


def _record(path: Path, numbers: range, most_files: int = 8) -> None:
    log = EventLog(path, most_bytes=_SMALL, most_files=most_files)
    for number in numbers:
        log.record("batch", number=number)
    log.close()


def test_full_files_are_kept_under_names_of_their_own_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    _record(path, range(200))
    assert len(older_files(path)) == 3
    assert _written(path) == list(range(200))
    _record(path, range(200, 2_000), most_files=4)
    assert len(older_files(path)) == 3
    assert all(_SMALL <= file.stat().st_size < _SMALL + 200 for file in older_files(path))
    kept = _written(path)
    assert kept == list(range(kept[0], 2_000))
    _record(path, range(2_000, 2_100), most_files=1)
    assert older_files(path) == []


def test_numbers_go_on_where_names_are_longer(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for number in (999_998, 999_999):
        (tmp_path / f"events-{number}.jsonl").write_text("")
    _record(path, range(150), most_files=4)
    assert [file.name for file in older_files(path)[-3:]] == [
        "events-999999.jsonl",
        "events-1000000.jsonl",
        "events-1000001.jsonl",
    ]


def test_a_file_that_is_full_already_is_turned_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    _record(path, range(70))
    with path.open("a") as file:
        file.write('{"kind": "torn')
    log = EventLog(path, most_bytes=1)
    assert [older.stat().st_size > 0 for older in older_files(path)] == [True, True]
    log.close()
    assert _written(path) == list(range(70))


def test_the_newest_events_are_found_whatever_file_they_are_in(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for number in range(150):
        _record(path, range(number, number + 1))
        found = [event["number"] for event in newest_events(path, most_bytes=3_000)]
        assert found == list(range(number + 1))[-len(found) :]
        assert len(found) >= min(number + 1, 25)
    path.rename(tmp_path / "events-000009.jsonl")
    assert newest_events(path)[-1]["number"] == 149, "between the renaming and the new file"


def test_a_reader_beside_a_log_that_turns_sees_no_event_twice(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = threading.Thread(target=_record, args=(path, range(20_000)))
    writer.start()
    looks = 0
    while writer.is_alive():
        found = [event["number"] for event in newest_events(path, most_bytes=6_000)]
        assert found == sorted(set(found))
        looks += bool(found)
    writer.join()
    assert looks
    assert older_files(path)


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    for number in range(2_000):
        log.record("batch", number=number)
    log.close()
    with path.open("a") as file:
        file.write('{"kind": "torn')
    found = newest_events(path, most_bytes=4_096)
    assert 10 < len(found) < 100
    assert found[-1]["number"] == 1_999
    EventLog(path).close()
    assert json.loads(path.read_text().splitlines()[-1])["number"] == 1_999


@pytest.mark.parametrize("place", EVENT_NAMES)
@pytest.mark.parametrize("number", [1, 4])
def test_a_kill_while_files_are_turned_loses_nothing(tmp_path: Path, place: str, number: int) -> None:
    path = tmp_path / "events.jsonl"
    assert forked(_record, path, range(500), 3, failpoint=f"{place}:{number}") == -9
    left = _written(path)
    assert newest_events(path)[-1]["number"] == left[-1]
    _record(path, range(left[-1] + 1, 400), most_files=3)
    assert len(older_files(path)) == 2
    kept = _written(path)
    assert kept == list(range(kept[0], 400))


def test_a_file_that_cannot_be_turned_is_written_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    begin = Path.open

    def refuse(file: Path, *arguments: str, **options: int) -> object:
        if file == path and older_files(path):
            raise OSError("No space left on device")
        return begin(file, *arguments, **options)

    log = EventLog(path, most_bytes=_SMALL)
    monkeypatch.setattr(Path, "open", refuse)
    for number in range(100):
        log.record("batch", number=number)
    assert older_files(path) == []
    monkeypatch.undo()
    for number in range(100, 120):
        log.record("batch", number=number)
    log.close()
    assert len(older_files(path)) == 1
    assert _written(path) == list(range(120))


def test_memory_keeps_the_newest_events_up_to_a_number_and_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_MOST_KEPT_BYTES", 10_000)
    log = EventLog(tmp_path / "events.jsonl", keep=8)
    for number in range(20):
        log.record("small", number=number)
    assert [each["number"] for each in log.recent] == list(range(12, 20))
    for number in range(4):
        log.record("large", number=number, views="v" * 4_000)
    assert [(each["kind"], each["number"]) for each in log.recent] == [("large", 2), ("large", 3)]
    log.record("larger", views="v" * 40_000)
    assert [each["kind"] for each in log.recent] == ["larger"]
    log.close()
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 25
