# One Makefile for a laptop and for continuous integration. `make` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CACHE := .cache
INSTALLED := $(VENV)/.installed
KAFKA_PORT ?= 9092
TOPICS ?=
S3_PORT ?= 8333
POSTGRES_PORT ?= 5433
BUCKETS ?= penstock
MASTER_PORT ?= 7077
# so many tests run at a time, each worker with a Spark session and a Kafka broker of its own (4 GB); 0: in one process
WORKERS ?= 2
PYTEST_OPTIONS ?=
BATCHES ?= 100000
MINUTES ?= 1440
CUTS ?= 10000
ROWS ?= 2000000
WINDOWS ?= 24000
# benchmarks one after the other: all of them run, and the target fails where one of them did
benchmarks = @failed=0; for name in $(1); do $(BIN)/python benchmarks/$$name.py || failed=1; done; exit $$failed

# what is compiled once is compiled for the next process too, also where the environment asks for no files of it
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help venv java demo demo-joins demo-deadlines demo-rules flights test test-all lint format bench-selection bench-disorder bench-groups bench-windows bench-shared-windows bench-joins bench-nexmark bench-joins-state bench-joins-latency bench-runs bench-join-kernels bench-plans bench-deadlines bench-deadlines-spark bench-deadlines-memory bench-network bench-startup bench-formats bench-declaring bench-text bench-functions bench-rules bench-sinks bench-floor bench-object-store bench-weeks soak storms checkpoint-sample kafka-jars jdbc-jars s3-jars format-jars axe screenshots kafka kafka-stop s3 s3-stop mariadb-server postgres postgres-server postgres-stop cluster cluster-stop docs lock flink clean
.DELETE_ON_ERROR:

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

$(INSTALLED): requirements/build.txt requirements/dev.txt pyproject.toml
	@scripts/venv.sh $(VENV) $(PYTHON)
	@touch $@

venv: $(INSTALLED) ## make .venv with the pinned requirements

java:
	@scripts/java.sh >/dev/null

demo: java $(INSTALLED) ## replay a year of real flights against 2,000 standing queries
	$(BIN)/penstock demo

demo-joins: java $(INSTALLED) ## replay the same flights joined with the weather, by an order that follows the seasons
	$(BIN)/penstock demo joins

demo-deadlines: java $(INSTALLED) ## the same flights under twice the load that two cores bear, answered in time or given up
	$(BIN)/penstock demo deadlines

demo-rules: java $(INSTALLED) ## 1,200 invented text rules from files over invented events, the same answers by DuckDB
	$(BIN)/python examples/rules.py

test: java $(INSTALLED) kafka-jars jdbc-jars s3-jars postgres-server mariadb-server ## run the tests in their short form, Kafka included
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(PYTEST_OPTIONS)

test-all: java $(INSTALLED) kafka-jars jdbc-jars s3-jars postgres-server mariadb-server ## run every test in its long form: kill -9 at every place, hundreds of random queries, the cluster, ten minutes of growth
	PENSTOCK_TESTS=all $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(PYTEST_OPTIONS)

flights: $(INSTALLED) ## write the data of examples/ as Parquet to examples/data
	@$(BIN)/python -m penstock.cli.demo_data examples/data

lint: $(INSTALLED) ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/mypy --config-file tests/mypy.ini

format: $(INSTALLED) ## rewrite the sources in the one style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-selection: java $(INSTALLED) ## tables and pictures: the paper's findings, scale, Spark
	$(call benchmarks,selection_paper selection_scale selection_sides selection_spark)

bench-disorder: $(INSTALLED) ## slack policies on disordered streams, in virtual time
	$(BIN)/python benchmarks/disorder.py

bench-groups: $(INSTALLED) ## windows of 10, 1,000 and 100,000 groups in virtual time: first promise, K beside the best fixed one, what judging costs
	$(BIN)/python benchmarks/groups.py

bench-windows: java $(INSTALLED) ## window views beside Spark's own streaming aggregation
	$(call benchmarks,windows_spark windows_latency windows_scaling)

bench-shared-windows: java $(INSTALLED) ## 1, 50 and 500 window views that differ in WHERE alone: share of one view's rate, processor time by part
	$(BIN)/python benchmarks/shared_windows.py

bench-formats: java $(INSTALLED) format-jars ## Avro and Protobuf values decoded by workers beside Spark's from_avro and from_protobuf
	$(BIN)/python benchmarks/formats_spark.py

bench-page: java $(INSTALLED) ## the page beside a run of 100,000 rules and 500 window views: share of the rate, first paint, memory of a browser
	$(BIN)/python benchmarks/page.py

