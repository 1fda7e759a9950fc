"""A run that spark-submit starts: its master and settings are those of spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

ROOT = Path(__file__).parents[2]
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def _submit(*arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return subprocess.run(
        [str(SUBMIT), *options, str(ROOT / "deploy" / "penstock_main.py"), *arguments],
        env={
            **others,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.long
def test_a_run_has_the_master_and_the_settings_of_spark_submit(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n{"id": 2}\n')
    script, out = tmp_path / "q.sql", tmp_path / "out"
    script.write_text(
        f"CREATE TABLE s (id INT) USING json OPTIONS (path '{tmp_path / 'in'}');\n"
        "CREATE VIEW v AS SELECT id, id % 2 AS odd FROM s WHERE id > 1;"
    )
    options = ("--master", "local[1]", "--conf", "spark.sql.session.timeZone=Asia/Tokyo")
    done = _submit("run", str(script), "--output", str(out), "--available-now", options=options)
    assert done.returncode == 0, done.stderr
    started = json.loads((out / "events.jsonl").read_text().splitlines()[0])
    assert (started["kind"], started["master"]) == ("run_started", "local[1,4]")
    read = _submit("results", str(out), "v", "--format", "json", options=("--master", "local[1]"))
    # spark-submit prints what its program prints, errors among it
    assert [line for line in read.stdout.splitlines() if line.startswith("{")] == ['{"id":2,"odd":0}'], read
    zone = _submit("run", str(script), "--output", str(out), "--available-now", options=options[:2])
    assert zone.returncode == 2, "the checkpoint has the time zone of spark-submit"
    assert "Asia/Tokyo" in zone.stdout + zone.stderr
