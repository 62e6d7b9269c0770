#!/usr/bin/env python3
"""Digests of the ids that Hugging Face tokenizers gives for many random, hostile texts.

    pip install tokenizers==0.22.0
    random_texts.py pools OUT_DIR
    random_texts.py ids TOKENIZER_DIR OUT_DIR [NAME ...]
    random_texts.py offsets TOKENIZER_DIR OUT_DIR [NAME ...]
    random_texts.py variants TOKENIZER_DIR OUT_DIR
    random_texts.py pairs TOKENIZER_DIR OUT_DIR [NAME ...]

The first writes OUT_DIR/pools.json: what texts are made of. A text is made from its number alone, by make() here and by
its twin in Go, so the texts themselves need not be kept. The second writes OUT_DIR/NAME.txt, one line a text: the first
four bytes of the SHA-256 of its ids (little-endian, 32 bits each), as hex. Even texts have special tokens added. The
third writes OUT_DIR/offsets-NAME.txt, the same of the offsets (start and end in bytes, without special tokens added and
without the trimming of the post-processor), or "-" where the normalizer joins, splits or moves characters. The
fourth writes ids for the tokenizers of variants.json: each is a tokenizer of TOKENIZER_DIR with fields replaced. The
fifth writes OUT_DIR/pairs-NAME.txt, the ids of 2,000 texts paired with those 5,000 numbers on; variant-NAME is a variant.
"""

import gzip
import hashlib
import json
import pathlib
import struct
import sys

COUNT = 10000
MASK = (1 << 64) - 1


class Random:
    """splitmix64"""

    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, n):
        return self.next() % n


def make(pools, number):
    """The text of that number. Any change here is a change in random_test.go too."""
    r = Random(number * 0x2545F4914F6CDD1D + 20261129)
    mode = pools["modes"][r.below(len(pools["modes"]))]
    out = []
    for _ in range(1 + r.below(1 + r.below(60))):
        name = mode[r.below(len(mode))]
        if name == "code points":
            first, last = pools["blocks"][r.below(len(pools["blocks"]))]
            piece = ""
            for _ in range(1 + r.below(6)):
                c = first + r.below(last - first + 1)
                piece += "\ufffd" if 0xD800 <= c <= 0xDFFF else chr(c)
        else:
            piece = pools["pieces"][name][r.below(len(pools["pieces"][name]))]
        if r.below(24) == 0:
            piece *= 1 + r.below(70)
        if r.below(24) == 0:
            piece = piece[: r.below(len(piece) + 1)]
        out.append(piece)
    return "".join(out)


def pools():
    import generate as g

    tokens = list(g.SPECIAL) + ["<|im_start|>user\n", "<|im_end|>\n", "<META_START>", "<EOT>", "[AVAILABLE_TOOLS]", "<0x0A>", "<|call|>"]
    pieces = {
        "words": g.WORDS + [w.capitalize() for w in g.WORDS[:120]] + [w.upper() for w in g.WORDS[:60]],
        "spaced": [" " + w for w in g.WORDS] + [" " + w.capitalize() for w in g.WORDS[:60]],
        "contractions": g.CONTR,
        "space": g.WS,
        "plain space": [" ", " ", " ", "  ", "\n", "\n\n", "\t", "    ", "\r\n"],
        "special": tokens,
        "emoji": g.EMOJI,
        "punctuation": list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "->", "==", "!=", "</", "/>", "();", "//", "/*", "---", "***", "\\n", "”", "“", "—", "…", "。", "，", "¿", "·", "€", "§"],
        "digits": ["0", "7", "12", "123", "1234", "20261129", "3.14", "1,000", "３４５", "²³", "Ⅷ", "½", "٣٤", "१२३", "①", "𝟗𝟘", "0x", "1e9"],
        "letters": ["a", "A", "aB", "Ab", "ß", "ſ", "K", "é", "É", "ñ", "ö", "ø", "İ", "ı", "ǅ", "ʰ", "ª", "ﬁ", "Ω", "Ω", "漢", "字", "かな", "カナ", "한", "글", "ᄀ", "ᅡ", "ᆨ", "อ", "ม", "न", "ि", "ا", "ل", "ש", "Ж", "ж"],
        "marks": ["\u0301", "\u0300", "\u0323", "\u0327", "\u0308", "\u0345", "\u0338", "\u20dd", "\u0e31", "\u093c", "\u05bc", "\u3099", "\ufe0f", "\u200d", "\u0334", "\u1ab0", "\u1dfa"],
        "odd": ["\x00", "\x01", "\x1b", "\x7f", "\u00ad", "\u200b", "\u200e", "\u2060", "\ufeff", "\ufffd", "\uffff", "\ue000", "\U0010ffff", "\U000e0041", "\u2581", "\u2581\u2581", "\u0378"],
    }
    modes = [
        ["words", "spaced", "spaced", "spaced", "contractions", "punctuation", "plain space"],
        ["spaced", "spaced", "special", "plain space", "punctuation"],
        ["words", "punctuation", "plain space", "digits", "letters"],
        ["letters", "marks", "letters", "contractions"],
        ["code points"],
        ["code points", "spaced", "punctuation", "special", "space"],
        ["space", "words", "digits", "punctuation"],
        ["emoji", "spaced", "marks", "code points"],
        ["digits", "letters", "punctuation", "odd"],
        list(pieces) + ["code points"],
    ]
    blocks = g.BLOCKS + [[0x0, 0x7F], [0x80, 0x7FF], [0x800, 0xFFFF], [0x10000, 0x10FFFF], [0x0, 0x323AF], [0x1C50, 0x1CFF], [0xA8E0, 0xABFF], [0x1E000, 0x1E9FF]]
    return {"pieces": pieces, "modes": modes, "blocks": [list(b) for b in blocks]}


