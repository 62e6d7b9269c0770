#!/usr/bin/env python3
"""Content format that vLLM detects for each template.

Usage: formats.py TEMPLATE_DIR OUT.jsonl
"""
import glob, json, os, sys, logging
from vllm.renderers.hf import _detect_content_format
import vllm
with open(sys.argv[2], "w") as f:
    for path in sorted(glob.glob(sys.argv[1] + "/*.jinja")):
        t = open(path, encoding="utf-8", newline="").read()
        f.write(json.dumps({"template": os.path.basename(path)[:-6], "vllm": vllm.__version__.split("+")[0], "format": _detect_content_format(t, default="string")}) + "\n")
