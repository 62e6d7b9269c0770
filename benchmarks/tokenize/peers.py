"""Run by bench-tokenize: SOURCE WORK NAME..."""

import gzip
import json
import pathlib
import sys
import time

SOURCE, WORK = map(pathlib.Path, sys.argv[1:3])
TEXT = (WORK / "text").read_text()
BYTES = len(TEXT.encode())
PATTERNS = {
    "llama3.1": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def measure(bench, encode, ids):
    got = encode()
    if ids is not None and list(got) != ids:
        print(json.dumps({"bench": bench, "note": "gives other ids: not measured"}), flush=True)
        return
    tokens = len(got) if ids is not None else got
    times = []
    for _ in range(7):
        start = time.process_time()
        encode()
        times.append((time.process_time() - start) * 1e3)
    ms = min(times)
    line = {"bench": bench, "tokens": tokens, "bytes": BYTES, "ms": ms, "ms_per_100k": ms / tokens * 1e5, "mb_per_s": BYTES / ms / 1e3}
    print(json.dumps(line), flush=True)


def config(name):
    plain = SOURCE / f"{name}.json"
    return json.loads(plain.read_bytes() if plain.exists() else gzip.decompress((SOURCE / f"{name}.json.gz").read_bytes()))


def byte_of():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(c): c for c in kept}
    extra = 256
    for c in range(256):
        if c not in kept:
            table[chr(extra)] = c
            extra += 1
    return table


def main():
    for name in sys.argv[3:]:
        c = config(name)
        ids = json.loads((WORK / f"{name}.ids").read_text())
        try:
            import tokenizers

            t = tokenizers.Tokenizer.from_str(json.dumps(c))
            t.no_truncation()
            t.no_padding()
            measure(f"python-tokenizers-{tokenizers.__version__}/{name}", lambda: t.encode(TEXT, add_special_tokens=False).ids, ids)
        except ImportError:
            print(json.dumps({"bench": "python-tokenizers", "note": "not installed"}), flush=True)
        if name in PATTERNS:
            try:
                import tiktoken

                table = byte_of()
                ranks = {bytes(table[ch] for ch in token): i for token, i in c["model"]["vocab"].items()}
                e = tiktoken.Encoding(name, pat_str=PATTERNS[name], mergeable_ranks=ranks, special_tokens={})
                measure(f"python-tiktoken-{tiktoken.__version__}/{name}", lambda: e.encode_ordinary(TEXT), ids)
            except ImportError:
                print(json.dumps({"bench": "python-tiktoken", "note": "not installed"}), flush=True)
    try:
        import litellm

        count = lambda: litellm.token_counter(model="gpt-4o", text=TEXT)
        measure("python-litellm/gpt-4o", count, None)
    except ImportError:
        print(json.dumps({"bench": "python-litellm", "note": "not installed"}), flush=True)
    except Exception as e:
        print(json.dumps({"bench": "python-litellm", "note": f"failed: {e}"[:200]}), flush=True)


main()
