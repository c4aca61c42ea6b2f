"""Tokenizer files in the manner of the granite family: byte-level BPE, its special tokens, its
chat template. Needs the package `tokenizers`.
"""

import json
import os

from checkpoints import checkpoint_files as checkpoint

# The pattern of the GPT-4 and Llama 3 tokenizers, which granite 4.0 uses too.
pattern = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Special tokens from the pad token on, in the order of their ids.
special_tokens = (
    "<|pad|>",
    "<|end_of_text|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|filename|>",
    "<|reponame|>",
    "<|start_of_role|>",
    "<|end_of_role|>",
)

chat_template = """\
{%- for message in messages %}
{{- '<|start_of_role|>' + message.role + '<|end_of_role|>' }}
{{- message.content + '<|end_of_text|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_of_role|>assistant<|end_of_role|>' }}
{%- endif %}
"""


def special_ids(config):
    """name -> id. Granite has one run from the pad token to the end of the vocabulary; a config
    with other ids gets the named tokens where they are wanted and the rest at the end."""
    vocab = config["vocab_size"]
    eos = config["eos_token_id"]
    eos = eos[0] if isinstance(eos, list) else eos
    pad = config.get("pad_token_id")
    unused = -1 if pad is None else vocab - pad - len(special_tokens)
    if unused >= 0 and pad >= vocab // 2 and eos == pad + 1:
        names = special_tokens + tuple(f"<|unused_{i + 1}|>" for i in range(unused))
        return {name: pad + i for i, name in enumerate(names)}
    found = {"<|end_of_text|>": eos}
    if pad is not None and pad != eos:
        found["<|pad|>"] = pad
    bos = config.get("bos_token_id")
    if bos is not None and bos not in found.values():
        found["<|start_of_text|>"] = bos
    free = (i for i in range(vocab - 1, -1, -1) if i not in found.values())
    for name in reversed(special_tokens[2:]):
        found[name] = next(free)
    return found


def train(texts, size, pattern=pattern):
    """A byte-level BPE tokenizer of exactly `size` ordinary tokens (256 bytes and merges)."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
        max_token_length=24,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != size:
        raise SystemExit(f"{tokenizer.get_vocab_size()} tokens trained, {size} wanted: more text")
    return tokenizer


def add_specials(value, specials):
    """Put the special tokens into the parsed tokenizer.json; ordinary tokens take the other ids."""
    taken = set(specials.values())
    vocab = value["model"]["vocab"]
    free = (i for i in range(len(vocab) + len(taken)) if i not in taken)
    ordinary = {token: next(free) for token in sorted(vocab, key=vocab.get)}
    inside = {name: i for name, i in specials.items() if i < max(ordinary.values())}
    every = {**ordinary, **inside}
    value["model"]["vocab"] = {token: every[token] for token in sorted(every, key=every.get)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    value["added_tokens"] = [
        {"id": specials[name], "content": name, **flags, "special": True}
        for name in sorted(specials, key=specials.get)
    ]


def write_files(folder, texts, config, indent=2):
    """Train on texts; write tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    from tokenizers import Tokenizer

    specials = special_ids(config)
    size = config["vocab_size"] - len(specials)
    if size < 256:
        raise SystemExit(f"vocab_size: 256 bytes and {len(specials)} special tokens do not fit")
    value = json.loads(train(texts, size).to_str())
    add_specials(value, specials)
    path = os.path.join(folder, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=indent)
    read_back = Tokenizer.from_file(path)
    wrong = [name for name, i in specials.items() if read_back.token_to_id(name) != i]
    if wrong or read_back.get_vocab_size() != config["vocab_size"]:
        raise SystemExit(f"{path}: ids or size not as wanted: {wrong}")
    write_settings(folder, config, specials)


def write_settings(folder, config, specials):
    pad = "<|pad|>" if "<|pad|>" in specials else "<|end_of_text|>"
    bos = "<|start_of_text|>" if "<|start_of_text|>" in specials else "<|end_of_text|>"
    settings = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "bos_token": bos,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|end_of_text|>",
        "errors": "replace",
        "model_max_length": config.get("max_position_embeddings"),
        "pad_token": pad,
        "padding_side": "left",
        "tokenizer_class": "GPT2Tokenizer",
        "unk_token": "<|end_of_text|>",
    }
    checkpoint.write_json(os.path.join(folder, "tokenizer_config.json"), settings)
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
        file.write(chat_template)
