#!/bin/sh
# Build the Containerfile by a real engine where no registry of images can be reached, and have the daemon in it think a mission.
#
# The images that it names are made here, and so are not those of its digests: Debian's Python (debootstrap) in the place of python:3.13-slim, and the Ollama that was built by
# `make ollama` in that of ollama/ollama. It takes root, and Debian's buildah and debootstrap. Minutes, and 2 GB in TMPDIR while it runs.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
engine() { buildah --root "$scratch/store" --runroot "$scratch/run" --storage-driver vfs "$@"; }
named() { sed -n "s/^ARG $1=//p" Containerfile | sed 's/@.*//'; }
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -E '/debian/?$' | head -n 1)

# An image of a folder, under the name that the Containerfile's FROM has for it, on this machine.
import() {
    made=$(engine from scratch)
    engine add -q "$made" "$1" / >/dev/null
    engine commit -q "$made" "localhost/$2" >/dev/null
    engine rm "$made" >/dev/null
    rm -rf "$1"
}
debootstrap --variant=minbase --include=python3,python3-pip,ca-certificates stable "$scratch/python" "$mirror" >"$scratch/log"
# as in the image that it stands for: packages are pip's to install, and there is no other than pip itself
rm -f "$scratch"/python/usr/lib/python3*/EXTERNALLY-MANAGED
for path in "$scratch"/python/usr/lib/python3/dist-packages/*; do
    case ${path##*/} in pip|pip-*) ;; *) rm -rf "$path" ;; esac
done
ln -s python3 "$scratch/python/usr/bin/python"
import "$scratch/python" "$(named PYTHON_IMAGE)"
mkdir -p "$scratch/ollama/usr/bin" "$scratch/ollama/usr/lib/ollama"
cp build/ollama/bin/ollama "$scratch/ollama/usr/bin/"
import "$scratch/ollama" "$(named OLLAMA_IMAGE)"

# pip in it reaches the index as this machine's does
set --
for file in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do [ ! -f $file ] || set -- "$@" -v "$file:$file:ro"; done
for name in PYTHON_IMAGE OLLAMA_IMAGE; do set -- "$@" --build-arg "$name=localhost/$(named $name)"; done
engine bud --format docker --isolation chroot --pull-never "$@" -t batos . >"$scratch/log"
made=$(engine from --pull-never localhost/batos)
engine run --isolation chroot "$made" -- sh -c '
    batos doctor
    batos run --supervise >/data/log 2>&1 & daemon=$!
    for second in $(seq 60); do batos dashboard --once >/dev/null 2>&1 && break; sleep 1; done
    for try in 1 2 3 4; do      # under one id it is one mission, however often a busy machine has it asked for again
        ! batos send "I feel stuck" --id tried --watch || break
        [ $try -lt 4 ] || { cat /data/log; exit 1; }
    done
    kill -TERM $daemon && wait $daemon && ! batos dashboard --once && echo "container: built, thinks, ends in good order"'
