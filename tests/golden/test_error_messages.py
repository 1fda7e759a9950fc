"""The whole text of messages about mistakes in SQL, as a user sees them.

`PENSTOCK_BLESS=1 pytest tests/golden/test_error_messages.py` writes the messages anew: read the
difference before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from penstock.errors import SqlError
from penstock.sql.conditions.bind import bind_selections
from penstock.sql.script.script import parse_script
from penstock.sql.script.settings import wrong_settings

MESSAGES = Path(__file__).with_name("error_messages.txt")
TABLE = "CREATE TABLE flights USING parquet OPTIONS (path 'x');\n"
SCHEMA = pa.schema({"origin": pa.string(), "distance": pa.int32(), "late": pa.bool_(), "day": pa.date32()})
HOURLY = "FROM flights GROUP BY window(day, '1 hour')"
SESSIONS = "FROM flights GROUP BY session_window(day,"
RANKED = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY origin ORDER BY day) AS place FROM flights)"
COUNTED = "(SELECT origin, count(*) AS n FROM flights GROUP BY origin)"
RANKINGS = [
    f"SELECT * FROM {RANKED}",
    f"SELECT * FROM {RANKED} WHERE place >= 2",
    f"SELECT * FROM {RANKED} WHERE place <= 0",
    f"SELECT origin, count(*) FROM {RANKED} WHERE place <= 3 GROUP BY origin",
    f"SELECT max(distance) FROM {RANKED} WHERE place <= 3",
    "SELECT origin, count(*) AS n, RANK() OVER (ORDER BY count(*)) AS r FROM flights GROUP BY origin QUALIFY r < 3",
    f"SELECT /*+ STATE_TTL('1 day') */ origin, n FROM {COUNTED} QUALIFY RANK() OVER (ORDER BY n) = 1",
    f"SELECT /*+ STATE_TTL('1 day') */ * FROM {RANKED} WHERE place <= 3",
    f"SELECT /*+ MAX_ERROR(0.1, 0.1) */ * FROM {RANKED} WHERE place <= 3",
    "SELECT *, ROW_NUMBER() OVER (PARTITION BY origin ORDER BY day) AS place FROM flights",
    "SELECT origin FROM (SELECT origin, RANK() OVER (ORDER BY day) AS place FROM flights) WHERE plase < 3",
    "SELECT * FROM (SELECT *, RANK() OVER (ORDER BY day) + 1 FROM flights) WHERE late",
    "SELECT * FROM (SELECT a.*, RANK() OVER (ORDER BY a.day) AS r FROM flights a JOIN flights b ON a.day = b.day) WHERE r < 3",
    "SELECT *, ROW_NUMBER() OVER (PARTITION BY origin) AS place FROM flights QUALIFY place <= 3",
    "SELECT * FROM flights QUALIFY distance < 3",
    "SELECT * FROM flights QUALIFY",
    "SELECT * FROM flights QUALIFY NTILE(4) OVER (PARTITION BY origin ORDER BY day) = 1",
    "SELECT * FROM flights QUALIFY RANK() OVER w = 1",
    "SELECT * FROM flights QUALIFY RANK(day) OVER (ORDER BY day) = 1",
    "SELECT * FROM flights QUALIFY RANK() OVER (ORDER BY day, ) = 1",
    "SELECT * FROM flights QUALIFY RANK() OVER (ORDER BY day ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) = 1",
    "SELECT * FROM flights QUALIFY RANK() OVER (PARTITION BY 1 ORDER BY day) = 1",
    "SELECT * FROM flights QUALIFY RANK() OVER (ORDER BY 1) = 1",
    "SELECT *, RANK() OVER (ORDER BY day) AS r FROM flights QUALIFY RANK() OVER (ORDER BY distance) = 1",
    "SELECT * FROM flights QUALIFY RANK() OVER (ORDER BY day) = 1 LIMIT 5",
]
STATEMENTS = [
    "CREATE VIEW v AS SELECT * FROM flight WHERE distance > 5",
    "CREATE VIEW Flights AS SELECT * FROM flights",
    "CREATE VIEW v AS SELECT /*+ MAX_ERROR(0.1, 0.1) */ origin, count(*) FROM flights GROUP BY origin",
    "CREATE VIEW v AS SELECT /*+ STATE_TTL('1 day') */ count(*) FROM flights GROUP BY window(day, '1 day')",
    "CREATE VIEW v AS SELECT /*+ STATE_TTL('1 day') */ count(*) FROM flights",
    "CREATE VIEW v AS SELECT DISTINCT origin, count(*) FROM flights",
    "CREATE VIEW v AS SELECT DISTINCT * FROM flights",
    "CREATE MATERIALIZED VIEW v AS SELECT origin FROM flights",
    "SET penstock.batch_rowz = 16384",
    "SET batch_rows = 16384",
    "SET penstock.xyz = 1",
    "SET 'penstock.batch_rows' = 'many'",
    "SET penstock.strategy TO fast",
    "SET penstock.shards = 2; SET penstock.shards = 4",
    "SET penstock.slack_policy = fixed",
    "SET store.aws_region = 'eu-west-1'",
    "SET 'table.local-time-zone' = 'UTC'",
    "SET TIME ZONE 'UTC'",
    "SET spark.sql.shuffle.partitions",
    "SET spark.app.name = one two",
    "SET spark.hadoop.fs.s3a.secret.key = hidden text",
    "RESET penstock.shards",
    "SHOW TABLES",
    "SHOW VIEWS LIKE 'a*'",
    "DESCRIBE",
    "DESCRIBE EXTENDED flights",
    "DESC SELECT * FROM flights",
    "DESCRIBE flights origin",
    "DESCRIBES flights",
    "SET 'execution.runtime-mode' = 'streaming'",
    "EXECUTE STATEMENT SET BEGIN INSERT INTO x SELECT * FROM flights",
    "CREATE TABLE t (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) USING json OPTIONS (path 'x')",
    "CREATE TABLE t (id INT, PRIMARY KEY (id) NOT ENFORCED) USING json OPTIONS (path 'x')",
    "CREATE TABLE t (id INT, pt AS PROCTIME()) USING json OPTIONS (path 'x')",
    "CREATE TABLE t (id INT) WITH ('connector' = 'kafka')",
    "CREATE VEIW v AS SELECT origin FROM flights",
    "CREATE SINK s AS SELECT origin FROM flights",
    f"CREATE VIEW v AS SELECT count(*) {SESSIONS} '10 minuts')",
    "CREATE VIEW v AS SELECT count(*) FROM flights GROUP BY window(day, '10 minuts')",
    "CREATE VIEW v AS SELECT count(*) FROM flights GROUP BY window(day, '1 hour', INTERVAL 5 MINUTES)",
    "CREATE VIEW v AS SELECT count(*) FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(day), INTERVAL '1' DAY)) GROUP BY origin",
    "CREATE VIEW v AS SELECT TUMBLE_START(day, INTERVAL '1' DAY), count(*) FROM flights GROUP BY TUMBLE(day, INTERVAL '1' DAY)",
    "CREATE VIEW v AS SELECT TUMBLE_ROWTIME(day, INTERVAL '1' DAY), count(*) FROM flights GROUP BY TUMBLE(day, INTERVAL '1' DAY)",
    "CREATE VIEW v AS SELECT SESSION_ROWTIME(day, INTERVAL '1' DAY), count(*) FROM flights GROUP BY SESSION(day, INTERVAL '1' DAY)",
    "CREATE VIEW v AS SELECT a.day FROM (SELECT * FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(day), INTERVAL '1' DAY))) a JOIN flights b ON a.day = b.day",
    f"CREATE VIEW v AS SELECT window_time(window), count(*) {HOURLY}",
    "CREATE VIEW v AS SELECT count(*) FROM HOP(TABLE flights, DESCRIPTOR(day), INTERVAL '1' DAY, INTERVAL '2' DAY) GROUP BY origin",
    "CREATE VIEW v AS SELECT count(*) FROM TABLE(CUMULATE(TABLE flights, DESCRIPTOR(day), INTERVAL '1' DAY, INTERVAL '7' DAY)) GROUP BY origin",
    "CREATE VIEW v AS SELECT * FROM flights MATCH_RECOGNIZE (PARTITION BY origin ORDER BY day PATTERN (A B) DEFINE A AS A.delay > 1)",
    "CREATE VIEW v AS SELECT tag FROM flights CROSS JOIN UNNEST(split(origin, ',')) AS t (tag)",
    "CREATE VIEW v AS SELECT origin, count(*) FROM flights GROUP BY origin, HOP(day, INTERVAL '1' DAY, INTERVAL '2' DAYS)",
    "CREATE VIEW v AS SELECT origin, count(*) FROM flights GROUP BY origin, session(day, INTERVAL '10' MINUTES)",
    "CREATE VIEW v AS SELECT origin, count(*) FROM flights WINDOW TUMBLING (SIZE 1 DAY) GROUP BY origin EMIT CHANGES",
    "CREATE VIEW v AS SELECT origin, count(*) FROM flights GROUP BY origin EMIT CHANGES",
    "CREATE VIEW v AS SELECT /*+ DEADLINE('3 parsecs') */ * FROM flights",
    "CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds'), LOSS(1, 4) */ * FROM flights",
    "CREATE VIEW v AS SELECT * FROM flights LEFT JOIN flights b USING (origin) RIGHT JOIN flights c USING (origin)",
    "CREATE VIEW v AS SELECT * FROM flights WHERE origin = 'JFK",
    "CREATE TABLE alerts OPTIONS (topic 'x')",
    "DELETE FROM flights",
    "CREATE VIEW v AS SELECT * FROM flights\nWHERE distance > 5\n  AND dest = 'LAX'",
    "CREATE VIEW v AS SELECT * FROM flights f WHERE f.late = 1",
    "CREATE VIEW v AS SELECT * FROM flights WHERE day > TRUE",
    "CREATE VIEW v AS SELECT * FROM flights WHERE distance >",
    "CREATE VIEW v AS SELECT * FROM flights WHERE distance BETWEEN 1 OR 5",
    "CREATE VIEW v AS SELECT * FROM flights WHERE (distance > 1 AND late",
    "CREATE VIEW v AS SELECT * FROM flights WHERE distance IS 5",
    "CREATE VIEW v AS SELECT * FROM flights WHERE reverse(origin) > 3",
    "CREATE VIEW v AS SELECT * FROM flights WHERE origin",
    "CREATE VIEW v AS SELECT late, count(*) FROM flights GROUP BY window(day, '1 day'), origin",
    "CREATE VIEW v AS SELECT origin, hll_sketch_agg(late)\nFROM flights GROUP BY window(day, '1 day'), origin",
    "CREATE VIEW v AS SELECT count(*) FROM flights GROUP BY window(day, '1 month')",
    "CREATE VIEW v AS SELECT count(*) FROM flights GROUP BY window(day, '1 day', '2 days')",
    "CREATE VIEW v AS SELECT origin, count(*) FROM flights GROUP BY CUBE (origin, window(day, '1 day'))",
    "CREATE VIEW v AS SELECT origin, count(*) FROM flights GROUP BY origin, ROLLUP (origin)",
    "CREATE VIEW v AS SELECT origin, count(*) FROM flights GROUP BY ROLLUP origin",
    "CREATE VIEW v AS SELECT origin, grouping(origin) FROM flights GROUP BY origin",
    "CREATE VIEW v AS SELECT count(*) FROM flights GROUP BY window(day, '1 day'), window(day, '2 days')",
    "CREATE VIEW v AS SELECT count(*) AS n, origin FROM flights",
    "CREATE VIEW v AS SELECT count(*) > 1 AND (distance > 1) FROM flights GROUP BY window(day, '1 day')",
    "CREATE VIEW v AS SELECT sun(distance) FROM flights GROUP BY window(day, '1 day')",
    "CREATE VIEW v AS SELECT count(*) FROM flights GROUP BY window(day, '0 days')",
    "CREATE VIEW v AS SELECT * FROM flights WHERE distance > 5\nCREATE VIEW w AS SELECT * FROM v",
    "CREATE TABLE weather USING csv OPTIONS (path 'x')\nINSERT INTO weather SELECT * FROM flights",
    "CREATE VIEW v AS SELECT origin, max_by(late) FROM flights GROUP BY origin",
    "CREATE VIEW v AS SELECT origin, listagg(late, origin) FROM flights GROUP BY origin",
    "CREATE VIEW v AS SELECT origin, listagg(late, ',', '.') FROM flights GROUP BY origin",
    "CREATE VIEW v AS SELECT origin, first(late) FROM flights GROUP BY origin",
    "CREATE VIEW v AS SELECT percentile(distance, 50) FROM flights GROUP BY window(day, '1 day')",
    "CREATE VIEW v AS SELECT origin, 1 + Score(distance) AS s\nFROM flights GROUP BY origin, window(day, '1 day')",
    "CREATE VIEW v AS SELECT * FROM flights WHERE `score`(distance) > 3",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('0 seconds') */ count(*) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE(3) */ count(*) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ LOSS(1, 4), MAX_ERROR(0.1, 0.1) */ count(*) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds'), LOSS(5, 4) */ count(*) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds'), LOSS(-1, 4) */ count(*) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds'), LOSS(0, 0) */ count(*) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds'), LOSS(1, 1001) */ count(*) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds'), LOSS(1) */ count(*) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds'), LOSS(1, 4, 'exact') */ count(*) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds'), BACKFILL */ count(*) {HOURLY}",
    "CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds') */ a.* FROM flights a JOIN flights b ON a.day = b.day",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds') */ score(distance) FILTER (WHERE late) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds') */ score(DISTINCT distance) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds') */ score(*) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds') */ score(distance ORDER BY day) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds') */ score() {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds') */ score(distance) AS s, 1 + count(*) AS n {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds') */ score(max(distance)) {HOURLY}",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds') */ scroe(distance) {HOURLY}",
    f"CREATE VIEW v AS SELECT count(*) {SESSIONS} '1 month')",
    f"CREATE VIEW v AS SELECT count(*) {SESSIONS} CASE WHEN late THEN '5 minutes' ELSE '1 hour' END)",
    f"CREATE VIEW v AS SELECT count(*) {SESSIONS} 10)",
    f"CREATE VIEW v AS SELECT count(*) {SESSIONS} '0 seconds')",
    f"CREATE VIEW v AS SELECT count(*) {SESSIONS} '5')",
    f"CREATE VIEW v AS SELECT count(*) {SESSIONS} '5 parsecs')",
    f"CREATE VIEW v AS SELECT count(*) {SESSIONS} INTERVAL 5 SECONDS)",
    f"CREATE VIEW v AS SELECT count(*) {SESSIONS} INTERVAL '5 seconds')",
    f"CREATE VIEW v AS SELECT count(*) {SESSIONS} '99999999 weeks')",
    f"CREATE VIEW v AS SELECT count(*) {SESSIONS} '15249000 weeks')",
    "CREATE VIEW v AS SELECT session_window(day, '1 hour') AS w, count(*) FROM flights",
    f"CREATE VIEW v AS SELECT session_window(day, '1 hour') AS w, count(*) {HOURLY}",
    f"CREATE VIEW v AS SELECT window(day, '1 hour') AS w, count(*) {SESSIONS} '1 hour')",
    f"CREATE VIEW v AS SELECT count(*) {SESSIONS} '1 hour', '1 hour')",
    f"CREATE VIEW v AS SELECT count(*) {SESSIONS} '1 hour'), window(day, '1 day')",
    f"CREATE VIEW v AS SELECT session_window(day, '2 hours') AS w, count(*) {SESSIONS} '1 hour')",
    f"CREATE VIEW v AS SELECT count(*) AS session_window {SESSIONS} '1 hour')",
    f"CREATE VIEW v AS SELECT /*+ MAX_ERROR(0.1, 0.1) */ count(*) {SESSIONS} '1 hour')",
    f"CREATE VIEW v AS SELECT /*+ DEADLINE('3 seconds') */ count(*) {SESSIONS} '1 hour')",
    f"CREATE VIEW v AS SELECT /*+ STATE_TTL('1 day') */ count(*) {SESSIONS} '1 hour')",
    *(f"CREATE VIEW v AS {query}" for query in RANKINGS),
    "CREATE VIEW v AS SELECT * FROM flight;\nCREATE VIEW w AS SELECT * FROM v;\nCREATE VIEW x SELECT * FROM flights",
]


def _message(statement: str) -> str:
    try:
        script = parse_script(TABLE + statement, aggregates=["score"])
        for wrong in wrong_settings(script.settings):
            raise wrong
        bind_selections({view.name: view.query for view in script.views}, SCHEMA, None)
    except SqlError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"{statement} is accepted")


def test_messages_are_those_recorded() -> None:
    text = "\n\n".join(f"{statement}\n{_message(statement)}" for statement in STATEMENTS) + "\n"
    if os.environ.get("PENSTOCK_BLESS"):
        MESSAGES.write_text(text)
    assert text == MESSAGES.read_text()
