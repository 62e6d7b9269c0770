#!/usr/bin/env python3
"""What vLLM's own code renders for chat bodies.

Usage: vllm_chat.py BODIES.jsonl TEMPLATES.json OUT.jsonl

For each body and template: body, template, and text or error (the exception's
class). The path is that of /v1/chat/completions: ChatCompletionRequest,
build_chat_params, parse_chat_messages, safe_apply_chat_template. The server
has no options set.
"""
import copy, json, sys
from types import SimpleNamespace as NS
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers.hf import _detect_content_format, safe_apply_chat_template
try:
    from vllm.renderers.chat_utils import parse_chat_messages
except ImportError:
    from vllm.entrypoints.chat_utils import parse_chat_messages

mc = NS(multimodal_config=None, enable_prompt_embeds=False, is_multimodal_model=False, hf_config=NS(model_type="x"))
tok = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>", eos_token="</s>")
templates = json.load(open(sys.argv[2], encoding="utf-8"))
with open(sys.argv[3], "w", encoding="utf-8") as out:
    for n, line in enumerate(open(sys.argv[1], encoding="utf-8")):
        for name, template in templates.items():
            rec = {"body": n, "template": name}
            try:
                r = ChatCompletionRequest.model_validate_json(line)
                tools = [t.model_dump() for t in r.tools] if r.tools is not None else None
                params = r.build_chat_params(template, "auto").with_defaults({"tools": tools, "tokenize": False})
                conv = parse_chat_messages(r.messages, mc, _detect_content_format(template, default="string"))[0]
                rec["text"] = safe_apply_chat_template(mc, tok, conv, **params.get_apply_chat_template_kwargs())
            except Exception as e:
                rec["error"] = type(e).__name__
            out.write(json.dumps(rec, ensure_ascii=False) + "\n")
