#!/usr/bin/env bash
# Fetches Hadoop's file system of S3 to $1/hadoop-aws, once.
set -euo pipefail

readonly here=$(cd "$(dirname "$0")" && pwd) cache=$1
readonly fetched=$cache/hadoop-aws/.fetched
if [ "$fetched" -nt "$here/pom.xml" ]; then
  exit 0
fi

. "$here/../maven.sh" "Hadoop's file system of S3"

mkdir -p "$cache"
readonly target=$(cd "$cache" && pwd) log=$cache/maven-s3.log
rm -rf "$target/hadoop-aws"
echo "Fetching Hadoop's file system of S3 with Maven"
if mvn --batch-mode -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$target/hadoop-aws" >"$log" 2>&1; then
  touch "$fetched"
else
  echo "Maven could not fetch it; its log is $log" >&2
  exit 2
fi
