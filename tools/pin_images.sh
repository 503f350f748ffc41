#!/bin/sh
# Write into the Containerfile which images its names mean today, by their digests: it builds from these from then on, whatever the names come
# to mean. To be run, and its change read, when newer images are wanted. Takes skopeo, or docker with buildx.
set -eu
cd "$(dirname "$0")/.."

fail() { printf 'images: %s\n' "$*" >&2; exit 1; }
digest_of() {
    if command -v skopeo >/dev/null 2>&1; then skopeo inspect --no-tags --format '{{.Digest}}' "docker://$1"
    elif command -v docker >/dev/null 2>&1; then docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$1"
    else fail "needs skopeo, or docker with buildx"; fi
}

for argument in PYTHON_IMAGE OLLAMA_IMAGE; do
    name=$(sed -n "s/^ARG $argument=//p" Containerfile | sed 's/@.*//')
    digest=$(digest_of "$name") || fail "there is no digest of $name to be had; the Containerfile is as it was for it"
    printf '%s\n' "$digest" | grep -Eqx 'sha256:[0-9a-f]{64}' || fail "what is told of $name is no digest: $digest"
    sed -i "s|^ARG $argument=.*|ARG $argument=$name@$digest|" Containerfile
    printf 'images: %s is %s\n' "$name" "$digest"
done
