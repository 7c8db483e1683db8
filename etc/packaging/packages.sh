#!/usr/bin/env bash
# packages.sh OUT ARCH… builds .deb, .rpm and an SBOM for each architecture into OUT, from
# what "make build install" makes. Equal sources make equal bytes: every time in
# them is that of the last commit (SOURCE_DATE_EPOCH).
#
# Environment: VERSION (default: what version.sh prints), SOURCE_DATE_EPOCH.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1
shift

VERSION=${VERSION:-$(etc/packaging/version.sh)}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

# dpkg and rpm want a digit first and order by dots: v1.2-3-gabc is 1.2+3.gabc.
case $VERSION in
  v[0-9]*) PACKAGE_VERSION=$(sed 's/^v//; s/-/+/; s/-/./g' <<<"$VERSION") ;;
  *) PACKAGE_VERSION=0.0.0+$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).${VERSION//-/.} ;;
esac
export PACKAGE_VERSION

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
rm -rf bin/share # its pages have the date of the sources that they were made of
for ARCH; do
  export ARCH STAGE=$work/$ARCH
  case $ARCH in
    "$(go env GOHOSTARCH)") CC=$(go env CC) ;;
    arm64) CC=$(etc/packaging/fetch.sh gcc-arm64) ;;
    *) echo "packages: no cross compiler for $ARCH is known here" >&2; exit 1 ;;
  esac
  GOARCH=$ARCH CGO_ENABLED=1 CC=$CC make -s build BIN="$work/bin-$ARCH" VERSION="$VERSION"
  make -s install BIN="$work/bin-$ARCH" DESTDIR="$STAGE" VERSION="$VERSION" LIBC="$($CC -print-file-name=libc.a)"
  cp "$STAGE/usr/share/doc/gpuslot/sbom.cdx.json" "$out/gpuslot_${PACKAGE_VERSION}_$ARCH.sbom.cdx.json"
  for format in deb rpm; do
    go tool -modfile=etc/packaging/tools/go.mod nfpm package --config etc/packaging/gpuslot.yaml --packager "$format" --target "$out" >&2
  done
done
