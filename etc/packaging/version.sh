#!/usr/bin/env bash
# version.sh prints the version of these sources: the newest heading of CHANGELOG.md, with
# a "v" in front. Below a heading "Unreleased" it is the last release with the time
# and name of the commit: v0.1.0-20261101120000-gabc1234.
set -euo pipefail
cd "$(dirname "$0")/../.."

newest=$(sed -n 's/^## //p' CHANGELOG.md | head -1)
case $newest in
  [0-9]*) echo "v${newest%% *}" ;;
  Unreleased)
    last=$(sed -n 's/^## \([0-9][^ ]*\).*/\1/p' CHANGELOG.md | head -1)
    echo "v${last:-0.0.0}-$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd-g%h 2>/dev/null || echo unknown)"
    ;;
  *)
    echo "version.sh: the newest heading of CHANGELOG.md is \"## $newest\"; write a version, such as ## 0.1.0" >&2
    exit 1
    ;;
esac
