#!/usr/bin/env python3
"""Renders chat templates over a matrix of conversations with transformers.

Usage: golden.py TEMPLATE_DIR OUT.jsonl

Every TEMPLATE_DIR/*.jinja is rendered for each case with
apply_chat_template(tokenize=False) of the transformers that is installed, as
engines call it. One line per template and case: template, case, and output or
error (the exception's class). The cases go to cases.json beside OUT.jsonl.
The clock stands at 2026-11-29 14:03:05 (a Sunday).
"""
import copy, datetime, glob, json, os, sys
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils as ctu

class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 29, 14, 3, 5)
ctu.datetime = Clock

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Get the weather <now> & \"later\" in a città",
     "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "The city's name"},
      "days": {"type": "integer", "default": 3}, "unit": {"type": "string", "enum": ["C", "F"]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "noop", "description": "", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "nest", "description": "x\ny", "parameters": {"type": "object",
     "properties": {"a": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": ["string", "null"]}}}},
      "c": {"anyOf": [{"type": "number"}, {"type": "boolean"}], "default": 0.5}}, "additionalProperties": False}}},
]
def call(name, args, id="call_00001"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": args}}
U = lambda c: {"role": "user", "content": c}
A = lambda c, **k: {"role": "assistant", "content": c, **k}
S = lambda c: {"role": "system", "content": c}
P = lambda *t: [{"type": "text", "text": x} for x in t]
TOOLTALK = [U("Weather in Zürich?"), A("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2})]),
            {"role": "tool", "tool_call_id": "call_00001", "name": "get_weather", "content": "{\"temp\": 3.5}"},
            A("It is 3.5 °C."), U("And tomorrow?")]
CASES = {
  "one": dict(messages=[U("Hello")]),
  "one-gen": dict(messages=[U("Hello")], add_generation_prompt=True),
  "system": dict(messages=[S("You are kind."), U("Hello")], add_generation_prompt=True),
  "multi": dict(messages=[S("Be brief."), U("a"), A("b"), U("c"), A("d"), U("e")], add_generation_prompt=True),
  "no-gen": dict(messages=[U("a"), A("b"), U("c"), A("d")]),
  "space": dict(messages=[S("  \n sys \t\n"), U("\n\n  hi  \n"), A("  yes \n\n"), U(" \t")], add_generation_prompt=True),
  "unicode": dict(messages=[U("Grüße 🙂 你好 \u200b\u00a0\u3000ẞ <|im_end|> {{ x }} {% y %} \u2028 é"), A("\u00a0ok\u3000"), U("\ud83d\ude80".encode("utf-16", "surrogatepass").decode("utf-16"))], add_generation_prompt=True),
  "empty": dict(messages=[U(""), A(""), U("")], add_generation_prompt=True),
  "parts": dict(messages=[S("s"), U(P("a", "b ")), A(P("c")), U(P("d"))], add_generation_prompt=True),
  "parts-extra": dict(messages=[U([{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}])], add_generation_prompt=True),
  "tools": dict(messages=[U("Weather?")], tools=TOOLS, add_generation_prompt=True),
  "tools-system": dict(messages=[S("Use tools."), U("Weather?")], tools=TOOLS[:1], add_generation_prompt=True),
  "tool-talk": dict(messages=TOOLTALK, tools=TOOLS, add_generation_prompt=True),
  "tool-talk-no-tools": dict(messages=TOOLTALK, add_generation_prompt=True),
  "tool-two": dict(messages=[U("both"), A(None, tool_calls=[call("get_weather", {"city": "A"}, "call_00001"), call("nest", {"a": [{"b": None}], "c": 1.0}, "call_00002")]),
      {"role": "tool", "tool_call_id": "call_00001", "name": "get_weather", "content": "1"}, {"role": "tool", "tool_call_id": "call_00002", "name": "nest", "content": "<x> & 'y'"}], tools=TOOLS, add_generation_prompt=True),
  "tool-string-args": dict(messages=[U("x"), A("ok", tool_calls=[call("get_weather", "{\"city\": \"A\"}")]), {"role": "tool", "tool_call_id": "call_00001", "content": "1"}], tools=TOOLS[:1]),
  "tool-nine": dict(messages=[U("x"), A("", tool_calls=[call("get_weather", {"city": "A"}, "abcdefGH9")]), {"role": "tool", "tool_call_id": "abcdefGH9", "content": "1"}, A("fine"), U("more")], tools=TOOLS[:1], add_generation_prompt=True),
  "think": dict(messages=[U("q"), A("<think>\nhm\n</think>\n\nanswer"), U("q2"), A("<think>zz</think>a2")], add_generation_prompt=True),
  "reasoning": dict(messages=[U("q"), A("answer", reasoning="I thought.\n", reasoning_content="I thought.\n"), U("q2")], add_generation_prompt=True),
  "reasoning-last": dict(messages=[U("q"), A("answer", reasoning_content="  because ")]),
  "reasoning-tool": dict(messages=[U("q"), A("", reasoning_content="need tool", reasoning="need tool", thinking="need tool", tool_calls=[call("noop", {})]), {"role": "tool", "tool_call_id": "call_00001", "content": "1"}], tools=TOOLS, add_generation_prompt=True),
  "think-off": dict(messages=[U("q")], add_generation_prompt=True, kwargs={"enable_thinking": False, "thinking": False}),
  "think-on": dict(messages=[U("q"), A("a"), U("r")], add_generation_prompt=True, kwargs={"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}),
  "kwargs": dict(messages=[U("q")], tools=TOOLS[:1], add_generation_prompt=True, kwargs={"date_string": "1 Jan 2020", "tools_in_user_message": False, "custom_tools": None, "builtin_tools": ["python"], "thinking_budget": 512, "model_identity": "You are X."}),
  "continue": dict(messages=[U("q"), A("The answer is")], continue_final_message=True),
  "continue-space": dict(messages=[U("q"), A("The answer is  \n")], continue_final_message=True),
  "continue-parts": dict(messages=[U("q"), A(P("x", "The answer "))], continue_final_message=True),
  "documents": dict(messages=[U("q")], documents=[{"title": "T", "text": "body"}, {"title": "Ü", "text": "b2"}], add_generation_prompt=True),
  "developer": dict(messages=[{"role": "developer", "content": "dev"}, U("q")], add_generation_prompt=True),
  "system-late": dict(messages=[U("q"), S("late"), A("a"), U("z")], add_generation_prompt=True),
  "bad-order": dict(messages=[A("a"), A("b"), U("c")], add_generation_prompt=True),
  "image": dict(messages=[U([{"type": "image"}, {"type": "text", "text": "what?"}])], add_generation_prompt=True),
  "none-content": dict(messages=[U("q"), A(None), U(None)], add_generation_prompt=True),
  "named": dict(messages=[{"role": "user", "content": "q", "name": "bob"}, {"role": "weird", "content": "z"}]),
  "no-messages": dict(messages=[], add_generation_prompt=True),
}
def main(src, out):
    tok = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **TOKENS)
    assert tok.special_tokens_map == TOKENS, tok.special_tokens_map
    with open(out, "w", encoding="utf-8") as f:
        for path in sorted(glob.glob(src + "/*.jinja")):
            name = os.path.basename(path)[:-6]
            template = open(path, encoding="utf-8", newline="").read()
            for case, c in CASES.items():
                c = copy.deepcopy(c)
                line = {"template": name, "case": case}
                try:
                    line["output"] = tok.apply_chat_template(c["messages"], tools=c.get("tools"), documents=c.get("documents"),
                        chat_template=template, add_generation_prompt=c.get("add_generation_prompt", False), tokenize=False,
                        continue_final_message=c.get("continue_final_message", False), **c.get("kwargs", {}))
                except Exception as e:
                    line["error"] = type(e).__name__
                f.write(json.dumps(line, ensure_ascii=False) + "\n")
    with open(os.path.join(os.path.dirname(out) or ".", "cases.json"), "w", encoding="utf-8") as f:
        json.dump({"tokens": TOKENS, "cases": CASES}, f, ensure_ascii=False, indent=1)
        f.write("\n")
if __name__ == "__main__":
    main(*sys.argv[1:3])
