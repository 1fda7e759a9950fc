#!/usr/bin/env bash
# Makes the virtual environment $1 with the Python $2 and installs the pinned requirements and the project.
set -euo pipefail

readonly venv=$1 python=$2

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "Python 3.11 or newer is needed; $python is $("$python" --version 2>&1 || echo missing)." \
    "Name another one: make PYTHON=python3.12" >&2
  exit 2
fi

if [ ! -x "$venv/bin/pip" ] && ! "$python" -c 'import ensurepip' 2>/dev/null; then
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "This Python cannot make virtual environments: installing python$version-venv with apt" >&2
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "python$version-venv" >/dev/null
  else
    echo "This Python cannot make virtual environments" \
      "(Debian: apt-get install python$version-venv)." >&2
    exit 2
  fi
fi

[ -x "$venv/bin/pip" ] || "$python" -m venv "$venv"

pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }
# PySpark comes as source only: what builds it is pinned and installed first.
pip install --quiet --require-hashes -r requirements/build.txt
packages=$(grep -c == requirements/dev.txt)
# a line every 10 s, also while one package takes minutes; who reads the output waits for no sleep
still() { while sleep 10 >/dev/null 2>&1; do echo "  still installing, $SECONDS s so far"; done; }
still &
readonly still=$!
trap 'kill "$still" 2>/dev/null || true' EXIT
echo "Installing $packages pinned packages (PySpark alone is 450 MB: minutes the first time)"
pip install --require-hashes --no-build-isolation --progress-bar off -r requirements/dev.txt |
  awk -v packages="$packages" '
    /^Collecting/ && (++n % 10 == 0 || /pyspark/) { print "  " n " of " packages ": " $2; fflush() }
    /^Building wheel/ || /^Installing collected/ { print "  " $1 " " $2 " " $3; fflush() }'
pip install --quiet --no-deps --no-build-isolation --editable .
