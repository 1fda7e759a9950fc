#!/usr/bin/env bash
# Fetches the jars of scripts/$1/pom.xml to $3/$2, once; $4 names them for messages.
set -euo pipefail

readonly here=$(cd "$(dirname "$0")" && pwd)
readonly pom=$here/$1/pom.xml name=$1 folder=$2 cache=$3 what=$4
readonly fetched=$cache/$folder/.fetched
if [ "$fetched" -nt "$pom" ]; then
  exit 0
fi

. "$here/maven.sh" "$what"

mkdir -p "$cache"
readonly target=$(cd "$cache" && pwd) log=$cache/maven-$name.log
rm -rf "$target/$folder"
echo "Fetching $what with Maven"
if mvn --batch-mode -f "$pom" dependency:copy-dependencies -DoutputDirectory="$target/$folder" >"$log" 2>&1; then
  touch "$fetched"
else
  echo "Maven could not fetch $what; its log is $log" >&2
  exit 2
fi
