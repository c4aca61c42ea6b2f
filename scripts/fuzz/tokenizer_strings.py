"""Text to train tokenizers on and strings to try them with, over the code points of Unicode 13."""

import random
import unicodedata

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


SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\xa0",
          "\u1680", "\u180e", "\u2003", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000",
          "\ufeff", "▁"]
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
            anything = chr(self.rng.choice(self.points))
            out += self.rng.choice(["a", "e", "か", "ᄀ", " ", "Å", anything])
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
