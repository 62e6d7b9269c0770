"""Says how two files of vectors differ; exit status 1 when they do.

    python compare.py COMMITTED.jsonl REGENERATED.jsonl [--newer-algorithms]

--newer-algorithms: hash algorithms that only the second file has are fine.
"""

import json
import sys

SHOWN = 10


def load(path):
    with open(path, encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return lines[0], {case["name"]: case for case in lines[1:]}


def main():
    want_head, want = load(sys.argv[1])
    got_head, got = load(sys.argv[2])
    newer = "--newer-algorithms" in sys.argv[3:]
    found = []
    for name in sorted(want_head["none_hash"].keys() | got_head["none_hash"].keys()):
        a, b = want_head["none_hash"].get(name), got_head["none_hash"].get(name)
        if a != b and not (newer and a is None):
            found.append(f"root of {name}: committed {a}, now {b}")
    found += [f"case {name}: no longer made" for name in want if name not in got]
    found += [f"case {name}: new, the committed file lacks it" for name in got if name not in want]
    for name in want:
        a, b = want[name], got.get(name)
        if b is None:
            continue
        for key in sorted((a.keys() | b.keys()) - {"results"}):
            if a.get(key) != b.get(key):
                found.append(f"case {name}, {key}: committed {a.get(key)}, now {b.get(key)}"[:400])
        for algo in sorted(a["results"].keys() | b["results"].keys()):
            x, y = a["results"].get(algo), b["results"].get(algo)
            if x != y and not (newer and x is None):
                found.append(f"case {name}, {algo}: committed {x}, now {y}"[:400])
    for line in found[:SHOWN]:
        print("  " + line)
    if len(found) > SHOWN:
        print(f"  and {len(found) - SHOWN} more differences")
    sys.exit(1 if found else 0)


main()
