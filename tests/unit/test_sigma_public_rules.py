"""The public Windows rules of Sigma, converted here, over recorded events: the right pairs of event and rule and no others.

Rules and events lie beside the project, in ../shared/data/sigma; without them the test is skipped.
"""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Matcher
from penstock.errors import UnsupportedError

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "sigma"
#: rules with a placeholder that only their user can fill
WITHOUT_VALUE = 2

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is absent"),
]


def test_public_rules_select_the_right_pairs(tmp_path: Path) -> None:
    pytest.importorskip("sigma.collection")
    from penstock.sigma.convert import convert_folder

    with tarfile.open(FOLDER / "rules.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    converted = convert_folder(tmp_path, {"Provider_Name": "SourceName"}, keywords=["Message"])
    assert len(converted.rules) == 2856
    assert len(converted.failed) == WITHOUT_VALUE
    assert all("placeholder" in each.reason for each in converted.failed)
    assert all(rule.about["author"] for rule in converted.rules)
    found = _pairs({rule.name: rule.where for rule in converted.rules})
    right = pq.read_table(FOLDER / "pairs.parquet").to_pydict()
    assert found == set(zip(right["event_no"], right["name"], strict=True))


def _pairs(conditions: dict[str, str]) -> set[tuple[int, str]]:
    """The pairs of event and rule: by the kernels, and by DuckDB for rules that need a function of Spark's."""
    file = pq.ParquetFile(FOLDER / "events.parquet")
    short = [name for name in file.schema_arrow.names if name != "Message"]
    events = pq.ParquetFile(FOLDER / "events.parquet", read_dictionary=short).read()
    known = {name.lower() for name in events.column_names}
    missing: dict[str, str] = {}
    for where in conditions.values():
        for name in re.findall(r"`(\w+)`", re.sub(r"'(?:[^'\\]|\\.)*'", "", where)):
            if name.lower() not in known:
                missing.setdefault(name.lower(), name)
    schema = pa.schema([*file.schema_arrow, *(pa.field(name, pa.string()) for name in missing.values())])
    for name in missing.values():
        events = events.append_column(name, pa.nulls(len(events), pa.string()))
    kernel, others = {}, {}
    for name, where in conditions.items():
        try:
            Matcher({name: where}, schema)
        except UnsupportedError:
            others[name] = where
        else:
            kernel[name] = where
    assert len(others) <= 6
    matcher = Matcher(kernel, schema)
    found: set[tuple[int, str]] = set()
    numbers = events["event_no"].to_pylist()
    first = 0
    for batch in events.to_batches(max_chunksize=1 << 16):
        for row, names in enumerate(matcher.match(batch).to_arrow().to_pylist()):
            found.update((numbers[first + row], name) for name in names or ())
        first += len(batch)
    with duckdb.connect(config={"threads": 1}) as base:
        base.register("events", events)
        for name, where in others.items():
            base.execute(f"SELECT event_no FROM events WHERE {_as_duckdb_reads(where)}")
            found.update((number, name) for (number,) in base.fetchall())
    return found


def _as_duckdb_reads(where: str) -> str:
    """A condition with DuckDB's quotes, and regular expressions as its function."""
    parts = re.split(r"('(?:[^'\\]|\\.)*')", where)
    for place, part in enumerate(parts):
        if place % 2:
            plain = re.sub(r"\\(.)", r"\1", part[1:-1]).replace("'", "''")
            is_like = parts[place - 1].rstrip().endswith("LIKE") and not parts[place - 1].rstrip().endswith(
                "RLIKE"
            )
            parts[place] = f"'{plain}'" + (r" ESCAPE '\'" if is_like else "")
        else:
            parts[place] = part.replace("`", '"')
    return re.sub(r'("\w+") RLIKE (\'(?:[^\']|\'\')*\')', r"regexp_matches(\1, \2)", "".join(parts))
