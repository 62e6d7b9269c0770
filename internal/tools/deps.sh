#!/usr/bin/env bash
# deps.sh DIR: installs what the nested module in DIR needs to build, if it is not there.
#
# A module whose Makefile has a "deps" target is asked to install for itself. The others are served here, by what
# they require.
set -euo pipefail
dir=${1:?usage: deps.sh DIR}

if [[ -f $dir/Makefile ]] && grep -q '^deps:' "$dir/Makefile"; then
  exec make --no-print-directory -C "$dir" deps
fi

# need PKG-CONFIG-NAME DEBIAN-PACKAGE
need() {
  pkg-config --exists "$1" 2>/dev/null && return
  if ! command -v apt-get >/dev/null || [[ $(id -u) != 0 ]]; then
    echo "$dir needs $1: install it (Debian, Ubuntu: apt-get install $2 pkg-config; macOS: brew install ${1#lib} pkg-config)" >&2
    exit 1
  fi
  echo "$dir: installing $2"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" pkg-config >/dev/null
}

if grep -q 'pebbe/zmq4' "$dir/go.mod"; then
  need libzmq libzmq3-dev
fi
