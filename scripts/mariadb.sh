#!/usr/bin/env bash
# Makes sure that MariaDB is there. As root on a Debian-like system a missing one is installed; otherwise the message says what is needed.
set -euo pipefail

if command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ]; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "MariaDB is not installed. Install it: apt-get install mariadb-server" >&2
  exit 2
fi
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends mariadb-server >/dev/null
