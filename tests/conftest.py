"""The surroundings tests run in: one Spark session, a Kafka broker, a standalone cluster."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from forms import ALL, INTERPRETED, examples, memory_folder
from ledger_cases import commit_briefly
from penstock import redaction
from penstock.spark.storage import ledgers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.storage.layout import Layout
    from penstock_lab.servers.cluster import StandaloneCluster
    from penstock_lab.servers.kafka import KafkaBroker
    from penstock_lab.servers.mariadb import MariaDBServer
    from penstock_lab.servers.postgres import PostgresServer
    from penstock_lab.servers.s3 import S3Server

CACHE = Path(__file__).parents[1] / ".cache"
CONNECTOR_JARS = sorted((CACHE / "kafka-connector").glob("*.jar"))
JDBC_JARS = sorted(Path(os.environ.get("PENSTOCK_JDBC_JARS") or CACHE / "jdbc").glob("*.jar"))
S3_JARS = sorted(Path(os.environ.get("PENSTOCK_JARS") or CACHE / "hadoop-aws").glob("*.jar"))

# the same examples each time, however slow the machine; `make test-all` draws others
settings.register_profile(
    "repeatable",
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not ALL,
)
settings.load_profile("repeatable")

#: what tests run is new to the JVM again and again: its second compiler and parallel collection took two fifths of its time,
#: collections of a small young generation and for classes to come a tenth of the rest; without the second compiler Java gives
#: compiled code 48 MB alone, which five tests fill: it then drops and compiles code again and again, and runs the rest uncompiled.
#: Each time that a small heap grows, all of it is collected
_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xms2g -Xmn512m -XX:MetaspaceSize=512m"
#: what Spark keeps for a page that nobody opens is of the newest of so many: by default it has plans of a thousand queries
_FEW = {f"spark.{of}": "20" for of in ("sql.ui.retainedExecutions", "ui.retainedJobs", "ui.retainedStages")}

if not ALL:
    # a disk takes milliseconds for each; `test_durable.py` finds by the calls whether all is asked for that a power cut needs
    os.fsync = lambda _: None
    if folder := memory_folder():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves long tests out of the short form, and puts those of the broker first: one worker gets most of them."""
    if not ALL:
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    items.sort(key=lambda item: item.get_closest_marker("kafka") is None)


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test knows, and so masks, the secrets of another."""
    monkeypatch.setattr(redaction, "_known", frozenset())


@pytest.fixture(scope="session")
def _session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from local_files import set_permissions_in_the_jvm
    from penstock.spark.sessions.build import STREAMING, check_java
    from penstock.spark.sessions.jvm import java_options

    # a third of what the JVM does until the first runs have ended is to load classes
    archived = java_options(check_java(), "run")
    folder = tmp_path_factory.mktemp("spark")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("penstock-tests")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", f"{_JAVA} {archived}".strip())
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.daemon.module", "penstock.spark.sessions.daemon")
        .config("spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.jars", ",".join(map(str, [*CONNECTOR_JARS, *JDBC_JARS, *S3_JARS])))
        .config(map=STREAMING)
        .config(map=_FEW)
        .config(map=INTERPRETED)
    )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if not ALL:
        set_permissions_in_the_jvm(session)
    yield session
    session.stop()


@pytest.fixture
def spark(_session: SparkSession) -> Iterator[SparkSession]:
    """The one Spark session of all tests; streaming queries a test leaves behind are stopped, tables that it keeps in memory let go."""
    yield _session
    _session.catalog.clearCache()
    for query in _session.streams.active:
        query.stop()
    _session.streams.resetTerminated()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A Kafka broker that all tests share: give topics names of their own, leave it running."""
    jars = CACHE / "kafka"
    if not (CONNECTOR_JARS and any(jars.glob("kafka_*.jar"))):
        pytest.skip("Kafka's jars are not there: `make kafka-jars` fetches them")
    from penstock_lab.servers.kafka import KafkaBroker

    # it has little to do
    options = [] if ALL else ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    with KafkaBroker(jars, tmp_path_factory.mktemp("kafka"), java_options=options) as broker:
        yield broker


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server that all tests share, with the bucket `bucket`: give prefixes names of their own, leave it running."""
    from penstock.errors import ConnectionFailedError
    from penstock_lab.servers.s3 import S3Server

    for left in reversed(range(3)):
        try:
            server = S3Server(tmp_path_factory.mktemp("s3"))
        except ConnectionFailedError as error:
            pytest.skip(str(error))
        try:
            server.start()
        except ConnectionFailedError:
            # another program may have taken one of its ports meanwhile
            if not left:
                raise
        else:
            break
    try:
        server.create_bucket("bucket")
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that all tests share: give tables names of their own, leave it running."""
    from penstock.errors import ConnectionFailedError
    from penstock_lab.servers.postgres import PostgresServer

    # the server's user has to reach its files, and may not enter pytest's folders
    with tempfile.TemporaryDirectory(prefix="penstock-postgres-", dir=memory_folder()) as data:
        Path(data).chmod(0o711)
        try:
            server = PostgresServer(Path(data)).start()
        except ConnectionFailedError as error:
            pytest.skip(str(error))
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDBServer]:
    """A MariaDB server that all tests share: give tables names of their own, leave it running."""
    from penstock.errors import ConnectionFailedError
    from penstock_lab.servers.mariadb import MariaDBServer

    if not any(jar.name.startswith("mariadb-java-client-") for jar in JDBC_JARS):
        pytest.skip("MariaDB's JDBC driver is not there: `make jdbc-jars` fetches it")
    # as that of PostgreSQL
    with tempfile.TemporaryDirectory(prefix="penstock-mariadb-", dir=memory_folder()) as data:
        Path(data).chmod(0o711)
        try:
            server = MariaDBServer(Path(data)).start()
        except ConnectionFailedError as error:
            pytest.skip(str(error))
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture
def s3_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The S3 server, which Spark and the environment know."""
    if not any(jar.name.startswith("hadoop-aws-") for jar in S3_JARS):
        pytest.skip("Hadoop's file system of S3 is not there: `make s3-jars` fetches it")
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    return s3


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A standalone master and two workers of one core each, new for each test, which may kill them."""
    from penstock_lab.servers.cluster import StandaloneCluster

    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """The folders of a run, opened; many tests have such of their own."""
    from penstock.spark.storage.layout import Layout

    made = Layout(tmp_path / "out", tmp_path / "checkpoint")
    made.open()
    return made


@pytest.fixture
def own_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test changes documents itself, without a run that has their ledger open."""
    commit_briefly(monkeypatch)


@pytest.fixture(autouse=True)
def _ledgers_are_closed() -> Iterator[None]:
    """What a test has opened of ledgers is closed behind it: select() takes no descriptor beyond the 1,024th."""
    before = ledgers.opened_folders()
    yield
    for folder in ledgers.opened_folders() - before:
        ledgers.LedgerFolder(folder).close()
