#!/usr/bin/env bash
# setup.sh DIR: makes a virtual environment with pyzmq in DIR, unless it is there, and prints its Python.
#
#   KVATLAS_PYZMQ=$(kvevents/zmtp/testdata/pyzmq/setup.sh .venv-pyzmq) go test -run PyZMQ ./kvevents/zmtp/
set -euo pipefail
dir=${1:?usage: setup.sh DIR}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
python=$dir/bin/python
if ! "$python" -c 'import zmq' 2>/dev/null; then
  "${PYTHON:-python3}" -m venv "$dir" >&2 || {
    echo "setup.sh: no virtual environment (Debian, Ubuntu: apt-get install python3-venv)" >&2
    exit 1
  }
  "$python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt" >&2
fi
"$python" -c 'import sys, zmq; print("pyzmq", zmq.__version__, "on libzmq", zmq.zmq_version(), file=sys.stderr)'
echo "$python"
