"""Tiny tokenizer files and chat templates in the manner of each family, for the golden fixtures:
byte-level BPE of the bytes and a few merges, the family's special tokens and split pattern. Needs
the package `tokenizers`.
"""

import json
import os
import shutil

from checkpoints import checkpoint_files, granite_tokenizer

here = os.path.dirname(os.path.abspath(__file__))
templates = os.path.join(here, "..", "..", "tests", "core", "text", "jinja", "templates")
texts = ["the red box holds the coin in the den"] * 9

llama3 = granite_tokenizer.pattern
qwen2 = llama3.replace(r"\p{N}{1,3}", r"\p{N}")
qwen35 = qwen2.replace(r"\p{L}+|", r"[\p{L}\p{M}]+|")
qwen35 = qwen35.replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
tekken = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
unused = [f"<SPECIAL_{i}>" for i in range(16)]
qwen_specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
qwen_specials += ["<tool_call>", "</tool_call>", "<think>", "</think>"]

# pattern; specials: in the order of their ids, from 0 or (last) at the end; words: those of them
# that are printed; bos: added to raw prompts; ignore_merges; nfc; template: file; tokens: settings
styles = {
    "nemotron2": {
        "pattern": tekken,
        "specials": ["<unk>", "<s>", "</s>"] + unused[3:14],
        "bos": "<s>",
        "template": "nemotron2.jinja",
        "tokens": {"bos_token": "<s>", "eos_token": "<SPECIAL_12>", "unk_token": "<unk>"},
    },
    "nemotron3": {
        "pattern": tekken,
        "specials": ["<unk>", "<s>", "</s>"]
        + unused[3:10]
        + ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"],
        "words": ["<think>", "</think>", "<tool_call>", "</tool_call>"],
        "template": "nemotron3.jinja",
        "tokens": {"bos_token": "<s>", "eos_token": "<|im_end|>", "unk_token": "<unk>"},
    },
    "qwen3_next": {
        "pattern": qwen2,
        "specials": qwen_specials,
        "last": True,
        "words": qwen_specials[3:],
        "nfc": True,
        "template": "chatml.jinja",
        "tokens": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    },
    "qwen3_5": {
        "pattern": qwen35,
        "specials": qwen_specials,
        "last": True,
        "words": qwen_specials[3:],
        "nfc": True,
        "template": "qwen35.jinja",
        "tokens": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    },
    "lfm2": {
        "pattern": llama3,
        "specials": ["<|pad|>", "<|startoftext|>", "<|endoftext|>", "<|fim_pre|>", "<|fim_mid|>"]
        + ["<|fim_suf|>", "<|im_start|>", "<|im_end|>", "<|tool_list_start|>"]
        + ["<|tool_list_end|>", "<|tool_call_start|>", "<|tool_call_end|>"],
        "bos": "<|startoftext|>",
        "ignore_merges": True,
        "template": "lfm2.jinja",
        "tokens": {
            "bos_token": "<|startoftext|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|pad|>",
        },
    },
    "bamba": {
        "pattern": llama3,
        "specials": ["<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>"],
        "last": True,
        "bos": "<|begin_of_text|>",
        "ignore_merges": True,
        "tokens": {
            "bos_token": "<|begin_of_text|>",
            "eos_token": "<|end_of_text|>",
            "pad_token": "<|finetune_right_pad_id|>",
        },
    },
}


def tokenizer_json(style, size):
    """The parsed tokenizer.json of a style with `size` tokens, special ones included."""
    names = style["specials"]
    start = size - len(names) if style.get("last") else 0
    specials = {name: start + i for i, name in enumerate(names)}
    trained = granite_tokenizer.train(texts, size - len(names), style["pattern"])
    value = json.loads(trained.to_str())
    granite_tokenizer.add_specials(value, specials)
    for token in value["added_tokens"]:
        token["special"] = token["content"] not in style.get("words", ())
    value["model"]["ignore_merges"] = style.get("ignore_merges", False)
    if style.get("nfc"):
        value["normalizer"] = {"type": "NFC"}
    if style.get("bos"):
        value["post_processor"] = bos_processor(style["bos"], specials[style["bos"]])
    return value


def bos_processor(name, number):
    """ByteLevel, then a beginning-of-sequence token before the text."""
    start = {"SpecialToken": {"id": name, "type_id": 0}}
    single = [start, {"Sequence": {"id": "A", "type_id": 0}}]
    second = [{"SpecialToken": {"id": name, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    template = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": single + second,
        "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}},
    }
    bytes_first = {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": False,
        "use_regex": True,
    }
    return {"type": "Sequence", "processors": [bytes_first, template]}


def write(folder, name, config, padding_rows=0):
    """tokenizer.json, tokenizer_config.json and the chat template, if the family has one; the last
    padding_rows of the vocabulary stand for no token."""
    from tokenizers import Tokenizer

    if name == "granite":
        granite_tokenizer.write_files(folder, texts, config, indent=None)
        return
    style = styles[name]
    size = config["vocab_size"] - padding_rows
    value = tokenizer_json(style, size)
    path = os.path.join(folder, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False)
    read_back = Tokenizer.from_file(path)
    if read_back.get_vocab_size() != size:
        raise SystemExit(f"{path}: {read_back.get_vocab_size()} tokens, {size} wanted")
    settings = {
        "added_tokens_decoder": {
            str(token["id"]): {key: token[key] for key in token if key != "id"}
            for token in value["added_tokens"]
        },
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        **style["tokens"],
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    checkpoint_files.write_json(os.path.join(folder, "tokenizer_config.json"), settings)
    if style.get("template"):
        source = os.path.join(templates, style["template"])
        shutil.copyfile(source, os.path.join(folder, "chat_template.jinja"))
