"""Runs generate.py with the random chain roots that an earlier run recorded.

    env -u PYTHONHASHSEED python replay.py RECORDED.jsonl OUT.jsonl RNG_SEED VERSION

With PYTHONHASHSEED unset a release draws some or all roots at random, so that
no second run can give the same hashes. Here those roots, and only those, are
what RECORDED's header says; everything else is the engine's own.
"""

import json
import os
import runpy
import sys

import vllm.v1.core.kv_cache_utils as kcu

recorded = sys.argv.pop(1)
with open(recorded) as f:
    roots = {name: bytes.fromhex(root) for name, root in json.loads(f.readline())["none_hash"].items()}

init = kcu.init_none_hash


def init_none_hash(fn):
    init(fn)
    first = kcu.NONE_HASH
    init(fn)
    if kcu.NONE_HASH != first:  # drawn at random
        kcu.NONE_HASH = kcu.BlockHash(roots[fn.__name__])


kcu.init_none_hash = init_none_hash
runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "generate.py"), run_name="__main__")
