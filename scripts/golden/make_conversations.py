#!/usr/bin/env python3
"""What transformers makes of the conversations in tests/core/text, with every template there.

conversations.json holds conversations as clients send them, conversation_rewrites.json what hyb
does to the messages of some templates before it renders them, with the reasons. For each template
and conversation conversation_renderings.json has the length in bytes and the FNV-1a hash of the
text of transformers' apply_chat_template: of the conversation as it is, or, marked "rewritten", of
the rewritten one where that differs; "error" where transformers refuses it. So hyb's text is always
transformers', and the rewrites are all the difference.

  make_conversations.py           check the file against transformers
  make_conversations.py --write   write it
  make_conversations.py --show TEMPLATE NAME   print the text

Needs transformers 5.23, see tests/golden/README.md.
"""

import argparse
import copy
import datetime
import json
import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import tokenizers
import transformers
import transformers.utils.chat_template_utils as chat_template_utils

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
FOLDER = TESTS / "core/text"
RENDERINGS = FOLDER / "conversation_renderings.json"


class FixedTime(datetime.datetime):
    """The moment at which every conversation is rendered."""

    @classmethod
    def now(cls, tz=None):
        return cls(2025, 6, 15, 12, 30, 45)


def read(name):
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def templates():
    """Name -> text: the published ones, and that of a golden model which is none of them."""
    found = {path.stem: path for path in sorted((FOLDER / "jinja/templates").glob("*.jinja"))}
    found["granite_fixture"] = TESTS / "golden/granite-dense-nope/chat_template.jinja"
    return {name: path.read_text(encoding="utf-8") for name, path in found.items()}


class Refused(Exception):
    """hyb takes text alone."""


def text_of(part):
    if part.get("type") != "text":
        raise Refused
    return part["text"]


def join_parts(message):
    if isinstance(message.get("content"), list):
        message["content"] = "\n".join(text_of(part) for part in message["content"])


def refuse_media(message):
    if isinstance(message.get("content"), list):
        for part in message["content"]:
            text_of(part)


def wrap_text(message):
    if isinstance(message.get("content"), str):
        message["content"] = [{"type": "text", "text": message["content"]}]


def parse_arguments(message):
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        if not isinstance(arguments, str):
            continue
        try:
            call["function"]["arguments"] = json.loads(arguments) if arguments.strip() else {}
        except json.JSONDecodeError:
            pass  # stays what the model wrote


REWRITES = {
    "join parts": join_parts,
    "refuse media": refuse_media,
    "wrap text": wrap_text,
    "parse arguments": parse_arguments,
}


def rewritten(conversation, rewrites):
    made = copy.deepcopy(conversation)
    for rewrite in rewrites:
        for message in made["messages"]:
            if message["role"] in rewrite.get("roles", [message["role"]]):
                REWRITES[rewrite["rewrite"]](message)
    return made


def rendered(tokenizer, template, conversation):
    """None where transformers refuses it."""
    asked = copy.deepcopy(conversation)
    asked.pop("name")
    messages = asked.pop("messages")
    try:
        return tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=False, **asked
        )
    except Exception:  # whatever a template runs into
        return None


def mark(text):
    if text is None:
        return "error"
    data = text.encode("utf-8")
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{len(data)} {value:016x}"


def expectation(tokenizer, template, conversation, rewrites):
    """The text of hyb, and whether transformers makes another of the conversation as it is."""
    plain = rendered(tokenizer, template, conversation)
    try:
        text = rendered(tokenizer, template, rewritten(conversation, rewrites))
    except Refused:
        text = None
    return text, text != plain


def all_renderings(tokenizer):
    conversations = read("conversations.json")
    rewrites = read("conversation_rewrites.json")
    out = {}
    for name, template in templates().items():
        own = rewrites["all templates"] + rewrites.get(name, [])
        out[name] = {}
        for conversation in conversations:
            text, differs = expectation(tokenizer, template, conversation, own)
            out[name][conversation["name"]] = mark(text) + (" rewritten" if differs else "")
    return out


def show(tokenizer, template, name):
    conversation = next(c for c in read("conversations.json") if c["name"] == name)
    rewrites = read("conversation_rewrites.json")
    own = rewrites["all templates"] + rewrites.get(template, [])
    text, differs = expectation(tokenizer, templates()[template], conversation, own)
    if differs:
        print("as it is:", repr(rendered(tokenizer, templates()[template], conversation)))
    print(repr(text))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--show", nargs=2, metavar=("TEMPLATE", "NAME"))
    options = parser.parse_args()
    chat_template_utils.datetime = FixedTime
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()),
        bos_token="<s>",
        eos_token="</s>",
    )
    if options.show:
        show(tokenizer, *options.show)
        return 0
    made = all_renderings(tokenizer)
    if options.write:
        RENDERINGS.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    marks = [text for own in made.values() for text in own.values()]
    changed = sum(text.endswith(" rewritten") for text in marks)
    errors = sum(text == "error" for text in marks)
    print(f"{len(marks)} renderings: {changed} rewritten, {errors} that transformers refuses, too")
    if made != json.loads(RENDERINGS.read_text(encoding="utf-8")):
        print(f"{RENDERINGS} differs from transformers {transformers.__version__}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
