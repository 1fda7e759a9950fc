# Sourced by scripts that fetch jars: makes sure that Maven is installed. $1 says what it is needed for.
if ! command -v mvn >/dev/null; then
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "Installing Maven with apt, to fetch $1"
    { apt-get update -qq &&
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven; } >/dev/null
  else
    echo "Maven is needed to fetch $1 (Debian: apt-get install maven)" >&2
    exit 2
  fi
fi
