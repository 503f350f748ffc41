#!/bin/sh
# Provide the programs of other makers that the pages name, under build/page-clients: Claude Code from npm (250 MB) and Open WebUI from PyPI
# (7 GB), each file by its hash. `make page-clients` calls it, and has the tests run the pages' commands with them.
#
#   page_clients.sh [PYTHON]
set -eu

python=${1:-python3}
cd "$(dirname "$0")/.."
here=build/page-clients
wanted=$(cat "$0" locks/open_webui.txt tests/data/page_clients/package-lock.json | cksum)
[ "$(cat "$here/.made" 2>/dev/null || true)" = "$wanted" ] && exit 0
rm -rf "$here"
mkdir -p "$here/npm"
echo "page-clients: installing Claude Code from npm"
cp tests/data/page_clients/package.json tests/data/page_clients/package-lock.json "$here/npm/"
npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$here/npm"
node "$here/npm/node_modules/@anthropic-ai/claude-code/install.cjs" # puts the program of this machine in its place, and fetches nothing
echo "page-clients: installing Open WebUI from PyPI: 7 GB, some ten minutes"
"$python" -m venv "$here/open-webui"
"$here/open-webui/bin/pip" --disable-pip-version-check --quiet install --require-hashes --only-binary :all: --no-deps --requirement locks/open_webui.txt
echo "$wanted" >"$here/.made"
