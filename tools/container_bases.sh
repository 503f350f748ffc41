#!/bin/sh
# Make the images that the Containerfile begins with, where no registry of images can be reached: Debian's Python (debootstrap) in the place
# of python:3.13-slim, and the Ollama that `make ollama` built in that of ollama/ollama. Each has its name there, on this machine; none has
# its digest. It takes root, podman, and Debian's debootstrap; minutes, and 2 GB.
#
#   container_bases.sh SCRATCH     an empty folder
set -eu
cd "$(dirname "$0")/.."
scratch=$1
named() { sed -n "s/^ARG $1=//p" Containerfile | sed 's/@.*//'; }
import() { tar -C "$1" -c . | podman import --quiet - "localhost/$2" >/dev/null && rm -rf "$1"; }

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -E '/debian/?$' | head -n 1)
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
