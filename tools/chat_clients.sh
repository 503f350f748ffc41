#!/bin/sh
# Provide the chat clients that the tests let speak with the doors, under build/clients, from PyPI, each file by its hash. Where they cannot
# be had, that is said, and their tests are skipped.
#
#   chat_clients.sh [PYTHON]
set -eu

python=${1:-python3}
cd "$(dirname "$0")/.."
here=build/clients
say() { printf 'chat-clients: %s\n' "$*"; }

wanted=$(cat "$0" locks/clients.txt | cksum)
[ "$(cat "$here/.made" 2>/dev/null || true)" = "$wanted" ] && { say "found in $here"; exit 0; }
rm -rf "$here"
say "installing openai-python and ollama-python from PyPI"
"$python" -m venv "$here"
if ! timeout 300 "$here/bin/pip" --disable-pip-version-check --quiet install --require-hashes --only-binary :all: --no-deps --requirement locks/clients.txt; then
    say "could not install them; the lines above say why. Their tests will be skipped"
    exit 0
fi
echo "$wanted" >"$here/.made"
