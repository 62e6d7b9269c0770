#!/usr/bin/env python3
"""Writes the normalization and added-token data that Hugging Face tokenizers really uses, asked of the library itself.

    pip install tokenizers==0.22.0
    normalization.py > normalization.json

It completes unicode.json, which says what changes but not into what.
decompose:  [code point, canonical decomposition...] for every code point that NFD changes, Hangul syllables excepted
compat:     [code point, compatibility decomposition...] where NFKD differs from NFD
compose:    [first, second, composite]: the pairs that NFC joins, Hangul excepted
class:      [first, last, class]: canonical combining classes. The library doesn't show the numbers: they are Python's,
            which no later Unicode version may change, of the code points that unicode.json found to be non-starters
lower:      [code point, lower case...] for every code point that the Lowercase normalizer changes
word:       [first, last] ranges of what counts as a word character beside an added token with single_word
strip:      [first, last] ranges of what an added token with lstrip or rstrip takes
"""

import json
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers

EVERY = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
NFC, NFD, NFKD, LOWER = normalizers.NFC(), normalizers.NFD(), normalizers.NFKD(), normalizers.Lowercase()


def ranges(points):
    out = []
    for p in sorted(points):
        if out and out[-1][1] == p - 1:
            out[-1][1] = p
        else:
            out.append([p, p])
    return out


def beside(**flags):
    """What each code point before an added token does to it: not matched (single_word), or taken (lstrip)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.add_tokens([AddedToken("Zq", normalized=False, **flags)])
    missing, taken = set(), set()
    for start in range(0, len(EVERY), 4096):
        part = EVERY[start : start + 4096]
        found = {}
        for first, last in tokenizer.encode("".join(c + "Zq." for c in part)).offsets:
            found[last] = first
        for i, c in enumerate(part):
            if i * 4 + 3 not in found:
                missing.add(ord(c))
            elif found[i * 4 + 3] != i * 4 + 1:
                taken.add(ord(c))
    return missing, taken


def main():
    hangul = range(0xAC00, 0xD7A4)
    decompose, compat, compose = [], [], []
    for c in EVERY:
        d, k = NFD.normalize_str(c), NFKD.normalize_str(c)
        if ord(c) not in hangul:
            if d != c:
                decompose.append([ord(c), *map(ord, d)])
            if k != d:
                compat.append([ord(c), *map(ord, k)])
            pair = unicodedata.decomposition(c).split()
            if d != c and len(pair) == 2 and NFC.normalize_str(c) == c:
                first, second = (int(p, 16) for p in pair)
                assert NFC.normalize_str(chr(first) + chr(second)) == c
                compose.append([first, second, ord(c)])
    nonstarter = set()
    for c in EVERY:
        if NFD.normalize_str(c) == c and unicodedata.combining(c):
            if (
                NFD.normalize_str(c + "\u0334") == "\u0334" + c != c + "\u0334"
                or NFD.normalize_str("\u0301" + c) == c + "\u0301" != "\u0301" + c
            ):
                nonstarter.add(ord(c))
    classes = []
    for c in sorted(nonstarter | {0x334, 0x301}):
        k = unicodedata.combining(chr(c))
        if classes and classes[-1][1] == c - 1 and classes[-1][2] == k:
            classes[-1][1] = c
        else:
            classes.append([c, c, k])
    word, _ = beside(single_word=True)
    _, strip = beside(lstrip=True)
    json.dump(
        {
            "tokenizers": tokenizers.__version__,
            "decompose": decompose,
            "compat": compat,
            "compose": compose,
            "class": classes,
            "lower": [[ord(c), *map(ord, LOWER.normalize_str(c))] for c in EVERY if LOWER.normalize_str(c) != c],
            "word": ranges(word),
            "strip": ranges(strip),
        },
        sys.stdout,
        separators=(",", ":"),
    )
    print()


if __name__ == "__main__":
    main()
