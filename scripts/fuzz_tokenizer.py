"""Compares hyb's tokenizer with Hugging Face `tokenizers` on fuzzed strings.

Trains byte-pair vocabularies on a synthetic multilingual text for every kind of tokenizer.json in
use, encodes fuzzed strings with both, compares ids, decoded text and streamed text, and appends one
JSON line of counts per run to the results.

    python scripts/fuzz_tokenizer.py run --tool BUILD/hyb_tokenize_lines --work DIR \\
        --results tests/core/text/fuzz_results.jsonl --strings 100000 --seeds 1 2
    python scripts/fuzz_tokenizer.py points --tool ... --work DIR --results ...
    python scripts/fuzz_tokenizer.py fixtures --out tests/core/text/fixtures

`points` sends every code point of Unicode through the kinds that depend on Unicode tables: those
assigned in Unicode 13 have to agree, the later ones that differ are listed.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
import unicodedata

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import tokenizers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

# --- Unicode 13 -----------------------------------------------------------------------------------

# Assigned between Unicode 13.0 and 14.0, which is what Python 3.11 knows.
LATER_THAN_13 = [
    0x61D, (0x870, 0x88E), (0x890, 0x891), (0x898, 0x89F), 0x8B5, (0x8C8, 0x8D2), 0xC3C, 0xC5D,
    0xCDD, 0x170D, 0x1715, 0x171F, 0x180F, (0x1AC1, 0x1ACE), 0x1B4C, (0x1B7D, 0x1B7E), 0x1DFA,
    0x20C0, 0x2C2F, 0x2C5F, (0x2E53, 0x2E5D), (0x9FFD, 0x9FFF), (0xA7C0, 0xA7C1), (0xA7D0, 0xA7D1),
    0xA7D3, (0xA7D5, 0xA7D9), (0xA7F2, 0xA7F4), 0xFBC2, (0xFD40, 0xFD4F), 0xFDCF, (0xFDFE, 0xFDFF),
    (0x10570, 0x1057A), (0x1057C, 0x1058A), (0x1058C, 0x10592), (0x10594, 0x10595),
    (0x10597, 0x105A1), (0x105A3, 0x105B1), (0x105B3, 0x105B9), (0x105BB, 0x105BC),
    (0x10780, 0x10785), (0x10787, 0x107B0), (0x107B2, 0x107BA), (0x10F70, 0x10F89),
    (0x11070, 0x11075), 0x110C2, 0x116B9, (0x11740, 0x11746), (0x11AB0, 0x11ABF),
    (0x12F90, 0x12FF2), (0x16A70, 0x16ABE), (0x16AC0, 0x16AC9), (0x1AFF0, 0x1AFF3),
    (0x1AFF5, 0x1AFFB), (0x1AFFD, 0x1AFFE), (0x1B11F, 0x1B122), (0x1CF00, 0x1CF2D),
    (0x1CF30, 0x1CF46), (0x1CF50, 0x1CFC3), (0x1D1E9, 0x1D1EA), (0x1DF00, 0x1DF1E),
    (0x1E290, 0x1E2AE), (0x1E7E0, 0x1E7E6), (0x1E7E8, 0x1E7EB), (0x1E7ED, 0x1E7EE),
    (0x1E7F0, 0x1E7FE), (0x1F6DD, 0x1F6DF), 0x1F7F0, 0x1F979, 0x1F9CC, (0x1FA7B, 0x1FA7C),
    (0x1FAA9, 0x1FAAC), (0x1FAB7, 0x1FABA), (0x1FAC3, 0x1FAC5), (0x1FAD7, 0x1FAD9),
    (0x1FAE0, 0x1FAE7), (0x1FAF0, 0x1FAF6), (0x2A6DE, 0x2A6DF), (0x2B735, 0x2B738),
]


def assigned_points():
    """Code points assigned in Unicode 13, without surrogates."""
    assert unicodedata.unidata_version == "14.0.0", "the list above is for Unicode 14"
    later = set()
    for entry in LATER_THAN_13:
        first, last = entry if isinstance(entry, tuple) else (entry, entry)
        later.update(range(first, last + 1))
    return [c for c in range(0x110000)
            if c not in later and unicodedata.category(chr(c)) not in ("Cn", "Cs")]


# --- a text to train on ---------------------------------------------------------------------------

SCRIPTS = {
    "latin": ("bcdfghjklmnprstvwz", "aeiou", 14),
    "accents": ("bcdfgçñšžłß", "áéíóúäöüåøæœ", 4),
    "cyrillic": ("бвгджзклмнпрстфхцчш", "аеиоуыэюяё", 4),
    "greek": ("βγδζθκλμνξπρσφχψ", "αεηιουωάέή", 2),
    "arabic": ("بتثجحخدذرزسشصضطظعغفقكلمنهوي", "َُِا", 2),
    "hebrew": ("בגדהוזחטכלמנסעפצקרשת", "אוי", 1),
    "devanagari": ("कखगघचछजझटठडढतथदधनपफबभमयरलवशषसह", "ािीुूेैोौ", 2),
    "thai": ("กขคงจฉชซดตถทนบปผพฟมยรลวสหอ", "ะาิีึืุูเแโ", 1),
    "hiragana": ("あいうえおかきくけこさしすせそたちつてと", "なにぬねのまみむめもらりるれろ", 2),
    "katakana": ("アイウエオカキクケコサシスセソ", "ナニヌネノマミムメモラリルレロ", 1),
    "han": ("的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可",
            "里后小么心多天而能好都然没日于起还发成事只作当想看文无开手十用主行方又如前所本见经头面公同", 3),
    "hangul": ("가나다라마바사아자차카타파하", "각난달람맙샷앙잦찿캌탙", 2),
    "emoji": ("😀😁😂🤣😃🚀🎉👍❤️🔥", "👩‍💻🇩🇪🏳️‍🌈✨", 1),
}
CODE = ["def f(x):\n    return x", "for (int i = 0; i < n; ++i) {", "}\n\n", "\tif (a && b) ",
        "x += 1;", "// todo", "#include <stdio.h>\n", "SELECT * FROM t;", "{\"key\": [1, 2.5]}",
        "https://example.org/a?b=c&d=e", "print(f\"{x!r}\")", "a->b", "std::vector<int>", "\r\n"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Re", "’s", "n't"]
PUNCTUATION = [",", ".", ";", ":", "!", "?", "...", "—", "(", ")", "«", "»", "\"", "、", "。", "¿"]


class Words:
    """A Zipf-like lexicon over several scripts."""

    def __init__(self, seed, count=60000):
        rng = random.Random(seed)
        names = list(SCRIPTS)
        weights = [SCRIPTS[name][2] for name in names]
        words = set()
        while len(words) < count:
            consonants, vowels, _ = SCRIPTS[rng.choices(names, weights)[0]]
            word = ""
            for _ in range(rng.choice([1, 1, 2, 2, 2, 3, 3, 4])):
                word += rng.choice(consonants) + rng.choice(vowels)
                if rng.random() < 0.3:
                    word += rng.choice(consonants)
            roll = rng.random()
            words.add(word.upper() if roll < 0.04 else word.capitalize() if roll < 0.2 else word)
        self.words = sorted(words)
        rng.shuffle(self.words)

    def pick(self, rng):
        return self.words[int(len(self.words) * rng.random() ** 3)]

    def sentence(self, rng):
        out = []
        for _ in range(rng.randrange(3, 16)):
            roll = rng.random()
            if roll < 0.05:
                out.append(str(rng.randrange(10 ** rng.randrange(1, 9))))
            elif roll < 0.08:
                out.append(rng.choice(CODE))
            else:
                word = self.pick(rng)
                if roll < 0.12:
                    word += rng.choice(CONTRACTIONS)
                if roll > 0.85:
                    word += rng.choice(PUNCTUATION)
                out.append(word)
        return " ".join(out) + rng.choice([".", "!", "\n", "\n\n", "  "])


# --- kinds of tokenizer.json ----------------------------------------------------------------------

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
    """The tokenizer.json of a kind with so many merges, as a dictionary."""
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


# --- strings --------------------------------------------------------------------------------------

SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\xa0",
          "\u1680", "\u180e", "\u2003", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000",
          "\ufeff", SPACE]
MARKS = ["\u0301", "\u0308", "\u0323", "\u0327", "\u0345", "\u05b0", "\u0e38", "\u3099", "\u302a",
         "\u0f71", "\u1dce", "\ufe0f", "\u200d"]
PIECES = ["<|im_start|>", "<|im_end|>", "<|im_", "end|>", "<think>", "</think>", "<tool_call>",
          "<mask>", "<sep>", "word", "words", "Ünï ted", "<0x41>", "<unk>", "<s>", "##", "▁▁",
          "ſ", "'ſ", "K", "ß", "İ", "ı", "Σ", "ς", "ǅ", "ﬁ", "①", "½", "²", "٣", "४", "Ⅷ", "〇",
          "각", "\u1100\u1161\u11a8", "가\u11a8", "\u0958", "\u2126", "Å", "e\u0301", "\u212b",
          "１２３", "ﾊﾟ", "か\u3099", "㎏", "\ufdfa", "\U0001d400", "👩‍💻", "🇩🇪", "\x00", "\x7f",
          "\ufffd", "\uffff", "\U0010ffff", "\ue000"]


class Strings:
    """Fuzzed strings over the code points assigned in Unicode 13."""

    def __init__(self, seed, words, points):
        self.rng = random.Random(seed)
        self.words = words
        self.points = points
        by_plane = {}
        for point in points:
            by_plane.setdefault(point >> 8, []).append(point)
        self.rows = list(by_plane.values())
        self.makers = [self.points_of_a_row, self.any_points, self.prose, self.spaces, self.digits,
                       self.pieces, self.marks, self.ascii, self.mixed, self.mixed]

    def points_of_a_row(self):
        row = self.rng.choice(self.rows)
        return "".join(chr(self.rng.choice(row)) for _ in range(self.rng.randrange(1, 12)))

    def any_points(self):
        return "".join(chr(self.rng.choice(self.points)) for _ in range(self.rng.randrange(1, 8)))

    def prose(self):
        return self.words.sentence(self.rng)[:self.rng.randrange(1, 120)]

    def spaces(self):
        out = ""
        for _ in range(self.rng.randrange(1, 6)):
            out += self.rng.choice(SPACES) * self.rng.choice([1, 1, 2, 5])
            out += self.rng.choice(["", "", "a", "B", "1", ".", self.words.pick(self.rng)])
        return out

    def digits(self):
        out = ""
        for _ in range(self.rng.randrange(1, 5)):
            out += str(self.rng.randrange(10 ** self.rng.randrange(1, 12)))
            out += self.rng.choice(["", " ", ".", ",", "a", "٣", "४", "²", "½", "Ⅷ", "〇", "’"])
        return out

    def pieces(self):
        glue = ["", " ", "  ", "\n", "a", "_", "é"]
        return "".join(self.rng.choice(PIECES) + self.rng.choice(glue)
                       for _ in range(self.rng.randrange(1, 7)))

    def marks(self):
        out = ""
        for _ in range(self.rng.randrange(1, 5)):
            out += self.rng.choice(["a", "e", "か", "ᄀ", " ", "Å", chr(self.rng.choice(self.points))])
            out += "".join(self.rng.choice(MARKS) for _ in range(self.rng.randrange(0, 6)))
        return out

    def ascii(self):
        return "".join(chr(self.rng.randrange(0x80)) for _ in range(self.rng.randrange(1, 24)))

    def mixed(self):
        out = ""
        for _ in range(self.rng.randrange(2, 5)):
            part = self.rng.choice(self.makers[:-2])()
            out += part + self.rng.choice(["", "", " ", self.rng.choice(CONTRACTIONS)])
        return out

    def make(self, count):
        return [""] + [self.rng.choice(self.makers)() for _ in range(count - 1)]


# --- comparing ------------------------------------------------------------------------------------


def run_tool(tool, path, strings):
    """The tool's answers, one a string."""
    lines = "".join(json.dumps(s) + "\n" for s in strings)
    done = subprocess.run([tool, path], input=lines, capture_output=True, text=True,
                          encoding="utf-8")
    if done.returncode:
        sys.exit(f"{tool} {path}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def encode_all(reference, strings):
    """The ids of every string; None where the reference panics, which it does on some."""
    try:
        return [e.ids for e in reference.encode_batch(strings, add_special_tokens=False)]
    except BaseException as error:  # a Rust panic is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
    if len(strings) == 1:
        return [None]
    half = len(strings) // 2
    return encode_all(reference, strings[:half]) + encode_all(reference, strings[half:])


def compare(tool, path, strings):
    """Counts of what differs, and a few examples."""
    reference = Tokenizer.from_file(path)
    counts = {"ids": 0, "text": 0, "plain": 0, "stream": 0, "errors": 0,
              "reference crashes": 0}
    examples = []
    differing = []
    for begin in range(0, len(strings), 20000):
        part = strings[begin:begin + 20000]
        answers = run_tool(tool, path, part)
        assert len(answers) == len(part)
        ids = encode_all(reference, part)
        crashes = [i for i, want in enumerate(ids) if want is None]
        counts["reference crashes"] += len(crashes)
        for i in reversed(crashes):
            del part[i], answers[i], ids[i]
        texts = reference.decode_batch(ids, skip_special_tokens=False)
        plains = reference.decode_batch(ids, skip_special_tokens=True)
        for s, answer, want, full, plain in zip(part, answers, ids, texts, plains):
            wrong = []
            if "error" in answer:
                wrong.append("errors")
            else:
                wrong += ["ids"] if answer["ids"] != want else []
                wrong += ["text"] if answer["text"] != full else []
                wrong += ["plain"] if answer["plain"] != plain else []
                # A run of byte tokens that is no character is streamed otherwise, on purpose.
                good_bytes = "\ufffd" not in plain
                wrong += ["stream"] if good_bytes and answer["stream"] != answer["plain"] else []
            for name in wrong:
                counts[name] += 1
            if wrong:
                differing.append(s)
                if len(examples) < 5:
                    examples.append({"string": s, "wrong": wrong, "want": want, "got": answer})
    return counts, examples, differing


def versions():
    return {"tokenizers": tokenizers.__version__, "unicode": "13.0"}


def tokenizer_file(work, kind, merges, seed):
    path = os.path.join(work, f"{kind}-{merges}-{seed}.json")
    if not os.path.exists(path):
        rng = random.Random(seed)
        words = Words(seed)
        corpus = [words.sentence(rng) for _ in range(40000 if merges <= 1000 else 250000)]
        built = train(kind, merges, seed, corpus)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(built, file, ensure_ascii=seed % 2 == 0)
        os.rename(path + ".new", path)
    return path


def run(args):
    points = assigned_points()
    for seed in args.seeds:
        words = Words(seed)
        for merges in args.merges:
            for kind in args.kinds or KINDS:
                path = tokenizer_file(args.work, kind, merges, seed)
                with open(path, encoding="utf-8") as file:
                    trained = len(json.load(file)["model"]["merges"])
                begin = time.time()
                strings = Strings(f"{kind} {merges} {seed}", words, points).make(args.strings)
                counts, examples, _ = compare(args.tool, path, strings)
                line = {"kind": kind, "merges": trained, "seed": seed, "strings": len(strings),
                        "differ": counts, **versions()}
                print(json.dumps(line), f"{time.time() - begin:.0f} s", flush=True)
                for example in examples:
                    print("   ", json.dumps(example, ensure_ascii=True), flush=True)
                with open(args.results, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")


def ranges(points):
    out = []
    for point in sorted(points):
        if out and out[-1][1] == point - 1:
            out[-1][1] = point
        else:
            out.append([point, point])
    return [f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in out]


def every_point(args):
    assigned = set(assigned_points())
    for kind in args.kinds or KINDS:
        path = tokenizer_file(args.work, kind, 1000, 1)
        points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
        strings = [f"a{chr(c)}b 1{chr(c)} {chr(c)}A{chr(c)}\u0301" for c in points]
        counts, examples, differing = compare(args.tool, path, strings)
        wrong = {ord(s[1]) for s in differing}
        later = wrong - assigned
        line = {"kind": kind, "points": len(points), "assigned in Unicode 13": len(assigned),
                "differ": len(wrong & assigned), "differ, not in Unicode 13": len(later),
                "they are": ranges(later), **versions()}
        print(json.dumps(line), flush=True)
        for point in sorted(wrong & assigned)[:20]:
            print("   ", f"{point:X}", unicodedata.name(chr(point), "?"), flush=True)
        with open(args.results, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def fixtures(args):
    """Small tokenizers with what Hugging Face makes of a few hundred strings each."""
    points = assigned_points()
    words = Words(7, count=3000)
    rng = random.Random(7)
    corpus = [words.sentence(rng) for _ in range(3000)]
    os.makedirs(args.out, exist_ok=True)
    for kind in KINDS:
        built = train(kind, 300 if kind not in ("llama3", "spm") else 1000, 7, corpus)
        path = os.path.join(args.out, f"{kind}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(built, file, ensure_ascii=False, separators=(",", ":"))
        reference = Tokenizer.from_file(path)
        strings = [s for s in Strings(f"fixture {kind}", words, points).make(240) if len(s) < 70]
        with open(os.path.join(args.out, f"{kind}.golden.jsonl"), "w", encoding="utf-8") as file:
            for s in strings:
                ids = reference.encode(s, add_special_tokens=False).ids
                text = reference.decode(ids, skip_special_tokens=False)
                plain = reference.decode(ids, skip_special_tokens=True)
                line = {"string": s, "ids": ids}
                if text != s:
                    line["text"] = text  # left out: as the string
                if plain != text:
                    line["plain"] = plain  # left out: as the text
                file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "points"):
        command = commands.add_parser(name)
        command.add_argument("--tool", required=True)
        command.add_argument("--work", required=True, help="where trained tokenizers are kept")
        command.add_argument("--results", required=True)
        command.add_argument("--kinds", nargs="*", choices=list(KINDS))
        if name == "run":
            command.add_argument("--strings", type=int, default=100000)
            command.add_argument("--merges", type=int, nargs="*", default=[1000, 32000])
            command.add_argument("--seeds", type=int, nargs="*", default=[1, 2])
    commands.add_parser("fixtures").add_argument("--out", required=True)
    args = parser.parse_args()
    {"run": run, "points": every_point, "fixtures": fixtures}[args.command](args)


if __name__ == "__main__":
    main()
