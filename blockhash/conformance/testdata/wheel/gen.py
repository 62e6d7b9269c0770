"""Block hashes by vLLM's own functions, without installing vLLM: python3 gen.py WHEEL VERSION SEED > OUT.jsonl

Takes the functions that make block hashes out of vllm/v1/core/kv_cache_utils.py
of a wheel from PyPI (pip download --no-deps vllm==VERSION) and runs them on
random requests. Only the request object is a stand-in, as in
testdata/vllm/hash/gen, and NumPy arrays stand for tensors. The encodings are
those of vLLM's utils/hashing.py: pickle.dumps(v, protocol=5) and
cbor2.dumps(v, canonical=True), SHA-256 and XXH3-128. Needs cbor2, numpy, xxhash.
PYTHONHASHSEED is taken to be "0". Output: the format of testdata/vllm/hash.
"""
import ast
import base64
import hashlib
import json
import pickle
import random
import sys
import zipfile
from types import SimpleNamespace

import cbor2
import numpy
import xxhash

WANTED = {"_gen_mm_extra_hash_keys", "_gen_lora_extra_hash_keys", "_gen_prompt_embeds_extra_hash_keys",
          "generate_block_hash_extra_keys", "generate_lookahead_block_hash_extra_keys", "hash_block_tokens",
          "get_request_block_hasher", "need_extra_keys"}

FUNCTIONS = {
    "sha256": lambda v: hashlib.sha256(pickle.dumps(v, protocol=5)).digest(),
    "sha256_cbor": lambda v: hashlib.sha256(cbor2.dumps(v, canonical=True)).digest(),
    "xxhash": lambda v: xxhash.xxh3_128_digest(pickle.dumps(v, protocol=5)),
    "xxhash_cbor": lambda v: xxhash.xxh3_128_digest(cbor2.dumps(v, canonical=True)),
}


class TensorData(bytes):
    def tobytes(self):
        return bytes(self)


def engine(wheel):
    """The engine's functions, with type annotations taken off."""
    source = zipfile.ZipFile(wheel).read("vllm/v1/core/kv_cache_utils.py").decode()
    found = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name in WANTED]
    for function in found:
        for n in ast.walk(function):
            if isinstance(n, ast.FunctionDef):
                n.returns = None
                for arg in n.args.args + n.args.kwonlyargs:
                    arg.annotation = None
            if isinstance(n, ast.AnnAssign):
                n.annotation = ast.Name("object", ast.Load())
    names = {"hashlib": hashlib, "BlockHash": lambda x: x, "tensor_data": lambda t: TensorData(t.tobytes())}
    exec(compile(ast.fix_missing_locations(ast.Module(found, [])), wheel, "exec"), names)
    return names


def fresh(text):
    """A new str object with this content, as a request decoded from a message has."""
    return text.encode().decode()


def word(rng):
    odd = ["", "a", "é", "ÿ", "Ā", "b", "lora", "mm", "cache_salt", "prompt_embeds", "тенант", "x" * 255, "y" * 256]
    if rng.random() < 0.3:
        return rng.choice(odd)
    return "".join(rng.choice("0123456789abcdef") for _ in range(rng.choice([1, 2, 16, 64])))


def case(rng, i, lookahead):
    size = rng.choice([1, 2, 3, 4, 5, 8, 16, 16, 32])
    n = rng.randrange(0, size * 4 + 3)
    high = rng.choice([30, 300, 70000, 152064, 2**31, 2**32, 2**40])
    c = {"name": f"random-{i}", "block_size": size, "tokens": [
        rng.randrange(0, high) if rng.random() < 0.98 else -rng.randrange(1, 2**33) for _ in range(n)]}
    if rng.random() < 0.4:
        c["lora"] = {"name": word(rng), "path": word(rng), "id": rng.choice([1, 255, 256, 65536, 2**31 - 1])}
    if rng.random() < 0.4:
        c["cache_salt"] = word(rng)
    if rng.random() < 0.5:
        pos, c["mm"] = 0, []
        for _ in range(rng.randrange(1, 6)):
            pos += rng.randrange(0, size + 2)
            length = rng.randrange(1, 2 * size + 2)
            c["mm"].append({"identifier": word(rng), "offset": pos, "length": length})
            pos += length
    if rng.random() < 0.3:
        rows, hidden = max(rng.randrange(0, n + 1), 1), rng.choice([1, 4])
        c["prompt_embeds"] = {"dtype": "float32", "shape": [rows, hidden],
                              "data_b64": base64.b64encode(rng.randbytes(rows * hidden * 4)).decode()}
    if lookahead and rng.random() < 0.6:
        c["lookahead"] = rng.randrange(1, 6)
    return c


def request(c):
    feats = [SimpleNamespace(identifier=fresh(m["identifier"]),
                             mm_position=SimpleNamespace(offset=m["offset"], length=m["length"])) for m in c.get("mm", [])]
    embeds, lora = c.get("prompt_embeds"), c.get("lora")
    if embeds:
        embeds = numpy.frombuffer(base64.b64decode(embeds["data_b64"]), dtype=numpy.float32).reshape(embeds["shape"])
    return SimpleNamespace(
        block_hashes=[], num_tokens=len(c["tokens"]), all_token_ids=c["tokens"], mm_features=feats,
        mm_hashes=[f.identifier for f in feats], mm_positions=[f.mm_position for f in feats],
        lora_request=None if lora is None else SimpleNamespace(
            lora_name=fresh(lora["name"]), lora_int_id=lora["id"], lora_path=fresh(lora["path"])),
        cache_salt=fresh(c["cache_salt"]) if "cache_salt" in c else None,
        prompt_embeds=embeds, _prompt_embeds_per_block_hashes={})


def main():
    wheel, version, rng = sys.argv[1], sys.argv[2], random.Random(int(sys.argv[3]))
    names = engine(wheel)
    release = tuple(int(x) for x in version.split("."))
    functions = FUNCTIONS if release >= (0, 13, 0) else {k: FUNCTIONS[k] for k in ("sha256", "sha256_cbor")}
    cases = [case(rng, i, release >= (0, 33, 0)) for i in range(60)]
    results, none = [{} for _ in cases], {}
    for algorithm, fn in functions.items():
        names["NONE_HASH"] = fn("0")
        none[algorithm] = names["NONE_HASH"].hex()
        for c, r in zip(cases, results):
            look = (c["lookahead"],) if c.get("lookahead") else ()
            hashes = names["get_request_block_hasher"](c["block_size"], fn, *look)(request(c))
            r[algorithm] = {"hashes": [h.hex() for h in hashes],
                            "wire": [str(int.from_bytes(h[-8:], "big")) for h in hashes]}
    print(json.dumps({"header": True, "engine": "vllm", "version": version, "python_hash_seed": "0", "none_hash": none}))
    for c, r in zip(cases, results):
        print(json.dumps({**c, "results": r}, ensure_ascii=False))


main()
