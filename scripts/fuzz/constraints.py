#!/usr/bin/env python3
"""Answers that random schemas bind, checked by Python's jsonschema.

    scripts/fuzz/constraints.py --tool BUILD/hyb_mask_lines [--schemas 500] [--seed 1] [MODEL.gguf]
    scripts/fuzz/constraints.py --hyb BUILD/hyb [--schemas 500] [--seed 1] [--raw] [MODEL]

The first form draws from the masks, as a model does that knows nothing; the second has a model
answer at temperature 1, by `hyb batch`. All answers that end by themselves must parse and validate;
schemas that are refused are counted by what their error says.
"""

import argparse
import collections
import json
import random
import pathlib
import subprocess
import sys
import tempfile

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import jsonschema

TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]
FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "hostname"]
PATTERNS = ["^[a-c]+$", "^x?[0-9]{2,4}$", "b", "^(foo|bar)(-[a-z]+)*$", "\\d{3}"]


def number(rng):
    return rng.choice([rng.randint(-300, 300), round(rng.uniform(-20, 20), 2)])


def string(rng):
    kind = rng.randrange(4)
    if kind == 0:
        return {"type": "string", "format": rng.choice(FORMATS)}
    if kind == 1:
        return {"type": "string", "pattern": rng.choice(PATTERNS)}
    if kind == 2:
        return {"type": "string", "minLength": rng.randint(0, 3), "maxLength": rng.randint(3, 9)}
    return {"type": "string"}


def numeric(rng, name):
    result = {"type": name}
    if rng.random() < 0.6:
        result[rng.choice(["minimum", "exclusiveMinimum"])] = number(rng)
    if rng.random() < 0.4:
        result[rng.choice(["maximum", "exclusiveMaximum"])] = 320 + abs(number(rng))
    if rng.random() < 0.3:
        result["multipleOf"] = rng.choice([2, 3, 7, 10])
    return result


def array(rng, depth):
    result = {"type": "array", "items": schema(rng, depth - 1)}
    if rng.random() < 0.4:
        result["prefixItems"] = [schema(rng, depth - 1) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.5:
        result["minItems"] = rng.randint(0, 2)
        result["maxItems"] = rng.randint(2, 4)
    return result


def obj(rng, depth):
    names = rng.sample(["id", "name", "kind", "é", "a b", "tags", 'q"q'], rng.randint(1, 4))
    result = {"type": "object", "properties": {n: schema(rng, depth - 1) for n in names}}
    result["required"] = [n for n in names if rng.random() < 0.5]
    if rng.random() < 0.6:
        result["additionalProperties"] = rng.choice([False, {"type": "integer"}])
    if rng.random() < 0.2:
        result["patternProperties"] = {"^x_": {"type": "boolean"}}
    return result


def schema(rng, depth):
    pick = rng.random()
    if depth > 0 and pick < 0.1:
        return {"anyOf": [schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
    if depth > 0 and pick < 0.15:
        return {"allOf": [obj(rng, depth - 1), obj(rng, depth - 1)]}
    if depth > 0 and pick < 0.2:
        return {"oneOf": [{"type": "null"}, schema(rng, 0) | {"type": "string"}]}
    if pick < 0.28:
        return {"enum": rng.sample([1, 2.5, "x", None, True, [1], {"a": 1}, "é\n"], 3)}
    if pick < 0.32:
        return {"$ref": "#/$defs/node"}
    name = rng.choice(TYPES if depth > 0 else TYPES[:5])
    if name == "string":
        return string(rng)
    if name in ("integer", "number"):
        return numeric(rng, name)
    return {"array": array, "object": obj}.get(name, lambda *_: {"type": name})(rng, depth)


def draw(options, schemas):
    """A row for each schema: `error`, or `drawn` answers; null: cut off."""
    lines = "\n".join(json.dumps({"schema": one, "draws": 4}) for one in schemas)
    run = subprocess.run([options.tool] + ([options.model] if options.model else []), input=lines,
                         capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def answer(options, schemas):
    """The same, answered by a model."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = pathlib.Path(folder, "asked.jsonl"), pathlib.Path(folder, "answers.jsonl")
        question = "Make up some data as JSON, a short one."
        prompt = {"prompt": question} if options.raw else {
            "messages": [{"role": "user", "content": question}]}
        url = "/v1/completions" if options.raw else "/v1/chat/completions"
        asked.write_text("".join(json.dumps({
            "custom_id": str(i), "method": "POST", "url": url, "body": prompt | {
                "max_tokens": 160, "temperature": 1.0, "top_p": 1.0, "seed": options.seed + i,
                "response_format": {"type": "json_schema",
                                    "json_schema": {"name": "data", "schema": one}}}}) + "\n"
            for i, one in enumerate(schemas)))
        run = subprocess.run([options.hyb, "batch"] + ([options.model] if options.model else []) +
                             [asked, "-o", answered, "--parallel", "8"],
                             capture_output=True, text=True)
        if not answered.exists():
            raise SystemExit(run.stderr)
        print(run.stderr.strip().splitlines()[-1])
        rows = [None] * len(schemas)
        for line in answered.read_text().splitlines():
            result = json.loads(line)
            if result.get("error"):
                row = {"error": result["error"]["message"]}
            else:
                choice = result["response"]["body"]["choices"][0]
                whole = choice["finish_reason"] == "stop"
                text = choice["text"] if options.raw else choice["message"]["content"]
                row = {"drawn": [text if whole else None]}
            rows[int(result["custom_id"])] = row
        return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--tool")
    source.add_argument("--hyb")
    parser.add_argument("--raw", action="store_true", help="the model has no chat template")
    parser.add_argument("--schemas", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("model", nargs="?")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    node = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {
        "anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v"],
            "additionalProperties": False}
    schemas = [schema(rng, 3) | {"$defs": {"node": node}} for _ in range(options.schemas)]
    rows = draw(options, schemas) if options.tool else answer(options, schemas)
    counts, wrong = collections.Counter(), 0
    for one, row in zip(schemas, rows, strict=True):
        if "error" in row:
            counts["refused: " + row["error"][:70]] += 1
            continue
        validator = jsonschema.Draft202012Validator
        checker = validator(one, format_checker=validator.FORMAT_CHECKER)
        for text in row["drawn"]:
            counts["cut off" if text is None else "ended"] += 1
            try:
                problem = text and next(checker.iter_errors(json.loads(text)), None)
            except ValueError as error:
                problem = error
            if problem:
                wrong += 1
                print(f"WRONG: {json.dumps(one)}\n  {text}\n  {str(problem)[:200]}")
    for name, count in counts.most_common():
        print(f"{count:6} {name}")
    print(f"{wrong} wrong answers of {counts['ended']}")
    return wrong > 0


if __name__ == "__main__":
    raise SystemExit(main())
