"""The documentation against the program: commands, options, snippets, settings, events."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from penstock.cli.main import app
from penstock.settings import Settings
from penstock.sql.script.script import parse_script
from penstock_lab.cli import app as lab_app

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"
README = (ROOT / "README.md").read_text()
REFERENCE = ROOT / "docs" / "reference"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LAB = ROOT / "src" / "penstock_lab"
#: by program and name
COMMANDS = {
    (program, name): command
    for program, own in (("penstock", app), ("penstock-lab", lab_app))
    for name, command in get_command(own).commands.items()  # type: ignore[attr-defined]
}


def _options(command: tuple[str, str]) -> set[str]:
    """Those that users see."""
    shown = [each for each in COMMANDS[command].params if not getattr(each, "hidden", False)]
    return {option for parameter in shown for option in parameter.opts}


def _snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}(?: title=\".*?\")?\n(.*?)```", README, re.DOTALL)


def _calls(page: Path) -> Iterator[list[str]]:
    """Every `penstock COMMAND ...` and `penstock-lab COMMAND ...` in code of a page, as words."""
    text = page.read_text()
    code = [
        *re.findall(r"```sh\n(.*?)```", text, re.DOTALL),
        *re.findall(r"`(penstock(?:-lab)? [^`]+)`", text),
    ]
    for line in "\n".join(code).splitlines():
        if line.startswith(("penstock ", "penstock-lab ")):
            yield shlex.split(line, comments=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    for program, command, *words in _calls(page):
        assert (program, command) in COMMANDS
        assert {word for word in words if word.startswith("--")} <= _options((program, command))


def test_every_command_and_option_is_documented() -> None:
    """The line of an option, or the first line of its table or paragraph, names the command."""
    text = (REFERENCE / "command-line.md").read_text()
    lines = [
        (block.splitlines()[0] + line, line) for block in text.split("\n\n") for line in block.splitlines()
    ]
    for command in COMMANDS:
        assert f"`{' '.join(command)}" in text
        found = {
            option
            for named, line in lines
            if f"`{command[1]}`" in named
            for option in re.findall(r"`(--[\w-]+)", line)
        }
        assert {option for option in _options(command) if option.startswith("--")} <= found, command


def test_the_readme_names_commands() -> None:
    assert {command for _, command, *_ in _calls(ROOT / "README.md")} == {
        "run",
        "check",
        "results",
        "status",
        "quarantine",
    }


def test_sql_snippets_parse() -> None:
    snippets = _snippets("sql")
    assert [len(parse_script(snippet).views) for snippet in snippets] == [2, 1, 1]


def test_python_snippets_parse() -> None:
    (snippet,) = _snippets("python")
    ast.parse(snippet)


def test_the_matcher_runs_without_spark(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "how-to" / "from-python.md").read_text()
    snippet, shown = re.findall(r"```python\n([^`]*Matcher\([^`]*)```\n\n```text\n(.*?)```", page, re.DOTALL)[
        0
    ]
    exec(compile(snippet, "from-python.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_the_readme_fits_two_screens() -> None:
    assert len(README.splitlines()) < 120


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_modules_and_targets_exist(page: Path) -> None:
    text = page.read_text()
    packages = "spark|sql|operators|plan|control|optimizer|kernels|monitor|cli"
    for module in re.findall(rf"`((?:{packages})/[\w/]+\.py)`", text):
        assert (PACKAGE / module).exists(), module
    for command in re.findall(r"`make ([a-z-]+)`", text):
        assert re.search(rf"^{command}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command


def test_every_setting_is_documented_with_its_default() -> None:
    rows = dict(
        re.findall(
            r"^\| `(\w+)` \| `?([^`|(]+?)`?(?: \([^|]*\))? \|",
            (REFERENCE / "settings.md").read_text(),
            re.MULTILINE,
        )
    )
    defaults = {
        name: str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        for name, field in Settings.model_fields.items()
    }
    assert rows == defaults


def test_every_recorded_event_is_documented_with_its_fields() -> None:
    """Fields are in the row of the event, in a section `Fields of KIND`, or with the shared fields at the start."""
    shared, *sections = re.split(r"^##+ ", (REFERENCE / "events.md").read_text(), flags=re.MULTILINE)
    documented: dict[str, set[str]] = {}
    for section in sections:
        if of := re.match(r"Fields of (\w+)", section):
            documented[of[1]] |= _names(section)
        for table in re.findall(r"^\| kind \|.*\n\|[-|]+\n((?:\|.*\n)+)", section, re.MULTILINE):
            for row in table.splitlines():
                _, kinds, fields, _ = row.split("|")
                documented |= {kind: _names(fields) for kind in _names(kinds)}
    recorded = dict(_recorded())
    assert set(documented) == set(recorded)
    assert {
        kind: missing
        for kind, fields in recorded.items()
        if (missing := fields - documented[kind] - _names(shared))
    } == {}


def _names(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


def _recorded() -> Iterator[tuple[str, set[str]]]:
    """Kind and literal field names of every event the package records."""
    for file in (*(PACKAGE / "spark").rglob("*.py"), *(LAB / "sources").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("events.record", "._event")):
                fields = {keyword.arg for keyword in node.keywords if keyword.arg}
                for kind in _kinds(node.args[0]):
                    if isinstance(kind, ast.Constant):
                        yield ast.literal_eval(kind), fields


def _kinds(argument: ast.expr) -> list[ast.expr]:
    """A literal kind, or those of a dictionary in which it is looked up on the spot."""
    if isinstance(argument, ast.Subscript) and isinstance(argument.value, ast.Dict):
        return argument.value.values
    return [argument]
