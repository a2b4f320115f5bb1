#!/bin/sh
# Everything there is to learn from one GPU, in one call; `run.sh --help` names the options.
# It needs a Python with torch, and nothing else: no network, no installation.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# In the kit this lies beside the package, in a checkout inside it.
if [ -d "$here/device_kit" ]; then root=$here; else root=$(dirname -- "$here"); fi
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" -m device_kit "$@"
