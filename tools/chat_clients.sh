#!/bin/sh
# Provide the chat clients that the tests let speak with the doors, under build/clients: from PyPI and, where the machine has npm, from npm,
# each file by its hash. What cannot be had is said, and its tests are skipped.
#
#   chat_clients.sh [PYTHON]
set -eu

python=${1:-python3}
cd "$(dirname "$0")/.."
here=build/clients
say() { printf 'chat-clients: %s\n' "$*"; }

wanted=$(cat "$0" locks/clients.txt tests/data/doors/package-lock.json | cksum)
[ "$(cat "$here/.made" 2>/dev/null || true)" = "$wanted" ] && { say "found in $here"; exit 0; }
rm -rf "$here"
say "installing openai-python, ollama-python, llm and LiteLLM from PyPI"
"$python" -m venv "$here"
if ! timeout 600 "$here/bin/pip" --disable-pip-version-check --quiet install --require-hashes --only-binary :all: --no-deps --requirement locks/clients.txt; then
    say "could not install them; the lines above say why. The tests of all chat clients will be skipped"
    exit 0
fi
touch "$here/.python"
if ! command -v npm >/dev/null 2>&1; then
    say "there is no npm on PATH: the tests of the clients of Node will be skipped"
    exit 0
fi
say "installing openai and the AI SDK from npm"
mkdir -p "$here/npm"
cp tests/data/doors/package.json tests/data/doors/package-lock.json "$here/npm/"
if ! timeout 300 npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$here/npm"; then
    say "could not install them; the lines above say why. The tests of the clients of Node will be skipped"
    exit 0
fi
echo "$wanted" >"$here/.made"
