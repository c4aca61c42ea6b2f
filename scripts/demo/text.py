"""Tokenizer, chat template and token packing of the demo model."""

import random

import torch
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

END, START_ROLE, END_ROLE = "<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"
# The published pattern with one digit per token, so that arithmetic sees digits.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE = (
    "{%- for message in messages %}\n"
    "{{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' }}\n"
    "{{- (message['content'] or '') + '' }}\n"
    "{%- for call in message['tool_calls'] or [] %}\n"
    "{{- '<tool_call>' + (call['function'] or call) | tojson + '</tool_call>' }}\n"
    "{%- endfor %}\n"
    "{{- '<|end_of_text|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "{{- '<|start_of_role|>assistant<|end_of_role|>' }}\n"
    "{%- endif %}\n"
)


def train_tokenizer(corpus, vocabulary):
    """A byte-level BPE of `vocabulary` tokens learned from the corpus' own text."""
    rng = random.Random(7)
    chats = [corpus.short(rng) for _ in range(40000)] + [corpus.long(rng) for _ in range(1000)]
    texts = ["user", "assistant", "system"] * 9000 + [
        m["content"] for messages in chats for m in messages
    ]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    specials = [
        AddedToken(text, special=True, normalized=False) for text in (END, START_ROLE, END_ROLE)
    ]
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=specials,
            min_frequency=2,
            show_progress=False,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        ),
    )
    return tokenizer


class ChatEncoder:
    """Chats -> token ids and the mask of what the assistant says."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.end = tokenizer.token_to_id(END)
        self.line = tokenizer.encode("\n").ids
        self.heads = {
            role: [
                tokenizer.token_to_id(START_ROLE),
                *tokenizer.encode(role).ids,
                tokenizer.token_to_id(END_ROLE),
            ]
            for role in ("user", "assistant", "system")
        }

    def encode(self, chats):
        """Per chat (ids, spoken): spoken[i] is true where the assistant says ids[i].

        Of a message with "counted" (a list of words) only these words are spoken.
        """
        contents = [message["content"] for messages in chats for message in messages]
        encoded = iter(self.tokenizer.encode_batch_fast(contents))
        return [self.assemble(messages, encoded) for messages in chats]

    def assemble(self, messages, encoded):
        ids, spoken = [], []
        for message in messages:
            head, body = self.heads[message["role"]], next(encoded).ids
            ids += head + body + [self.end] + self.line
            said = [message["role"] == "assistant"] * (len(body) + 1)
            if "counted" in message:
                counted = self.words(message["counted"])
                said = [token in counted for token in body] + [False]
            spoken += [False] * len(head) + said + [False] * len(self.line)
        return ids, spoken

    def words(self, words):
        """Ids of the words that are one token after a space."""
        return {self.tokenizer.token_to_id("\u0120" + word) for word in words}

    def prompt(self, messages):
        """Ids of a chat that waits for the assistant."""
        return self.encode([messages])[0][0] + self.heads["assistant"]


class Packer:
    """Packs whole chats into rows of one length; a step number always gives the same rows."""

    def __init__(self, corpus, encoder, seed):
        self.corpus, self.encoder, self.seed = corpus, encoder, seed

    def batch(self, step, rows, length, long, drills=0.0):
        """tokens [rows,length], first (bool, start of a chat), targets (-1: not counted).

        `drills` is the share of drills among the short chats.
        """
        rng = random.Random(self.seed * 1_000_003 + step)
        packed = [([], [], []) for _ in range(rows)]

        def draw(rng):
            return self.corpus.long(rng) if long else self.corpus.short(rng, drills)

        misses = 0
        while misses < rows:
            for ids, spoken in self.encoder.encode([draw(rng) for _ in range(rows)]):
                misses += not self.place(packed, ids, spoken, length)
        pad = self.encoder.end
        tokens = torch.tensor([ids + [pad] * (length - len(ids)) for ids, _, _ in packed])
        first = torch.tensor([flags + [True] * (length - len(flags)) for _, flags, _ in packed])
        targets = torch.tensor([wanted + [-1] * (length - len(wanted)) for _, _, wanted in packed])
        return tokens, first, targets

    @staticmethod
    def place(packed, ids, spoken, length):
        """Puts one chat into the first row with room; an empty row takes its start."""
        for row_ids, flags, wanted in packed:
            room = length - len(row_ids)
            if len(ids) > room and row_ids:
                continue
            ids, spoken = ids[:room], spoken[:room]
            row_ids += ids
            flags += [True] + [False] * (len(ids) - 1)
            wanted += [t if said else -1 for t, said in zip(ids[1:], spoken[1:])] + [-1]
            return True
        return False
