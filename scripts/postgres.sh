#!/usr/bin/env bash
# Makes sure that PostgreSQL is there. As root on a Debian-like system a missing one is installed; otherwise the message says what is needed.
set -euo pipefail

if compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "PostgreSQL is not installed. Install it: apt-get install postgresql" >&2
  exit 2
fi
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends postgresql >/dev/null
