"""Sigma rules of our own making as Spark SQL, and what becomes of rules that cannot be converted."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from penstock import Matcher
from penstock.cli.main import app
from penstock.errors import InputError
from penstock.sql.script.known_names import KnownNames
from penstock.sql.script.script import parse_script

pytest.importorskip("sigma.collection")

from penstock.sigma.convert import Converted, convert_folder

RULE = """
title: A kettle boils over
id: 8c1f5a52-0000-4000-8000-00000000000{number}
status: test
author: Kim Kettle, Pat Pan
level: high
logsource:
    product: windows
    category: process_creation
detection:
{detection}
"""
GATE = "`Channel` ILIKE 'Microsoft-Windows-Sysmon/Operational' AND `EventID` = '1' AND "


def rule(detection: str, number: int = 1) -> str:
    """A rule with a detection section of its own."""
    return RULE.format(number=number, detection="\n".join(f"    {line}" for line in detection.splitlines()))


def converted(folder: Path, detection: str, **options: object) -> Converted:
    """What becomes of a rule with this detection section."""
    (folder / "kettle.yml").write_text(rule(detection))
    return convert_folder(folder, **{"fields": {}, "keywords": ["Message"], **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("selection", "condition"),
    [
        ("Image: tea.exe", "`Image` ILIKE 'tea.exe'"),
        ("Image|contains: 50%_\\*", r"`Image` ILIKE '%50\\%\\_*%'"),
        ("Image|endswith: \\tea.exe", r"`Image` ILIKE '%\\\\tea.exe'"),
        ("Image|startswith: C:\\Users\\", r"`Image` ILIKE 'C:\\\\Users\\\\%'"),
        ("Image: 'C:\\\\*\\te?.exe'", r"`Image` ILIKE 'C:\\\\%\\\\te_.exe'"),
        ("Image: it's", r"`Image` ILIKE 'it\'s'"),
        ("Image|cased: Tea.exe", "`Image` = 'Tea.exe'"),
        ("Image|contains|cased: Tea", "`Image` LIKE '%Tea%'"),
        ("Image: ''", "`Image` = ''"),
        ("Image: null", "`Image` IS NULL"),
        ("Image|exists: true", "`Image` IS NOT NULL"),
        ("Image|exists: false", "`Image` IS NULL"),
        ("Cups: 4", "`Cups` = '4'"),
        ("Cups|gte: 4", "try_cast(`Cups` AS DOUBLE) >= 4"),
        ("Litres|lt: 4", "`Litres` < 4"),
        ("Image|re: 'te[ax]\\.\\w+'", r"`Image` RLIKE 'te[ax]\\.\\w+'"),
        ("Image|re|i: tea", "`Image` RLIKE '(?i)tea'"),
        ("Image|fieldref: Parent", "lower(`Image`) = lower(`Parent`)"),
        ("Ip|cidr: 10.0.0.0/15", "`Ip` ILIKE '10.0.%' OR `Ip` ILIKE '10.1.%'"),
        ("'Odd name`': x", "`Odd name``` ILIKE 'x'"),
        ("Image|contains|all: [a, b]", "`Image` ILIKE '%a%' AND `Image` ILIKE '%b%'"),
        ("Image|base64offset|contains: boil", None),
        ("Image|windash|contains: ' -x'", None),
    ],
)
def test_a_selection_is_a_condition(tmp_path: Path, selection: str, condition: str | None) -> None:
    found = converted(tmp_path, f"it:\n    {selection}\ncondition: it", numbers=["litres"])
    assert found.failed == []
    where = found.rules[0].where
    assert where.startswith(GATE)
    if condition is not None:
        own = where.removeprefix(GATE)
        assert own in (condition, f"({condition})")


def matched(where: str, rows: list[dict[str, object]]) -> list[int]:
    """The rows that satisfy a condition, by their numbers."""
    names = sorted({name for row in rows for name in row})
    table = pa.table({name: [row.get(name) for row in rows] for name in names})
    offsets = Matcher({"it": where}, table.schema).match(table).offsets.tolist()
    return [number for number in range(len(rows)) if offsets[number + 1] > offsets[number]]


PROCESS = {"Channel": "microsoft-windows-sysmon/operational", "EventID": 1}


def test_a_missing_field_matches_nothing_and_not_of_it_is_true(tmp_path: Path) -> None:
    where = (
        converted(
            tmp_path,
            "it:\n    Image|endswith: \\tea.exe\nbut:\n    User|contains: [kim, pat]\ncondition: it and not but",
        )
        .rules[0]
        .where
    )
    rows = [
        {**PROCESS, "Image": "C:\\TEA.EXE", "User": None},
        {**PROCESS, "Image": "C:\\tea.exe", "User": "Kim"},
        {**PROCESS, "Image": None, "User": "x"},
        {**PROCESS, "Image": "C:\\tea.exe", "User": "x", "EventID": 2},
        {**PROCESS, "Image": "C:\\tea.exe", "User": "x"},
    ]
    assert matched(where, rows) == [0, 4]


def test_keywords_dashes_and_offsets_match_as_sigma_means(tmp_path: Path) -> None:
    rows = [
        {**PROCESS, "Message": text}
        for text in ("x Kettle y", "tea  /n now", "tea -n", "xxYm9pbAxx", "a 7 b")
    ]
    keywords = converted(tmp_path, "words: [kettle, 7]\ncondition: words").rules[0].where
    assert matched(keywords, rows) == [0, 4]
    dashes = converted(tmp_path, "it:\n    Message|windash|contains: ' -n'\ncondition: it").rules[0].where
    assert matched(dashes, rows) == [1, 2]
    offsets = (
        converted(tmp_path, "it:\n    Message|base64offset|contains: boil\ncondition: it").rules[0].where
    )
    assert matched(offsets, rows) == [3]


def test_fields_have_other_names_and_several_conditions_are_one(tmp_path: Path) -> None:
    found = converted(
        tmp_path,
        "a:\n    Image: x\nb:\n    User: y\ncondition: [a, b]",
        fields={"Image": "exe", "Channel": "log"},
    )
    gate = GATE.replace("Channel", "log")
    assert found.rules[0].where == f"({gate}`exe` ILIKE 'x') OR ({gate}`User` ILIKE 'y')"


def test_what_cannot_be_converted_is_listed_with_its_reason(tmp_path: Path) -> None:
    good = rule("it:\n    Image: x\ncondition: it")
    texts = {
        "a": good,
        "b": good.replace("windows", "linux"),
        "c": "title: [",
        "d": "just words",
        "e": rule("it:\n    Image|expand: '%names%'\ncondition: it"),
        "f": rule("it:\n    Image: x\ncondition: it and"),
        "g": "title: Twice\ncorrelation:\n    type: event_count\n    rules: [x]\n    group-by: [User]\n    timespan: 1m\n"
        "    condition:\n        gte: 2\n",
        "h": "\n---\n".join((good, good.replace("000001", "000002"), good)),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yml").write_text(text)
    found = convert_folder(tmp_path, {})
    assert [each.name for each in found.rules] == [
        "a",
        "h",
        "h_8c1f5a52-0000-4000-8000-000000000002",
        "h_8c1f5a52-0000-4000-8000-000000000001",
    ]
    reasons = {each.file: each.reason for each in found.failed}
    assert sorted(reasons) == [f"{name}.yml" for name in "bcdefg"]
    assert "of the log source product linux, category process_creation. Describe them" in reasons["b.yml"]
    assert reasons["d.yml"] == "the file is no Sigma rule"
    assert "placeholder %names%" in reasons["e.yml"]
    assert "correlate" in reasons["g.yml"]
    assert all("\n" not in reason for reason in reasons.values())


def test_the_command_writes_a_script_with_authors_and_licences(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    (rules / "sub").mkdir(parents=True)
    (rules / "sub" / "kettle.yml").write_text(rule("it:\n    Image: x\ncondition: it"))
    (rules / "LICENSE").write_text("Share tea.\n")
    target = tmp_path / "rules.sql"
    command = ["import", "sigma", str(rules), "-o", str(target), "--table", "log", "--map", "Image=exe"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert done.output.endswith("rules.sql: 1 rule converted, 0 not converted\n")
    text = target.read_text()
    for line in ("title: A kettle boils over", "author: Kim Kettle, Pat Pan", "level: high", "  Share tea."):
        assert f"-- {line}\n" in text
    views = parse_script(text, known=KnownNames({"stream": {"LOG": "log"}})).views
    assert [view.name for view in views] == ["kettle"]
    (rules / "pan.yml").write_text("title: [")
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "pan.yml: not converted: " in done.output
    assert done.output.endswith("1 rule converted, 1 not converted\n")


def test_a_pipeline_has_the_condition_of_another_log_source(tmp_path: Path) -> None:
    pipeline = tmp_path / "linux.yaml"
    pipeline.write_text(
        "transformations:\n  - type: add_condition\n    conditions: {kind: exec}\n    rule_conditions:\n"
        "      - {type: logsource, product: linux}\n"
    )
    rules = tmp_path / "rules"
    rules.mkdir()
    text = rule("it:\n    Image: x\ncondition: it").replace("windows", "linux")
    (rules / "a.yml").write_text(text)
    found = convert_folder(rules, {}, [pipeline])
    assert [each.where for each in found.rules] == ["`kind` ILIKE 'exec' AND `Image` ILIKE 'x'"]
    pipeline.write_text("transformations: 3")
    with pytest.raises(InputError, match=r"linux\.yaml: not a pySigma pipeline"):
        convert_folder(rules, {}, [pipeline])


def test_without_pysigma_one_line_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sigma", None)
    done = CliRunner().invoke(app, ["import", "sigma", str(tmp_path), "-o", str(tmp_path / "x.sql")])
    assert isinstance(done.exception, InputError)
    assert "pip install 'penstock[sigma]'" in str(done.exception)
