#!/usr/bin/env bash
# Makes the environment that the Makefile runs in:  scripts/env.sh DIRECTORY core|test|torch
#
#   core   tilewright (editable) and what it needs
#   test   the same with the extra `dev`, and ptxas and nvdisasm from NVIDIA's wheel
#   torch  the same, JAX, and PyTorch for CPUs (TORCH=… is another requirement)
#
# It uses uv where that is installed; else python3 with its own pip (Debian's python3 without
# ensurepip too: the environment is then filled from outside); else venv's ensurepip.
# A stamp, written last, holds the hash of what the environment follows from: an unchanged project
# costs a hash, an interrupted installation leaves no stamp and is done again. A directory that
# this script did not make (no DIRECTORY.lock beside it) is never touched.
set -euo pipefail

env=${1:?usage: env.sh DIRECTORY core|test|torch}
set=${2:?usage: env.sh DIRECTORY core|test|torch}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
torch=${TORCH:-torch==2.13.0+cpu}
torch_wheels=https://download.pytorch.org/whl/cpu # of wheels for CPUs alone
tools="nvidia-cuda-nvcc>=13,<14" # ptxas; installed alone, its companions are for compiling CUDA C++

say() { printf 'env: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

case $set in
  core) wanted=$root ;;
  test) wanted="$root[dev]" ;;
  torch) wanted="$root[dev,jax]" ;;
  *) die "unknown set '$set': core, test or torch" ;;
esac

recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local name
  for name in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if command -v "$name" >/dev/null && recent "$name"; then
      command -v "$name"
      return
    fi
  done
  die "no Python 3.11 or newer (looked for ${PYTHON:-python3 python3.13 python3.12 python3.11})"
}

# pip of the outer Python can install into another environment from version 22.3 on.
outer_pip() {
  "$1" -c 'import pip, sys
sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (22, 3))' 2>/dev/null
}

hash_of() { # what the environment follows from
  { cat "$root/pyproject.toml" "$root/scripts/env.sh"; echo "$root $1 $way $torch"; "$1" -VV; } |
    "$1" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'
}

uv=""
if [ -z "${NO_UV:-}" ]; then uv=$(command -v uv || true); fi
python=$(find_python)
if [ -n "$uv" ]; then
  way=uv
elif outer_pip "$python"; then
  way=outer
elif "$python" -c 'import ensurepip' 2>/dev/null; then
  way=inner
else
  die "$python has neither pip 22.3 or newer nor ensurepip; install uv, python3-pip or python3-venv"
fi

create() { # an empty environment
  say "creating $env ($way pip, $("$python" -V))"
  rm -rf "$env"
  case $way in
    uv) "$uv" venv --quiet --python "$python" "$env" ;;
    outer) "$python" -m venv --without-pip "$env" ;;
    inner) "$python" -m venv "$env" ;;
  esac
}

install() {
  case $way in
    uv) "$uv" pip install --quiet --python "$env/bin/python" "$@" ;;
    outer) "$python" -m pip --python "$env/bin/python" install --quiet "$@" ;;
    inner) "$env/bin/python" -m pip install --quiet "$@" ;;
  esac
}

wanted_hash=$(hash_of "$python")
ready() { # ready SET: its stamp is the one we would write
  [ "$(cat "$env/.stamp-$1" 2>/dev/null)" = "$wanted_hash" ] && "$env/bin/python" -c 'import numpy'
}

unset PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
if [ -e "$env" ] && [ ! -e "$env.lock" ]; then
  die "$env exists and was not made by this script; name another directory, or remove it"
fi
mkdir -p "$(dirname "$env")"
touch "$env.lock"
if command -v flock >/dev/null; then # two makes at once: the second waits and finds it done
  exec 9>"$env.lock"
  flock 9
fi

if ready "$set" || ready torch || { [ "$set" = core ] && ready test; }; then
  exit 0 # `torch` holds all of `test`, which holds all of `core`
fi
ready core || create
say "installing tilewright ($set)"
install --editable "$wanted"
if [ "$set" != core ]; then install --no-deps "$tools"; fi
if [ "$set" = torch ]; then
  install "$torch" || install --extra-index-url "$torch_wheels" "$torch"
fi
echo "$wanted_hash" >"$env/.stamp.part"
mv "$env/.stamp.part" "$env/.stamp-$set"
