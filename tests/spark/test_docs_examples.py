"""Every example of README, tutorial and how-to pages runs, in the order of its page, and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doc_examples import Block, Player, blocks
from penstock_lab.servers.schema_registry import SchemaRegistryServer

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "tutorial.md",
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
]
#: what stands behind it in a page needs a broker, and nothing that stands before it
KAFKA = "<!-- Kafka -->"
#: where the pages have their broker
BROKER = "127.0.0.1:9092"
#: and their schema registry, which has the values of each topic
REGISTRY = "http://127.0.0.1:8081"
ORDER = """{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"},
  {"name": "buyer", "type": {"type": "record", "name": "Buyer", "fields": [{"name": "name", "type": "string"}]}}]}"""
#: commands that want a clone or a cluster
_ELSEWHERE = re.compile(r"^(make (?!kafka )|pip |penstock .*(spark://|examples/))", re.MULTILINE)


def _name(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, _, _ = page.read_text().partition(KAFKA)
    assert BROKER not in text
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    Player(_make_folders).play(_of_a_user(text))


@pytest.mark.kafka
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("page", [page for page in PAGES if KAFKA in page.read_text()], ids=_name)
def test_examples_with_kafka_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    broker = request.getfixturevalue("kafka")
    _, _, text = page.read_text().partition(KAFKA)
    for topics in re.findall(r"make kafka TOPICS=([\w,-]+)", text):
        for topic in topics.split(","):
            broker.create_topic(topic)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    with SchemaRegistryServer() as registry:
        registry.register("orders-in-value", ORDER)
        text = text.replace(BROKER, broker.address).replace(REGISTRY, registry.url)
        Player(_make_folders).play(_of_a_user(text))


def _of_a_user(text: str) -> list[Block]:
    """The blocks that a user runs in a folder of the user's own."""
    return [block for block in blocks(text) if block.language != "sh" or not _ELSEWHERE.search(block.text)]


def _make_folders(script: str) -> None:
    for path in re.findall(r"\bpath '([^']+)'", script):
        Path(path).mkdir(parents=True, exist_ok=True)
