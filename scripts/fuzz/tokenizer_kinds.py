"""The kinds of tokenizer.json that models are published with, and their training."""

import json

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+")
          .replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"))
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+|[^\r\n\p{L}\p{N}]?" + UPPER + "+" +
          LOWER + r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (TEKKEN.replace(LOWER + "+|", LOWER + r"+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|")
         .replace(LOWER + r"*|\p{N}|", LOWER + r"*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"))
KIMI = (r"[\p{Han}]+|" + GPT4O.replace("]" + "*" + LOWER, "&&[^\\p{Han}]]*" + LOWER)
        .replace(LOWER + "+", LOWER[:-1] + "&&[^\\p{Han}]]+")
        .replace(UPPER + "+", UPPER[:-1] + "&&[^\\p{Han}]]+")
        .replace(LOWER + "*", LOWER[:-1] + "&&[^\\p{Han}]]*"))
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
            "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
POSSESSIVE = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++"
              r"[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
RAW_BYTES = dict(BYTES, use_regex=False)
SPACE = "▁"


def regex(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def text(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": {"String": pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def normal(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def replace(old, new):
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def bytes_kind(pre, normalizer=None, **model):
    return {"bytes": True, "pre": pre, "normalizer": normalizer, "model": model,
            "decoder": RAW_BYTES}


SPM_DECODER = {"type": "Sequence", "decoders": [
    replace(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
SPM_MODEL = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}


def meta(scheme, split):
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}


KINDS = {
    "gpt2": bytes_kind(BYTES),
    "gpt2-prefix": bytes_kind(dict(BYTES, add_prefix_space=True)),
    "llama3": bytes_kind(sequence(regex(LLAMA3), RAW_BYTES), ignore_merges=True),
    "qwen2": bytes_kind(sequence(regex(QWEN2), RAW_BYTES), {"type": "NFC"}),
    "qwen35": bytes_kind(sequence(regex(QWEN35), RAW_BYTES), {"type": "NFC"}),
    "tekken": bytes_kind(sequence(regex(TEKKEN), RAW_BYTES), ignore_merges=True),
    "gpt-4o": bytes_kind(sequence(regex(GPT4O), RAW_BYTES)),
    "kimi": bytes_kind(sequence(regex(KIMI), RAW_BYTES)),
    "possessive": bytes_kind(sequence(regex(POSSESSIVE), RAW_BYTES)),
    "deepseek": bytes_kind(sequence(*[regex(p) for p in DEEPSEEK], RAW_BYTES)),
    "digits": bytes_kind(sequence({"type": "Digits", "individual_digits": True}, BYTES)),
    "falcon": bytes_kind(sequence({"type": "Punctuation", "behavior": "Contiguous"}, BYTES,
                                  {"type": "Digits", "individual_digits": False},
                                  regex("[0-9][0-9][0-9]"))),
    "splits": bytes_kind(sequence(regex(r"\d+|\p{Lu}+", "MergedWithNext"),
                                  regex(r"\s+", "MergedWithPrevious", True),
                                  text("e", "MergedWithPrevious"), regex("[aeiou]", "Contiguous"),
                                  regex(r"[\W_]", "Removed"), RAW_BYTES)),
    "spm": {"bytes": False, "pre": None, "model": SPM_MODEL, "decoder": SPM_DECODER,
            "normalizer": normal({"type": "Prepend", "prepend": SPACE}, replace(" ", SPACE))},
    "metaspace": {"bytes": False, "pre": meta("always", True), "normalizer": None,
                  "model": {"unk_token": "<unk>", "fuse_unk": False},
                  "decoder": meta("always", True)},
    "metaspace-first": {"bytes": False, "pre": meta("first", False), "normalizer": None,
                        "model": SPM_MODEL, "decoder": SPM_DECODER},
    "gemma": {"bytes": False, "pre": text(" ", "MergedWithPrevious"),
              "normalizer": replace(" ", SPACE), "model": SPM_MODEL,
              "decoder": {"type": "Sequence", "decoders": [
                  replace(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]}},
    "nfkc": {"bytes": False, "pre": {"type": "WhitespaceSplit"},
             "normalizer": normal({"type": "NFKC"}, {"type": "Lowercase"},
                                  {"type": "Replace", "pattern": {"Regex": r"[\d]{2,}"},
                                   "content": "##"}, {"type": "Prepend", "prepend": "x"}),
             "model": {"unk_token": "<unk>", "fuse_unk": True}, "decoder": None},
    "nfd": {"bytes": False, "pre": {"type": "Whitespace"},
            "normalizer": normal({"type": "NFKD"}, {"type": "StripAccents"},
                                 {"type": "Strip", "strip_left": True, "strip_right": True}),
            "model": {"unk_token": "<unk>", "fuse_unk": False}, "decoder": None},
}


def added(content, token, special=True, **rules):
    entry = {"id": token, "content": content, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": special}
    entry.update(rules)
    return entry


ADDED = [("<|im_start|>", True, {}), ("<|im_end|>", True, {}), ("<|im_end|>x", True, {}),
         ("<think>", False, {}), ("</think>", False, {}), ("<tool_call>", False, {}),
         ("<mask>", True, {"lstrip": True}), ("<sep>", True, {"rstrip": True}),
         ("word", False, {"single_word": True}), ("Ünï ted", False, {"normalized": True}),
         ("   ", False, {"normalized": True}), ("\n\n\n", False, {})]


def train(kind, merges, seed, corpus):
    """The tokenizer.json of a kind with a number of merges, as a dictionary."""
    spec = KINDS[kind]
    trained = Tokenizer(models.BPE(unk_token=None if spec["bytes"] else "<unk>"))
    if spec["bytes"]:
        pieces = json.loads(Tokenizer(models.BPE()).to_str())
        pieces["normalizer"], pieces["pre_tokenizer"] = spec["normalizer"], spec["pre"]
        base = Tokenizer.from_str(json.dumps(pieces))
        if spec["normalizer"]:
            trained.normalizer = base.normalizer
        trained.pre_tokenizer = base.pre_tokenizer
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        special = ["<|endoftext|>"]
    else:
        if kind in ("nfkc", "nfd"):
            trained.normalizer = normalizers.NFKC() if kind == "nfkc" else normalizers.NFKD()
        trained.pre_tokenizer = pre_tokenizers.Metaspace(
            prepend_scheme="never" if kind == "gemma" else "always", split=True)
        if kind in ("nfkc", "nfd"):
            trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        alphabet = []
        special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    size = merges + (256 if spec["bytes"] else 700) + len(special)
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  initial_alphabet=alphabet, limit_alphabet=700)
    trained.train_from_iterator(corpus, trainer)
    out = json.loads(trained.to_str())
    out["added_tokens"] = [entry for entry in out["added_tokens"]
                           if not entry["content"].startswith("<0x")]
    model = out["model"]
    model.update({"fuse_unk": False, "byte_fallback": False, "ignore_merges": False})
    model.update(spec["model"])
    if seed % 2:  # both spellings exist
        model["merges"] = [" ".join(pair) for pair in model["merges"]]
    next_id = max(model["vocab"].values()) + 1
    for content, is_special, rules in ADDED:
        if kind == "nfd" and rules.get("normalized"):
            continue  # the reference panics on nearly every string
        known = model["vocab"].get(content)
        out["added_tokens"].append(added(content, next_id if known is None else known, is_special,
                                         **rules))
        next_id += known is None
    out["normalizer"], out["pre_tokenizer"] = spec["normalizer"], spec["pre"]
    out["decoder"] = spec["decoder"]
    first = out["added_tokens"][0]
    out["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": first["content"], "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {first["content"]: {"id": first["content"], "ids": [first["id"]],
                                              "tokens": [first["content"]]}}}
    return out
