#!/usr/bin/env bash
# Fetches the JDBC drivers of PostgreSQL and H2 to $1/jdbc, once.
set -euo pipefail

readonly here=$(cd "$(dirname "$0")" && pwd) cache=$1
readonly fetched=$cache/jdbc/.fetched
if [ "$fetched" -nt "$here/pom.xml" ]; then
  exit 0
fi

. "$here/../maven.sh" "JDBC drivers"

mkdir -p "$cache"
readonly target=$(cd "$cache" && pwd) log=$cache/maven-jdbc.log
rm -rf "$target/jdbc"
echo "Fetching JDBC drivers with Maven"
if mvn --batch-mode -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$target/jdbc" >"$log" 2>&1; then
  touch "$fetched"
else
  echo "Maven could not fetch them; its log is $log" >&2
  exit 2
fi
