#!/usr/bin/env bash
# Installs PyFlink with the Python $2 to $1/flink, and Flink's reader of Parquet to $1/flink-parquet, once.
set -euo pipefail

readonly here=$(cd "$(dirname "$0")" && pwd) cache=$1 python=$2
readonly pins=$here/../../requirements venv=$cache/flink

"$here/../jars.sh" flink flink-parquet "$cache" "Flink's reader of Parquet"
if [ "$venv/.installed" -nt "$pins/flink.txt" ]; then
  exit 0
fi

echo "Installing PyFlink to $venv (330 MB: minutes the first time)"
rm -rf "$venv"
"$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
# Some of what Beam needs comes as source only: what builds it is pinned and installed first.
pip install --require-hashes -r "$pins/build.txt"
pip install --require-hashes --no-build-isolation -r "$pins/flink.txt"
touch "$venv/.installed"