bench-joins: java $(INSTALLED) ## join views beside Spark's own joins of streams; balance under skew
	$(call benchmarks,joins_spark joins_skew joins_views)

bench-nexmark: java $(INSTALLED) flink ## the queries of Nexmark on Penstock beside Spark Structured Streaming and PyFlink; all of them in one run
	$(BIN)/python benchmarks/nexmark_spark.py

bench-joins-state: java $(INSTALLED) ## bytes a join view keeps of a tuple beside Spark's, and memory and files over 10,000 cuts (CUTS)
	$(BIN)/python benchmarks/joins_state.py --cuts $(CUTS)

bench-joins-latency: java $(INSTALLED) ## how soon after its newer tuple a joined row can be read, at 50,000 rows/s a stream
	$(BIN)/python benchmarks/joins_latency.py

bench-runs: $(INSTALLED) ## sorted runs of tuples: written, merged, mapped and probed
	$(BIN)/python benchmarks/runs.py

bench-join-kernels: $(INSTALLED) ## joins of sorted runs on one thread, beside DuckDB; what leaving tuples out would be worth
	$(call benchmarks,joins_kernels joins_shedding)

bench-plans: $(INSTALLED) ## join plans by output rate, in virtual time: pictures, model error, crossover, regret, recovery
	$(BIN)/python benchmarks/plans.py

bench-deadlines: $(INSTALLED) ## deadlines in virtual time: the paper's pictures, (k, m) violations, the clairvoyant bound (traces beside the project)
	$(BIN)/python benchmarks/deadlines.py

bench-deadlines-spark: java $(INSTALLED) ## deadlines in real time on two cores: ours, best effort and Spark, loads 0.5 to 2; all policies; 100 windows a second; samples
	$(call benchmarks,deadlines_spark deadlines_policies deadlines_many deadlines_approximate)

bench-deadlines-memory: java $(INSTALLED) ## fifty views with a deadline: memory and files over 24,000 windows (WINDOWS)
	$(BIN)/python benchmarks/deadlines_memory.py --windows $(WINDOWS)

bench-network: $(INSTALLED) ## a simulated ad hoc network under three protocols: pictures, Bianchi's figures, the paper's claims
	$(BIN)/python benchmarks/network.py

bench-text: $(INSTALLED) ## text predicates of 2,856 detection rules over recorded events beside DuckDB and pyarrow; needs ../shared/data/sigma
	$(BIN)/python benchmarks/text_patterns.py

bench-functions: java $(INSTALLED) ## users' functions in 200 selections: calls and rows/s before and after; one row in a thousand that raises
	$(BIN)/python benchmarks/functions_spark.py

bench-rules: java $(INSTALLED) ## public detection rules over recorded events on Spark: the right pairs, events a second (data beside the project)
	$(BIN)/python benchmarks/rules_spark.py

bench-startup: java $(INSTALLED) ## how soon commands say something, beside their limits
	$(BIN)/python benchmarks/startup.py

bench-declaring: java $(INSTALLED) ## 1,000 to 100,000 views declared by SQL and from Python; one more, and one less, while they run
	$(BIN)/python benchmarks/declaring.py

bench-object-store: java $(INSTALLED) s3-jars ## results in a bucket of a local S3 server: latency beside a local folder, requests and bytes a batch
	$(BIN)/python benchmarks/object_store.py

bench-floor: java $(INSTALLED) ## a cut of an empty lane, from entry to visible result, and an order of a deadline, idle, busy and in two shares, also on two workers; what a call and a job of Spark take
	$(call benchmarks,cut_floor order_floor order_shares acknowledged)

bench-sinks: $(INSTALLED) ## rows a second into Delta, Iceberg, Kafka and databases; what 80 views' sinks cost a batch
	$(BIN)/python benchmarks/sinks.py

bench-weeks: $(INSTALLED) ## 100,000 batches published and 100,000 entries of a log, without Spark
	$(call benchmarks,publication_weeks log_weeks)

checkpoint-sample: java $(INSTALLED) ## make the small checkpoint of the present layout that tests start from
	$(BIN)/python tests/checkpoint_sample.py

soak: java $(INSTALLED) ## 100,000 small batches with restarts: does the last one cost what the first did (BATCHES, MINUTES)
	$(BIN)/python benchmarks/soak.py --batches $(BATCHES) --minutes $(MINUTES)

storms: java $(INSTALLED) kafka-jars jdbc-jars postgres-server ## every sink against its server, rows by the million (ROWS): killed drivers and servers, a minute away, full disks, refused rows
	PENSTOCK_TESTS=all PENSTOCK_STORM_ROWS=$(ROWS) $(BIN)/python -m pytest -n 0 -s tests/chaos/test_sink_storms.py $(PYTEST_OPTIONS)

