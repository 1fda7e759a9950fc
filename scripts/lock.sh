#!/usr/bin/env bash
# Pins requirements with their hashes, using the uv executable $1. No index address is written.
set -euo pipefail

compile() {
  "$uv" pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
    --upgrade --quiet "$@"
}

readonly uv=$1
compile pyproject.toml --extra dev --extra delta --extra iceberg --extra lab --extra demo --extra postgres --extra sigma --output-file requirements/dev.txt
compile requirements/build.in --constraint requirements/dev.txt --output-file requirements/build.txt
compile requirements/docs.in --constraint requirements/dev.txt --output-file requirements/docs.txt
compile requirements/flink.in --output-file requirements/flink.txt
if grep -n '://' requirements/*.txt; then
  echo "A requirements file names an address" >&2
  exit 1
fi
