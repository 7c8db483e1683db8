#!/usr/bin/env bash
# release.sh OUT ARCH… writes a release into OUT: packages and an SBOM for each
# architecture, the release notes, and the checksums of all of them.
#
# The version is the newest heading of CHANGELOG.md, and the notes are what is below it.
# The sources must be committed: the packages name their commit.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1
shift

fail() { echo "release: $1" >&2; exit 1; }
VERSION=$(etc/packaging/version.sh)
[[ $VERSION =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]] ||
  fail "the newest heading of CHANGELOG.md makes $VERSION; write a version there, such as ## 0.1.0"
[ -z "$(git status --porcelain)" ] || fail "commit or remove what git status lists, then run it again"
tagged=$(git rev-parse -q --verify "refs/tags/$VERSION^{commit}" || true)
[ -z "$tagged" ] || [ "$tagged" = "$(git rev-parse HEAD)" ] ||
  fail "$VERSION is tagged at ${tagged:0:12}; write the next version into CHANGELOG.md"
mkdir -p "$out"
out=$(cd "$out" && pwd)
[ -z "$(ls -A "$out")" ] || fail "$out is not empty; make clean empties it"

VERSION=$VERSION etc/packaging/packages.sh "$out" "$@"

bare=${VERSION#v}
{
  echo "# gpuslot $bare"
  awk -v heading="## $bare" '$0 == heading || index($0, heading " ") == 1 { inside = 1; next }
    /^## / { inside = 0 }
    inside' CHANGELOG.md
  echo
  echo "Install: docs/install.md. Check the files: sha256sum -c SHA256SUMS."
} >"$out/RELEASE_NOTES.md"
cd "$out"
sha256sum -- * >SHA256SUMS.tmp
mv SHA256SUMS.tmp SHA256SUMS
echo "gpuslot $bare is in $out:"
ls -1
[ -n "$tagged" ] || echo "To publish it: git tag $VERSION, then push the tag and these files."
