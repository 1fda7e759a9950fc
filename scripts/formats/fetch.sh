#!/usr/bin/env bash
# Fetches Spark's own readers of Avro and Protobuf to $1/spark-formats, once.
set -euo pipefail

readonly here=$(cd "$(dirname "$0")" && pwd) cache=$1
readonly fetched=$cache/spark-formats/.fetched
if [ "$fetched" -nt "$here/pom.xml" ]; then
  exit 0
fi

. "$here/../maven.sh" "Spark's readers of Avro and Protobuf"

mkdir -p "$cache"
readonly target=$(cd "$cache" && pwd) log=$cache/maven-formats.log
copy() { # the artifact $1; the rest are Maven's options
  local artifact=$1
  shift
  mvn --batch-mode -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$target/spark-formats" \
    -Dformats.artifact="$artifact" "$@" >>"$log" 2>&1
}

echo "Fetching Spark's readers of Avro and Protobuf with Maven"
rm -rf "$target/spark-formats"
: >"$log"
missing=()
for artifact in spark-avro spark-protobuf; do
  # Those of the newest Spark may not be on every Maven mirror.
  copy $artifact || copy $artifact -Dformats.version=4.2.0 || copy $artifact -Dformats.version=4.1.1 || missing+=("$artifact")
done
if [ ${#missing[@]} -lt 2 ]; then
  touch "$fetched"
fi
if [ ${#missing[@]} -gt 0 ]; then
  echo "Maven could not fetch ${missing[*]}; its log is $log" >&2
  exit 2
fi
