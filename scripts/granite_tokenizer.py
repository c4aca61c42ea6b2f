"""Tokenizer files in the manner of the granite family: byte-level BPE, its special tokens, its
chat template. Needs the package `tokenizers`.
"""

import json
import os

import granite_checkpoint as checkpoint

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
{{- '<|start_of_role|>' + message.role + '<|end_of_role|>' + message.content + '<|end_of_text|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_of_role|>assistant<|end_of_role|>' }}
{%- endif %}
"""


def train(texts, size):
    """A byte-level BPE tokenizer of exactly `size` ordinary tokens (256 bytes and merges)."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
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


def write_files(folder, tokenizer, config):
    """tokenizer.json with the special tokens, tokenizer_config.json and chat_template.jinja."""
    from tokenizers import AddedToken

    names = list(special_tokens)
    while tokenizer.get_vocab_size() + len(names) < config["vocab_size"]:
        names.append(f"<|unused_{len(names) - len(special_tokens) + 1}|>")
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in names])
    for name, key in (("<|pad|>", "pad_token_id"), ("<|end_of_text|>", "eos_token_id")):
        if tokenizer.token_to_id(name) != config[key]:
            raise SystemExit(f"{name} has id {tokenizer.token_to_id(name)}, not {config[key]}")
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    settings = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "bos_token": "<|end_of_text|>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|end_of_text|>",
        "errors": "replace",
        "model_max_length": config["max_position_embeddings"],
        "pad_token": "<|pad|>",
        "padding_side": "left",
        "tokenizer_class": "GPT2Tokenizer",
        "unk_token": "<|end_of_text|>",
    }
    checkpoint.write_json(os.path.join(folder, "tokenizer_config.json"), settings)
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
        file.write(chat_template)


def write_tiny(folder, config):
    """For the golden fixtures: the bytes and a few merges, written on few lines."""
    size = config["pad_token_id"]
    write_files(folder, train(["the red box holds the coin in the den"] * 9, size), config)
    path = os.path.join(folder, "tokenizer.json")
    value = checkpoint.read_json(path)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
