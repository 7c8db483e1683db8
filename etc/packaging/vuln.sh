#!/bin/sh
# vuln.sh asks Go's database of vulnerabilities about what gpuslot is made of.
# Where the database cannot be had it says "not checked", which is not "clean".
set -eu
cd "$(dirname "$0")/../.."
db=${GOVULNDB:-https://vuln.go.dev}
if ! command -v curl >/dev/null || ! curl -fsS --max-time 10 -o /dev/null "$db/index/db.json" 2>/dev/null; then
  echo "govulncheck: not checked: $db cannot be had from here"
  exit 0
fi
exec go tool -modfile=etc/packaging/tools/go.mod govulncheck -db "$db" ./cmd/...