# Tests that need the jars are skipped, saying so, where they cannot be fetched.
kafka-jars: java
	@scripts/kafka/fetch.sh $(CACHE) || echo "Without Kafka's jars the tests that need them are skipped."

jdbc-jars: java
	@scripts/jars.sh jdbc jdbc $(CACHE) "JDBC drivers" || echo "Without these drivers the tests of the sink jdbc are skipped."

s3-jars: java ## fetch Hadoop's file system of S3 (13 MB), so that Spark need not
	@scripts/jars.sh s3 hadoop-aws $(CACHE) "Hadoop's file system of S3" || echo "Without these jars the tests of Spark on S3 are skipped."

flink: java ## install PyFlink to an environment of its own and fetch its reader of Parquet, for a benchmark
	@scripts/flink/fetch.sh $(CACHE) $(PYTHON) || echo "Without PyFlink its column of the benchmark is left out."

format-jars: java ## fetch Spark's own readers of Avro and Protobuf, for a benchmark
	@scripts/formats/fetch.sh $(CACHE) || echo "What cannot be fetched is not measured."

axe: ## fetch axe-core, with which the page's tests look for barriers
	@mkdir -p $(CACHE)/axe
	@npm pack --silent --pack-destination $(CACHE)/axe axe-core@4.14.1 && tar -xzf $(CACHE)/axe/axe-core-4.14.1.tgz -C $(CACHE)/axe --strip-components 1 package/axe.min.js package/LICENSE && rm $(CACHE)/axe/axe-core-4.14.1.tgz

screenshots: java $(INSTALLED) ## run the demo and take two pictures of its page, into docs/images
	$(BIN)/penstock demo --no-page --output out/screenshots
	$(BIN)/python docs/screenshots.py out/screenshots

kafka: java $(INSTALLED) ## start a Kafka broker on 127.0.0.1:9092 (KAFKA_PORT) and create topics (TOPICS=payments,devices)
	@scripts/kafka/fetch.sh $(CACHE)
	@$(BIN)/python -m penstock_lab.servers.kafka start --port $(KAFKA_PORT) --topics "$(TOPICS)" --jars $(CACHE)/kafka --connector $(CACHE)/kafka-connector --data $(CACHE)/kafka-data

kafka-stop: $(INSTALLED) ## stop that broker
	@$(BIN)/python -m penstock_lab.servers.kafka stop --data $(CACHE)/kafka-data

s3: $(INSTALLED) ## start an S3 server on 127.0.0.1:8333 (S3_PORT) and create buckets (BUCKETS=penstock)
	@$(BIN)/python -m penstock_lab.servers.s3 start --port $(S3_PORT) --buckets "$(BUCKETS)" --data $(CACHE)/s3-data

s3-stop: $(INSTALLED) ## stop that server
	@$(BIN)/python -m penstock_lab.servers.s3 stop --data $(CACHE)/s3-data

postgres-server:
	@scripts/postgres.sh || echo "Without PostgreSQL the tests of its sink are skipped."

mariadb-server:
	@scripts/mariadb.sh || echo "Without MariaDB the tests that need it are skipped."

postgres: $(INSTALLED) ## start PostgreSQL on 127.0.0.1:5433 (POSTGRES_PORT); on a Debian-like system a missing one is installed
	@scripts/postgres.sh
	@$(BIN)/python -m penstock_lab.servers.postgres start --port $(POSTGRES_PORT) --data $(CACHE)/postgres

postgres-stop: $(INSTALLED) ## stop that server
	@$(BIN)/python -m penstock_lab.servers.postgres stop --data $(CACHE)/postgres

cluster: java $(INSTALLED) ## start a standalone master and two workers on 127.0.0.1:7077 (MASTER_PORT)
	@$(BIN)/python -m penstock_lab.servers.cluster start --port $(MASTER_PORT) --data $(CACHE)/cluster

cluster-stop: $(INSTALLED) ## stop them
	@$(BIN)/python -m penstock_lab.servers.cluster stop --data $(CACHE)/cluster

$(VENV)/.installed-docs: $(INSTALLED) requirements/docs.txt
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/docs.txt
	@touch $@

docs: $(VENV)/.installed-docs ## build the documentation as a site in out/site
	@scripts/docs.sh $(VENV)

lock: $(INSTALLED) ## pin the newest versions that pyproject.toml allows, with their hashes
	scripts/lock.sh $(BIN)/uv

clean: ## remove what the other targets made, .venv and the fetched jars included
	-@[ ! -x $(BIN)/python ] || $(MAKE) --no-print-directory kafka-stop s3-stop postgres-stop cluster-stop
	rm -rf $(VENV) $(CACHE) out build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
