"""Writes vectors of CPython's own C pickler: python3 gen.py > pickle.jsonl

Each line is a value tree, the length and the SHA-256 of pickle.dumps(tree, 5).
Values: null, integers, {"b": hex, "n": repeat} bytes, {"s": text, "n": repeat}
str, {"r": [first, step, count, modulus]} integers to be spliced into the list
around them, lists for tuples. A str with "c" is a constant of the program: one
object wherever it occurs. Others are separate objects even when equal, but for
those that CPython keeps once (empty, single Latin-1 characters); with
"shared": true in the line, equal strings are one object.
"""
import hashlib
import json
import pickle
import platform
import random
import sys

CONSTANTS = {s: s for s in ("lora", "mm", "cache_salt", "prompt_embeds")}


def build(v, shared):
    if isinstance(v, list):
        out = []
        for x in v:
            if isinstance(x, dict) and "r" in x:
                first, step, count, modulus = x["r"]
                out += [(first + step * i) % modulus for i in range(count)]
            else:
                out.append(build(x, shared))
        return tuple(out)
    if isinstance(v, dict):
        if "b" in v:
            return bytes.fromhex(v["b"]) * v.get("n", 1)
        s = v["s"] * v.get("n", 1)
        if v.get("c"):
            return CONSTANTS[s]
        s = s.encode().decode()  # a new object, unless CPython keeps it once
        return s if shared is None else shared.setdefault(s, s)
    return v


def emit(name, value, shared=False):
    table = dict(CONSTANTS) if shared else None
    data = pickle.dumps(build(value, table), protocol=5)
    line = {"name": name, "value": value, "len": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    if shared:
        line["shared"] = True
    print(json.dumps(line, ensure_ascii=False))


def main():
    rng = random.Random(5)
    parent = {"b": "5a", "n": 32}
    print(json.dumps({"header": True, "python": platform.python_version(),
                      "implementation": platform.python_implementation(), "protocol": 5}))
    for v in [0, 1, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**39 - 1,
              2**39, 2**40, 2**47, 2**55 - 1, 2**55, 2**62, 2**63 - 1]:
        for w in (v, -v - 1):
            emit(f"int {w}", [w])
    for n in (0, 1, 255, 256, 257, 65534, 65535, 65536, 65537, 70000):
        emit(f"bytes {n}", [parent, [1], [{"b": "07", "n": n}]])
        emit(f"str {n}", [parent, [1], [{"s": "z", "n": n}]])
    for n in range(65515, 65541):
        s = {"s": "z", "n": n}
        emit(f"long str {n}", [parent, [1, 2, 3, 4], [s]])
        emit(f"long str {n}, then more", [parent, [1, 2, 3, 4], [{"s": "a"}, s, {"s": "b"}, None]])
        emit(f"long bytes {n}, then more", [parent, [1, 2, 3, 4], [{"b": "01", "n": n}, 300, None]])
        emit(f"tagged long str {n}", [parent, [1], [{"s": "adapter"}, [{"s": "cache_salt", "c": 1}, s]]])
    emit("two long strings", [parent, [1], [{"s": "z", "n": 70000}, {"s": "y", "n": 70000}]])
    emit("long string last in a frame of nothing else", [{"s": "z", "n": 70000}])
    for n in range(13086, 13112):
        r = {"r": [100000 + n, 1, n, 2**31 - 1]}
        emit(f"{n} five-byte tokens", [parent, [r], None])
        emit(f"{n} five-byte tokens, extra tuple", [parent, [r], [{"s": "adapter"}, {"s": "tenant"}]])
        emit(f"{n} five-byte tokens, tagged", [parent, [r], [[{"s": "lora", "c": 1}, {"s": "n"}, {"s": "n"}]]])
        emit(f"{n} five-byte tokens, lookahead", [parent, [r], [None, 70000, 5]])
    emit("40000 tokens of mixed width", [parent, [{"r": [1, 7919, 40000, 200000]}], None])
    emit("30000 tokens, some above int32", [parent, [{"r": [2**31 - 20000 * 3, 3, 30000, 2**32]}], None])
    mm = [[{"s": "mm", "c": 1}, {"s": f"image {i % 150}"}, i - 3] for i in range(300)]
    emit("300 items", [parent, [{"r": [0, 1, 784, 2**31]}], mm])
    emit("300 items, shared", [parent, [{"r": [0, 1, 784, 2**31]}], mm], shared=True)
    late = mm + [[{"s": "lora", "c": 1}, {"s": ""}, {"s": ""}], {"s": "ÿ"}, {"s": "ÿ"}, {"s": "Ā"}, {"s": "Ā"},
                 [{"s": "lora", "c": 1}]]
    emit("references past 255", [parent, [5], late])
    emit("references past 255, shared", [parent, [5], late], shared=True)
    for i in range(60):
        pool = ["", "a", "é", "ÿ", "Ā", "ab", "lora", "ключ", "🧊", "x" * 255, "x" * 256]

        def tree(depth):
            k = rng.randrange(6)
            if k == 0:
                return None
            if k == 1:
                return rng.choice([1, -1]) * rng.randrange(2 ** rng.randrange(1, 63))
            if k == 2:
                return {"b": "09", "n": rng.choice([2, 40, 255, 256])}
            if k == 3:
                return {"s": rng.choice(pool)}
            if k == 4 or depth == 0:
                return {"s": rng.choice(list(CONSTANTS)), "c": 1}
            return [tree(depth - 1) for _ in range(rng.randrange(7))]
        value = [parent, [rng.randrange(2 ** rng.randrange(1, 33)) for _ in range(rng.randrange(1, 30))],
                 [tree(3) for _ in range(rng.randrange(1, 9))]]
        emit(f"random {i}", value)
        emit(f"random {i}, shared", value, shared=True)


main()
