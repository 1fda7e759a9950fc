#!/usr/bin/env bash
# Makes sure a Java of at least version 17 is there, and prints its path.
# As root on a Debian-like system a missing one is installed; otherwise the message says what is needed.
set -euo pipefail

readonly NEEDED=17

major_version() { # of the java executable $1; 1.8 counts as 1
  "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

is_new_enough() {
  local version
  [ -x "$1" ] && version=$(major_version "$1") && [ -n "$version" ] && [ "$version" -ge "$NEEDED" ]
}

if [ -n "${JAVA_HOME:-}" ]; then
  if is_new_enough "$JAVA_HOME/bin/java"; then
    echo "$JAVA_HOME/bin/java"
    exit 0
  fi
  echo "JAVA_HOME is $JAVA_HOME, which holds no Java $NEEDED or newer. Point it to one, or unset it." >&2
  exit 2
fi

java=$(command -v java || true)
if [ -n "$java" ] && is_new_enough "$java"; then
  echo "$java"
  exit 0
fi

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  echo "No Java $NEEDED or newer found: installing one with apt" >&2
  apt-get update -qq >&2
  # The oldest release that is new enough is the one Spark has been tested with most.
  package=$(apt-cache search --names-only '^openjdk-[0-9]+-jre-headless$' | cut -d' ' -f1 |
    sort -t- -k2n | awk -F- -v needed="$NEEDED" '$2 >= needed { print; exit }')
  if [ -n "$package" ]; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
  fi
  hash -r
  java=$(command -v java || true)
  if [ -n "$java" ] && ! is_new_enough "$java"; then # an older Java still comes first on the path
    java=$(dpkg -L "${package:-}" 2>/dev/null | grep '/bin/java$' | head -n 1 || true)
    echo "An older Java comes first on PATH. Set JAVA_HOME=${java%/bin/java} and run this again." >&2
    exit 2
  fi
  if [ -n "$java" ]; then
    echo "$java"
    exit 0
  fi
fi

found=${java:+"; $java is version $(major_version "$java")"}
echo "Java $NEEDED or newer is needed${found:-" and none was found"}." \
  "Install a headless JRE (Debian: apt-get install openjdk-$NEEDED-jre-headless)" \
  "or set JAVA_HOME to one." >&2
exit 2
