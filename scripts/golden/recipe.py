"""What a golden fixture is made from: config.json, and the form of its folder."""

from reference import families

lengths = (1, 3, 4, 5, 15, 16, 17, 33)
token_keys = ("bos_token_id", "eos_token_id", "pad_token_id")


def recipe(config, **options):
    """The recipe of one fixture. Options and their defaults:
    lengths: of the prompts, the longest last; shards; tokenizer: a style of tiny_tokenizers;
    padding_rows: rows of the embedding that no token has;
    prefix, fused: of the tensors, as families.plan_of takes them;
    kinds: end of a tensor's name -> its kind, where it is not the plan's;
    extra: more tensors (name, shape, kind), for readers to ignore;
    quantise: a quantise.Scheme;
    half: BF16 or F16, the type of all tensors but those of kinds that end in _f32;
    generation: token ids of generation_config.json that config.json says otherwise;
    peer: more keys of config.json, which transformers needs;
    whole_passes: its greedy tokens come from whole passes, not through its cache."""
    found = {
        "config": config,
        "lengths": lengths,
        "shards": 1,
        "tokenizer": None,
        "padding_rows": 0,
        "prefix": None,
        "fused": None,
        "kinds": {},
        "extra": (),
        "quantise": None,
        "half": "BF16",
        "generation": {},
        "peer": {},
        "whole_passes": False,
    }
    unknown = set(options) - set(found)
    if unknown:
        raise ValueError(f"no such options: {unknown}")
    found.update(options)
    text = families.text_config(config)
    ids = {key: text[key] for key in token_keys if key in text}
    found["generation"] = {**ids, **found["generation"]}
    eos = found["generation"]["eos_token_id"]
    found["stop"] = set(eos if isinstance(eos, list) else [eos])
    rows = text["vocab_size"]
    found["stop"] |= set(range(rows - found["padding_rows"], rows))
    return found


def plan_of(one):
    return families.plan_of(one["config"], one["prefix"], one["fused"])


def tensors_of(one):
    """(name, shape, kind) of every tensor of a recipe's folder, in file order."""
    for name, shape, kind in (*plan_of(one).tensors(), *one["extra"]):
        ends = [end for end in one["kinds"] if name.endswith(end)]
        yield name, shape, one["kinds"][ends[0]] if ends else kind
