"""Runs generate.py with the random chain roots that an earlier run recorded.

    env -u PYTHONHASHSEED python replay.py RECORDED.jsonl OUT.jsonl RNG_SEED VERSION

With PYTHONHASHSEED unset a release draws some or all roots at random, so that
no second run can give the same hashes. Here those draws, and only those,
return what RECORDED's header says; everything else is the engine's own.
"""

import json
import os
import runpy
import sys

import vllm.v1.core.kv_cache_utils as kcu

recorded = sys.argv.pop(1)
with open(recorded) as f:
    roots = {name: bytes.fromhex(root) for name, root in json.loads(f.readline())["none_hash"].items()}

init, urandom = kcu.init_none_hash, os.urandom


def init_none_hash(fn):
    os.urandom = lambda n: roots[fn.__name__]
    try:
        init(fn)
    finally:
        os.urandom = urandom


kcu.init_none_hash = init_none_hash
runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "generate.py"), run_name="__main__")