def write_digests(config, texts, target):
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(config))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with open(target, "w") as f:
        for i, text in enumerate(texts):
            ids = tokenizer.encode(text, add_special_tokens=i % 2 == 0).ids
            f.write(hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()[:8] + "\n")


def write_offsets(config, texts, target):
    import tokenizers

    config["post_processor"] = None
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(config))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    kind = (config["normalizer"] or {}).get("type")
    form = getattr(tokenizers.normalizers, kind)() if kind in ("NFC", "NFKC") else None
    with open(target, "w") as f:
        for text in texts:
            if form and form.normalize_str(text) != text:
                f.write("-\n")
                continue
            at = [0]
            for c in text:
                at.append(at[-1] + len(c.encode()))
            places = [at[p] for o in tokenizer.encode(text, add_special_tokens=False).offsets for p in o]
            f.write(hashlib.sha256(struct.pack(f"<{len(places)}I", *places)).hexdigest()[:8] + "\n")


def write_pairs(config, texts, target):
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(config))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with open(target, "w") as f:
        for i in range(2000):
            ids = tokenizer.encode(texts[i], texts[i + 5000], add_special_tokens=i % 2 == 0).ids
            f.write(hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()[:8] + "\n")


def replaced(source, variant):
    config = load(source, variant["base"])
    model = variant["replace"].pop("model", {})
    config |= variant["replace"]
    config["model"] |= model
    for token in variant.get("without", []):
        del config["model"]["vocab"][token]
    return config


def load(source, name):
    path = source / f"{name}.json"
    if path.exists():
        return json.loads(path.read_bytes())
    return json.loads(gzip.decompress((source / f"{name}.json.gz").read_bytes()))


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[-1] if sys.argv[1] == "pools" else sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    if sys.argv[1] == "pools":
        (out / "pools.json").write_text(json.dumps(pools(), indent=1, ensure_ascii=True) + "\n")
        return
    source = pathlib.Path(sys.argv[2])
    kept = json.loads((out / "pools.json").read_text())
    texts = [make(kept, i) for i in range(COUNT)]
    if sys.argv[1] == "ids":
        for name in sys.argv[4:]:
            write_digests(load(source, name), texts, out / f"{name}.txt")
    elif sys.argv[1] == "offsets":
        for name in sys.argv[4:]:
            write_offsets(load(source, name), texts, out / f"offsets-{name}.txt")
    elif sys.argv[1] == "pairs":
        variants = json.loads((out / "variants.json").read_text())
        for name in sys.argv[4:]:
            variant = name.removeprefix("variant-")
            write_pairs(load(source, name) if variant == name else replaced(source, variants[variant]), texts, out / f"pairs-{name}.txt")
    elif sys.argv[1] == "variants":
        for name, variant in json.loads((out / "variants.json").read_text()).items():
            write_digests(replaced(source, variant), texts, out / f"variant-{name}.txt")


if __name__ == "__main__":
    main()
