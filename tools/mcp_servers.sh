#!/bin/sh
# Provide the MCP servers with which the tests of the client speak, and the protocol's conformance suite, under build/mcp: from PyPI and,
# where the machine has npm, from npm, each file by its hash. What cannot be had is said, and its tests are skipped.
#
#   mcp_servers.sh [PYTHON]
set -eu

python=${1:-python3}
cd "$(dirname "$0")/.."
here=build/mcp
say() { printf 'mcp-servers: %s\n' "$*"; }

wanted=$(cat "$0" locks/servers.txt locks/servers_old.txt tests/data/mcp/package-lock.json | cksum)
[ "$(cat "$here/.made" 2>/dev/null || true)" = "$wanted" ] && { say "found in $here"; exit 0; }
rm -rf "$here"
mkdir -p "$here/npm"
say "installing time, git, fetch and sqlite from PyPI"
"$python" -m venv "$here/servers" && "$python" -m venv "$here/servers_old"
if ! { timeout 300 "$here/servers/bin/pip" --disable-pip-version-check --quiet install --require-hashes --only-binary :all: --no-deps --requirement locks/servers.txt &&
    timeout 300 "$here/servers_old/bin/pip" --disable-pip-version-check --quiet install --require-hashes --only-binary :all: --no-deps --requirement locks/servers_old.txt; }; then
    say "could not install them; the lines above say why. The tests of these servers will be skipped"
    exit 0
fi
if ! command -v npm >/dev/null 2>&1; then
    say "there is no npm on PATH: the tests of the servers from npm, and of the conformance suite, will be skipped"
    exit 0
fi
say "installing filesystem, memory, everything and the conformance suite from npm"
cp tests/data/mcp/package.json tests/data/mcp/package-lock.json "$here/npm/"
if ! timeout 300 npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$here/npm"; then
    say "could not install them; the lines above say why. Their tests will be skipped"
    exit 0
fi
echo "$wanted" >"$here/.made"
