#!/usr/bin/env python3
"""Write tests/models/saved_configs.json: how the newest transformers spells the configs of tests.

Each config.json of tests/golden and of tests/models/published_sizes.json is read by transformers
and saved again; what that changes is kept as a JSON patch (RFC 6902). Either spelling must be read
as the same model. Needs transformers, which needs no torch for it.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import transformers

top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
golden = os.path.join(top, "tests", "golden")


def given_configs():
    for name in sorted(os.listdir(golden)):
        path = os.path.join(golden, name, "config.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                yield name, json.load(file)
    sizes = os.path.join(top, "tests", "models", "published_sizes.json")
    with open(sizes, encoding="utf-8") as file:
        for row in json.load(file):
            yield row["name"], row["config"]


def saved(config):
    """As transformers writes it. It knows attention_head_dim, which published Nemotron-H has beside
    or in place of head_dim, in its remote code alone."""
    given = dict(config)
    if "attention_head_dim" in given:
        given.setdefault("head_dim", given["attention_head_dim"])
    kind = transformers.CONFIG_MAPPING[config["model_type"]]
    with tempfile.TemporaryDirectory() as folder:
        kind.from_dict(given).save_pretrained(folder)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            return json.load(file)


def patch(old, new, path=""):
    for key in sorted(old.keys() | new.keys()):
        at = f"{path}/{key}"
        if key not in new:
            yield {"op": "remove", "path": at}
        elif key not in old:
            yield {"op": "add", "path": at, "value": new[key]}
        elif isinstance(old[key], dict) and isinstance(new[key], dict):
            yield from patch(old[key], new[key], at)
        elif old[key] != new[key]:
            yield {"op": "replace", "path": at, "value": new[key]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    out = os.path.join(top, "tests", "models", "saved_configs.json")
    parser.add_argument("--out", default=out, help="file to write")
    args = parser.parse_args()
    # What says nothing of the layers is left out.
    silent = ["architectures", "initializer_range", "transformers_version"]
    silent += ["vision_config", "audio_config"]
    rows = {}
    for name, config in given_configs():
        # Of Ling 2.5, which has its type from 3.0, transformers has no class.
        is_other = config.get("architectures") == ["BailingMoeV2_5ForCausalLM"]
        if config["model_type"] not in transformers.CONFIG_MAPPING or is_other:
            continue
        changes = patch(config, saved(config))
        rows[name] = [op for op in changes if not any(f"/{key}" in op["path"] for key in silent)]
    text = ",\n".join(f" {json.dumps(name)}: {json.dumps(ops)}" for name, ops in rows.items())
    with open(args.out, "w", encoding="utf-8") as file:
        version = json.dumps(transformers.__version__)
        file.write(f'{{"transformers": {version}, "patches": {{\n{text}\n}}}}\n')


if __name__ == "__main__":
    main()
