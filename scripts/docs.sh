#!/usr/bin/env bash
# Builds the site of docs/ with the mkdocs of the virtual environment $1; fails where a page would load from another host.
set -euo pipefail

readonly venv=$1 site=out/site
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --quiet
if grep -rnoE '<(script|img|iframe)[^>]* src="?https?://[^ >]*|<link[^>]* href="?https?://[^ >]*' "$site" --include='*.html'; then
  echo "A page loads from another host" >&2
  exit 1
fi
echo "The site is in $site: open $site/index.html"
