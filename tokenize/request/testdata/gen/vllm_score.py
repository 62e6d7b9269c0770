#!/usr/bin/env python3
"""What prompts vLLM's own code makes of bodies of /score and /rerank.

Usage: vllm_score.py SCORE.json TOKENIZER.json OUT.jsonl

For each body and way of scoring: body, scoring (apart, joined, pair or the name of a template), and prompts (token ids)
or error (the exception's class). Bodies go through ScoreRequest or RerankRequest, get_request_factory_online of
BiEncoderIOProcessor and CrossEncoderIOProcessor, and get_score_prompt. The tokenizer has SCORE.json's post_processor.
"""
import json, sys
from types import SimpleNamespace as NS
from pydantic import TypeAdapter
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.pooling.scoring.io_processor import BiEncoderIOProcessor, CrossEncoderIOProcessor
from vllm.entrypoints.pooling.scoring.protocol import RerankRequest, ScoreRequest

case = json.load(open(sys.argv[1], encoding="utf-8"))
config = json.load(open(sys.argv[2], encoding="utf-8")) | {"post_processor": case["post_processor"]}
tok = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(config)))
mc = NS(multimodal_config=None, enable_prompt_embeds=False, is_multimodal_model=False, architecture="x", max_model_len=4096,
        encoder_config=None, hf_config=NS(model_type="x"), is_encoder_decoder=False)


def context(request):
    extras = {k: v for k in ("mm_processor_kwargs", "cache_salt", "chat_template_kwargs") if (v := getattr(request, k, None)) is not None}
    return NS(request=request, prompt_extras=extras, pooling_params=NS(), lora_request=None, priorities=0)


def processor(cls, **fields):
    p = object.__new__(cls)
    p.__dict__.update(model_config=mc, tokenizer=tok, architecture="x", is_multimodal_model=False, supports_score_template=False,
                      model=None, chat_template=None, use_sep_token=True, saved_chat_template=None, saved_chat_template_kwargs={}, **fields)
    return p


def prompts(request, scoring):
    if scoring == "apart":
        p = processor(BiEncoderIOProcessor)
        return [tok(r["prompts"]["prompt"], **r["tok_params"].get_encode_kwargs())["input_ids"] for r in p.get_request_factory_online(context(request))]
    p = processor(CrossEncoderIOProcessor)
    p.use_sep_token = scoring != "joined"
    p.chat_template = case["templates"].get(scoring)
    out = []
    for r in p.get_request_factory_online(context(request)):
        extras = r["prompt_extras"]
        _, prompt = p.get_score_prompt(
            data_1=r["data_1"], data_2=r["data_2"], encode_kwargs=r["tok_params"].get_encode_kwargs(), chat_template=r["chat_template"],
            max_tokens_per_query=r["max_tokens_per_query"], max_tokens_per_doc=r["max_tokens_per_doc"],
            chat_template_kwargs=extras.get("chat_template_kwargs") if extras else None)
        r["tok_params"].apply_post_tokenization(tok, prompt)
        out.append(prompt["prompt_token_ids"])
    return out


with open(sys.argv[3], "w", encoding="utf-8") as out:
    for n, b in enumerate(case["bodies"]):
        for scoring in ["apart", "joined", "pair", *case["templates"]]:
            rec = {"body": n, "scoring": scoring}
            try:
                kind = RerankRequest if "rerank" in b["path"] else ScoreRequest
                rec["prompts"] = prompts(TypeAdapter(kind).validate_json(b["body"]), scoring)
            except Exception as e:
                rec["error"] = type(e).__name__
            out.write(json.dumps(rec) + "\n")
