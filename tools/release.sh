#!/bin/sh
# Build and check a release in dist/: wheel, sdist, the site of the documents, and SHA256SUMS. `make release` calls it after the checks.
# The version is that of batos/__init__.py. It must be the newest of CHANGELOG.md, with a date, and the tree must be committed.
# The container is built and tried where podman, runc and debootstrap are (root); elsewhere that is named as not tried.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
say() { echo "release: $*"; }
fail() { echo "release: $*" >&2; exit 1; }

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' batos/__init__.py)
newest=$(sed -n 's/^## \[\([^]]*\)\].*/\1/p' CHANGELOG.md | head -n 1)
[ "$version" = "$newest" ] || fail "batos/__init__.py says $version, CHANGELOG.md begins with $newest; let both name the release"
grep -Eq "^## \[$version\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md || fail "CHANGELOG.md names no date for $version: ## [$version] - YYYY-MM-DD"
[ -z "$(git status --porcelain)" ] || fail "the tree has changes that are not committed; a release is a commit"

sh tools/check_package.sh
tar -czf "dist/batos-$version-site.tar.gz" -C build/site .
if [ "$(id -u)" = 0 ] && command -v podman >/dev/null && command -v runc >/dev/null && command -v debootstrap >/dev/null; then
    NEED_CONTAINER=yes "${VENV:-.venv}/bin/python" -m pytest -q tests/e2e/test_container.py
    container="the Containerfile was built, and its daemon thought a mission"
else
    container="the Containerfile was NOT TRIED: that takes root, podman, runc and debootstrap"
fi
(cd dist && sha256sum batos-"$version"* >SHA256SUMS)
say "$container"
say "version $version is in dist/:"
sed 's/^/    /' dist/SHA256SUMS
say "tag it: git tag -a v$version -m 'BAT OS $version'"
