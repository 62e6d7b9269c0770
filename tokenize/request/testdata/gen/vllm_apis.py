#!/usr/bin/env python3
"""What vLLM's own code makes of bodies of /v1/messages and /v1/responses.

Usage: vllm_apis.py BODIES.jsonl TEMPLATES.json OUT.jsonl

BODIES has path and body, as a text. For each and each template: body, template, and text or error (the exception's
class). Messages go through AnthropicMessagesRequest, AnthropicServingMessages.to_chat_completion_request (with what
_detect_merge_inline_system and _probe_disabled_thinking_effort find) and then as vllm_chat.py; Responses through
ResponsesRequest, construct_tool_dicts, construct_input_messages, build_chat_params, parse_chat_messages and
safe_apply_chat_template, in the order of OnlineRenderer.render_responses (0.29: OpenAIServingResponses._make_request).
The server has no options set; its tokenizer's chat template is the template.
"""
import asyncio, json, sys
from types import SimpleNamespace as NS
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages as Messages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages, construct_tool_dicts
from vllm.renderers.hf import _detect_content_format, safe_apply_chat_template
try:
    from vllm.renderers.chat_utils import parse_chat_messages
except ImportError:
    from vllm.entrypoints.chat_utils import parse_chat_messages
try:
    from vllm.entrypoints.anthropic.serving import DisabledThinkingEffortResolver
except ImportError:
    DisabledThinkingEffortResolver = None

mc = NS(multimodal_config=None, enable_prompt_embeds=False, is_multimodal_model=False, hf_config=NS(model_type="x"))
tok = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>", eos_token="</s>")


def render(messages, params, template):
    conv = parse_chat_messages(messages, mc, _detect_content_format(template, default="string"))[0]
    return safe_apply_chat_template(mc, tok, conv, **params.get_apply_chat_template_kwargs())


def chat(r, template):
    tools = [t.model_dump() for t in r.tools] if r.tools is not None else None
    return render(r.messages, r.build_chat_params(template, "auto").with_defaults({"tools": tools, "tokenize": False}), template)


class Probe:
    """Stands in for the handler while it probes."""

    def __init__(self, template):
        self.template = template

    async def _render_probe_prompt(self, effort):
        try:
            return chat(ChatCompletionRequest(messages=[{"role": "user", "content": "Hi"}], reasoning_effort=effort), self.template)
        except Exception:
            return None


def effort(template):
    if DisabledThinkingEffortResolver is not None:
        return asyncio.run(DisabledThinkingEffortResolver._probe(Probe(template)))
    if hasattr(Messages, "_probe_disabled_thinking_effort"):
        return asyncio.run(Messages._probe_disabled_thinking_effort(Probe(template)))
    return None


def messages(body, template):
    # 0.29 looks at the option --chat-template only, which is not set.
    merge = Messages._detect_merge_inline_system(template if hasattr(Messages, "_should_merge_inline_system") else None)
    more = {} if effort(template) is None else {"disabled_thinking_effort": effort(template)}
    return chat(Messages.to_chat_completion_request(AnthropicMessagesRequest.model_validate_json(body), merge_inline_system=merge, **more), template)


def responses(body, template):
    r = ResponsesRequest.model_validate_json(body)
    if r.previous_response_id is not None:
        raise LookupError("previous response")
    tools = construct_tool_dicts(r.tools, r.tool_choice, exclude_tools_when_tool_choice_none=False)
    conv = construct_input_messages(request_instructions=r.instructions, request_input=r.input)
    defaults = r.build_chat_params(template, "auto").chat_template_kwargs
    params = r.build_chat_params(template, "auto").with_defaults({**defaults, **({"tools": tools} if tools is not None else {}), "tokenize": False})
    return render(conv, params, template)


templates = json.load(open(sys.argv[2], encoding="utf-8"))
with open(sys.argv[3], "w", encoding="utf-8") as out:
    for n, line in enumerate(open(sys.argv[1], encoding="utf-8")):
        b = json.loads(line)
        for name, template in templates.items():
            rec = {"body": n, "template": name}
            try:
                rec["text"] = (messages if b["path"] == "/v1/messages" else responses)(b["body"], template)
            except Exception as e:
                rec["error"] = type(e).__name__
            out.write(json.dumps(rec, ensure_ascii=False) + "\n")
