#!/usr/bin/env python3
"""Makes a tokenizer.json of Mistral's tekken vocabulary, as transformers' TikTokenConverter makes one.

    pip download --no-deps mistral-common==1.13.1
    convert_tekken.py mistral_common-1.13.1-py3-none-any.whl OUT_DIR

Writes OUT_DIR/tekken.json from mistral_common/data/tekken_240911.json (Apache-2.0): the pattern of that file, its
tokens with their ranks, a merge for each way to make a token of two others. The special tokens have made-up names.
fetch-tokenizers.py does both.
"""

import base64
import json
import pathlib
import sys
import zipfile


def byte_alphabet():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {c: chr(c) for c in kept}
    extra = 256
    for c in range(256):
        if c not in kept:
            table[c] = chr(extra)
            extra += 1
    return table


def convert(tekken: bytes) -> bytes:
    data = json.loads(tekken)
    config = data["config"]
    special = config["default_num_special_tokens"]
    ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in data["vocab"][: config["default_vocab_size"] - special]}
    table = byte_alphabet()
    text = {token: "".join(table[b] for b in token) for token in ranks}
    merges = []
    for token, rank in ranks.items():
        ways = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += [(rank, ranks[a], ranks[b], text[a], text[b]) for a, b in ways]
    merges.sort()
    split = {"type": "Split", "pattern": {"Regex": config["pattern"]}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"] + [f"<SPECIAL_{i}>" for i in range(5, special)]
    vocab = {n: i for i, n in enumerate(names)} | {text[t]: r + special for t, r in ranks.items()}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": n, **flags} for i, n in enumerate(names)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": vocab,
            "merges": [[a, b] for *_, a, b in merges],
        },
    }
    return json.dumps(tokenizer, ensure_ascii=False).encode()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    data = zipfile.ZipFile(sys.argv[1]).read("mistral_common/data/tekken_240911.json")
    (pathlib.Path(sys.argv[2]) / "tekken.json").write_bytes(convert(data))


if __name__ == "__main__":
    main()
