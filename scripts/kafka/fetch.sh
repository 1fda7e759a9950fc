#!/usr/bin/env bash
# Fetches a Kafka broker to $1/kafka and Spark's Kafka connector to $1/kafka-connector, once.
set -euo pipefail

readonly here=$(cd "$(dirname "$0")" && pwd) cache=$1
readonly fetched=$cache/kafka-connector/.fetched
if [ "$fetched" -nt "$here/pom.xml" ] && [ "$fetched" -nt "$here/connector.xml" ]; then
  exit 0
fi

. "$here/../maven.sh" Kafka

mkdir -p "$cache"
readonly target=$(cd "$cache" && pwd) log=$cache/maven.log
copy() { # the dependencies of the POM $1 to the folder $2; the rest are Maven's options
  local pom=$1 folder=$2
  shift 2
  rm -rf "$folder"
  mvn --batch-mode -f "$here/$pom" dependency:copy-dependencies -DoutputDirectory="$folder" "$@" >>"$log" 2>&1
}

echo "Fetching the Kafka broker and Spark's connector with Maven"
: >"$log"
# The connector of the newest Spark may not be on every Maven mirror; an older one works the same.
if copy pom.xml "$target/kafka" && { copy connector.xml "$target/kafka-connector" ||
  copy connector.xml "$target/kafka-connector" -Dconnector.version=4.2.0 -Dtoken.version=4.0.0; }; then
  touch "$fetched"
else
  echo "Maven could not fetch Kafka; its log is $log" >&2
  exit 2
fi
