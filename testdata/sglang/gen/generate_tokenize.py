#!/usr/bin/env python3
"""What SGLang's own HTTP application answers at /tokenize, beside the ids its chat handler would run.

    SGLANG_ROOT=DIR python generate_tokenize.py 0.5.23 QWEN3.json TEMPLATE.jinja OUT.jsonl

DIR/<version>/sglang is the unpacked wheel; QWEN3.json is tokenize/tokenizers/qwen3.json and TEMPLATE.jinja the
project's tokenize/chat/testdata/templates/Qwen-Qwen3-0.6B.jinja, before which a line is put that shows the reasoning
effort. Real are the FastAPI application with its routes, models and
handlers, the template manager, the model's configuration and the tokenizer as SGLang loads it. Stood in for is the
TokenizerManager, which only holds those; there is no scheduler and no model.

Each line: `body`, a request of /v1/chat/completions or null; `chat`, the ids that its handler passes on to the engine
(null with the error in `refused`); `ask`, what is sent to /tokenize; `status` and `answer`, what comes back.
"""
import asyncio
import json
import os
import sys
import tempfile
import types

EFFORT = """{%- if reasoning_effort is defined and reasoning_effort %}{{- "effort " ~ reasoning_effort ~ "\\n" }}{%- endif %}\n"""


def folder(tokenizer, template):
    d = tempfile.mkdtemp()
    with open(tokenizer) as f, open(os.path.join(d, "tokenizer.json"), "w") as out:
        out.write(f.read())
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 4096,
        "chat_template": EFFORT + open(template).read(),
    }
    model = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "head_dim": 16,
        "vocab_size": 151936,
        "max_position_embeddings": 4096,
        "torch_dtype": "float32",
    }
    for name, content in ("tokenizer_config.json", config), ("config.json", model):
        with open(os.path.join(d, name), "w") as out:
            json.dump(content, out)
    return d


def manager(path):
    """What the handlers read of a TokenizerManager."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.server_args import ServerArgs

    try:
        from sglang.srt.utils.hf_transformers_utils import get_tokenizer
    except ImportError:
        from sglang.srt.hf_transformers_utils import get_tokenizer
    args = ServerArgs(model_path=path, device="cpu", served_model_name="m")
    try:
        from sglang.srt.runtime_context import publish

        publish(args, role="tokenizer")
    except ImportError:
        pass
    log = types.SimpleNamespace(log_requests=False, log_requests_level=0)
    return types.SimpleNamespace(
        server_args=args,
        model_path=path,
        served_model_name="m",
        tokenizer=get_tokenizer(path),
        model_config=ModelConfig.from_server_args(args),
        request_logger=log,
        config_value=lambda name: getattr(args, name),
        create_abort_task=lambda obj: None,
    )


TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather <in> a città",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Zürich", "n": 1.0}'}}


def bodies():
    user = {"role": "user", "content": "Où est Zürich? <|im_end|>"}
    turns = [{"role": "system", "content": "Be brief."}, user, {"role": "assistant", "content": "<think>\nx\n</think>\n\nIn Europe."}]
    yield {"messages": [user]}
    yield {"messages": turns + [{"role": "user", "content": "And Bern?"}], "temperature": 0.5, "max_tokens": 3, "user": "u"}
    yield {"messages": [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": " two"}]}]}
    yield {"messages": turns, "continue_final_message": True}
    yield {"messages": turns, "add_generation_prompt": False}
    yield {"messages": [user], "add_generation_prompt": False, "continue_final_message": False}
    yield {"messages": [user], "stream": True, "stream_options": {"include_usage": True}}
    yield {"messages": [user], "add_special_tokens": True}
    yield {"messages": [user], "chat_template_kwargs": {"enable_thinking": False}}
    yield {"messages": [user], "reasoning_effort": "low"}
    yield {"messages": [user], "reasoning_effort": "none"}
    yield {"messages": [user], "chat_template_kwargs": {"reasoning_effort": "none"}}
    yield {"messages": [user], "tools": [TOOL]}
    yield {"messages": [user], "tools": [TOOL], "tool_choice": "none"}
    yield {"messages": [user], "tools": [TOOL], "tool_choice": "required"}
    yield {"messages": [user], "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}}}
    yield {
        "messages": [
            user,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
            {"role": "assistant", "content": "Rain.", "reasoning_content": "It said so."},
            {"role": "user", "content": "Thanks"},
        ],
        "tools": [TOOL],
    }
    yield {"messages": [{"role": "assistant", "content": "Hello"}]}
    yield {"messages": [{"role": "user", "content": ""}]}
    yield {"messages": []}
    yield {"messages": [user], "tool_choice": "required"}
    yield {"messages": [user], "input_ids": [1, 2, 3]}


# What package remote sends for a body (notForSGLang); the answers tell whether the ids are the chat's.
LEFT_OUT = ("prompt", "add_special_tokens", "stream", "stream_options", "add_generation_prompt")


def asks():
    for body in bodies():
        yield body, {k: v for k, v in body.items() if k not in LEFT_OUT}
    for prompt in "", "Zürich 2026\n\n  x", "<|im_start|>a<|im_end|>", "e\u0301 \u0000 漢字", ["a", "b c"]:
        for special in True, False:
            yield None, {"prompt": prompt, "add_special_tokens": special}
    yield None, {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}
    yield None, {}
    yield None, {"model": "other", "prompt": "x"}


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    version, tokenizer, template, target = sys.argv[1:]
    sys.path.insert(0, os.path.join(os.environ["SGLANG_ROOT"], version))
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__))))
    import sglcache

    sglcache.load(version)
    from fastapi.testclient import TestClient
    from sglang.srt.entrypoints import http_server
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
    from sglang.srt.entrypoints.openai.serving_tokenize import OpenAIServingTokenize

    try:
        from sglang.srt.parser.template_manager import TemplateManager
    except ImportError:
        from sglang.srt.managers.template_manager import TemplateManager

    path = folder(tokenizer, template)
    held = manager(path)
    templates = TemplateManager()
    templates.load_chat_template(tokenizer_manager=held, chat_template_arg=None, model_path=path)
    chat = OpenAIServingChat(held, templates)
    state = http_server.app.state
    try:
        state.openai_serving_tokenize = OpenAIServingTokenize(held, templates)
    except TypeError:  # before chats were taken
        state.openai_serving_tokenize = OpenAIServingTokenize(held)
    client = TestClient(http_server.app)  # not entered: the lifespan would start a model
    with open(target, "w") as out:
        for body, ask in asks():
            line = {"body": body, "chat": None, "refused": None, "ask": ask}
            if body is not None:
                try:
                    request = ChatCompletionRequest.model_validate({"model": "m", **body})
                    if error := chat._validate_request(request):
                        raise ValueError(error)
                    adapted, _ = chat._convert_to_internal_request(request)
                    ids = adapted.input_ids
                    if ids is None:
                        ids = held.tokenizer.encode(adapted.text)
                    if not isinstance(ids, list):  # of a transformers newer than the release
                        ids = ids["input_ids"]
                    line["chat"] = ids
                except Exception as e:
                    line["refused"] = type(e).__name__
            answer = client.post("/tokenize", json=ask)
            text = answer.text.replace(os.environ["SGLANG_ROOT"], "DIR")  # errors name the source file
            line |= {"status": answer.status_code, "answer": json.loads(text)}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
