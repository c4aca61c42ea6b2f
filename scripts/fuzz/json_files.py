#!/usr/bin/env python3
"""Feeds hyb JSON files in which one value is of the wrong type, or missing, or cut off.

    scripts/fuzz/json_files.py build/hyb             # every value of every file: minutes
    scripts/fuzz/json_files.py build/hyb --short     # a fixed selection: seconds
    scripts/fuzz/json_files.py build/hyb --only config.json:granite

Each run has to end in an answer or in a message: exit 0, 2, 3 or 4 (5: requests of a batch failed),
no signal, no text of the JSON library, no control bytes on stderr, bounded time and memory. Where
it ends with 3, the message has to name the file, and the key that was changed or one that it
belongs to; a number in place of another may also end with a tensor whose shape does not fit.
"""

import argparse
import concurrent.futures
import copy
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = TOP / "tests/golden"
SECONDS = 60
ADDRESS_SPACE = 8 << 30
# What only a bug in hyb lets through: names of the JSON library, of the standard library, of code.
FOREIGN = re.compile(r"json\.exception|parse_error|type_error|out_of_range|std::|basic_string|"
                     r"vector::|map::at|\bstoi\b|\bstod\b|bad_alloc|out of memory|[a-z]\.cpp:\d")
CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xaa-\xae]")
VALUES = [None, "x", "", "\x1b]0;x\x07\u202e", True, -1, 0, 7, 1.5, 1e300, 2**31, 2**63, 2**64 + 1,
          [], {}, [None], [[]], {"x": None}, [1, "x"]]
SHORT_VALUES = [None, "\x1b]0;x\x07", 1.5, 2**64 + 1, [], {"x": None}]
GONE = object()

TRACE = """\
{"t":0.0,"session":"a","turn":0,"prompt":[[1,64],[2,32]],"output":[[3,16]]}
{"t":1.5,"session":"a","turn":1,"prompt":[[1,64],[2,32],[3,16],[4,8]],"output":[[5,4]]}
"""
BATCH = """\
{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"hello","max_tokens":2,\
"temperature":0.5,"top_p":0.9,"top_k":3,"min_p":0.1,"seed":1,"stop":["x"],"logprobs":2,"n":1}}
{"custom_id":"b","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user",\
"content":"hello"},{"role":"assistant","content":"yes"},{"role":"user","content":[{"type":"text",\
"text":"x"}]}],"max_tokens":2,"logprobs":true,"top_logprobs":2,"logit_bias":{"3":1.5},"tools":[\
{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"stop":"x",\
"presence_penalty":0.1,"frequency_penalty":0.1,"chat_template_kwargs":{"enable_thinking":false}}}
"""
MESSAGES = """\
{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello"},\
{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f",\
"arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"3"}],"tools":[{"type":"function",\
"function":{"name":"f","parameters":{"type":"object"}}}],"enable_thinking":false}
"""
ROWS = """\
[{"n_prompt":16,"n_gen":0,"n_depth":0,"batch":1,"graphs":"","samples_ts":[1.5,2.5]},{"workload":\
"random 16+2","experiment":"closed","condition":"cold","policy":"","num_prompts":2,"graphs":"",\
"output_throughputs":[1.5,2.5],"ttft_means_ms":[1.5,2.5],"tpot_means_ms":[1.5],"e2el_means_ms":[]}]
"""


def paths_of(value, path=(), entries_max=3):
    """Places of all values below; of long arrays the first few, of large objects likewise."""
    yield path
    if isinstance(value, dict):
        keys = list(value) if len(value) <= 100 else list(value)[:entries_max]
        for key in keys:
            yield from paths_of(value[key], path + (key,))
    elif isinstance(value, list):
        for i in range(min(len(value), entries_max)):
            yield from paths_of(value[i], path + (i,))


def changed(root, path, value):
    if not path:
        return value
    root = copy.deepcopy(root)
    place = root
    for step in path[:-1]:
        place = place[step]
    if value is GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return root


def mutations(text, is_short):
    """(what was changed, keys on the way to it, the text) for JSON or lines of JSON."""
    lines = text.splitlines() if text.count("\n{") else [text]
    values = SHORT_VALUES if is_short else VALUES
    for number, line in enumerate(lines):
        root = json.loads(line)
        def whole(new_line):
            return "\n".join(lines[:number] + [new_line] + lines[number + 1:]) + "\n"
        for place, path in enumerate(paths_of(root)):
            chosen = [values[place % len(values)]] if is_short else [*values, GONE]
            for value in chosen:
                if value is GONE and not path:
                    continue
                new = json.dumps(changed(root, path, value), ensure_ascii=False)
                shown = "gone" if value is GONE else json.dumps(value)
                yield f"{list(path)} = {shown}", path, whole(new)
        cuts = [0, 1, len(line) // 3, len(line) // 2, len(line) - 2]
        for cut in cuts[2:] if is_short else cuts:
            yield f"cut at {cut}", (), whole(line[:cut])
        yield "a byte that is no UTF-8", (), whole(line[:-2] + "\udcff" + line[-2:])
        yield "an escape byte", (), whole(line[:1] + "\x1b[31m" + line[1:])


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


class Run:
    """One command on one changed file."""

    def __init__(self, name, key_path, command, files):
        self.name, self.key_path, self.command, self.files = name, key_path, command, files

    def findings(self, binary):
        with tempfile.TemporaryDirectory() as top:
            folder = pathlib.Path(top, "model")
            folder.mkdir()
            for name, content in self.files.items():
                if isinstance(content, pathlib.Path):
                    (folder / name).symlink_to(content)
                else:
                    (folder / name).write_bytes(content.encode("utf-8", "surrogateescape"))
            return list(self.judge(binary, folder, top))

    def judge(self, binary, folder, top):
        command = [binary] + [part.replace("FOLDER", str(folder)) for part in self.command]
        environment = {"PATH": os.environ["PATH"], "HOME": top, "CUDA_VISIBLE_DEVICES": ""}
        process = subprocess.Popen(["/usr/bin/env", "timeout", str(SECONDS), *command],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment, preexec_fn=limit_memory)
        out, err = process.communicate()
        code = process.returncode
        text = err.decode("utf-8", "replace")
        if code == 124:
            yield f"more than {SECONDS} s"
        elif code not in (0, 2, 3, 4) and not (code == 5 and self.command[0] == "batch"):
            yield f"exit {code}: {text}"
        text += out.decode("utf-8", "replace")
        found = FOREIGN.search(text)
        if found:
            yield f"says {found[0]}: {text}"
        if CONTROL.search(err):
            yield f"control bytes: {err!r}"
        if code == 3 and "tensor" not in text and "is missing" not in text:
            # A change may show in another file: a stop id that the vocabulary lacks from now on.
            if not any(name in text for name in self.files):
                yield f"does not name {self.changed_file()}: {text}"
            keys = [key for key in self.key_path if isinstance(key, str)]
            if self.changed_file() in text and keys and not any(key in text for key in keys):
                yield f"names no key: {text}"

    def changed_file(self):
        return next(name for name, content in self.files.items() if isinstance(content, str))


def folder_runs(folder, name, commands, is_short):
    """Runs for one file of a model folder."""
    rest = {path.name: path for path in folder.iterdir()
            if path.name != name and not path.name.startswith("golden")}
    text = (folder / name).read_text()
    for what, path, new in mutations(text, is_short):
        for command in commands:
            yield Run(f"{name}:{folder.name}: {command[0]}: {what}", path, command,
                      {name: new, **rest})


def index_runs(folder, is_short):
    name = "model.safetensors.index.json"
    weights = {"model.embed_tokens.weight": "model.safetensors",
               "model.norm.weight": "model.safetensors"}
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": weights})
    rest = {path.name: path for path in folder.iterdir() if not path.name.startswith("golden")}
    for what, path, new in mutations(text, is_short):
        yield Run(f"{name}: inspect: {what}", path, ["inspect", "FOLDER"], {name: new, **rest})


def file_runs(name, text, commands, is_short):
    for what, path, new in mutations(text, is_short):
        for command in commands:
            yield Run(f"{name}: {command[0]}: {what}", path, command, {name: new})


def runs(is_short):
    model = ["run", "FOLDER", "--raw", "-p", "a b", "-n", "1", "--context", "64"]
    config = [["inspect", "FOLDER"]] if is_short else [["inspect", "FOLDER"], ["fit", "FOLDER"]]
    names = {"config.json": config,
             "generation_config.json": [model],
             "tokenizer_config.json": [["render", "FOLDER", "-p", "a"],
                                       ["tokenize", "FOLDER", "-p", "a"]],
             "tokenizer.json": [["tokenize", "FOLDER", "-p", "a b"]]}
    folders = [GOLDEN / "granite-dense-nope"] if is_short else sorted(GOLDEN.iterdir())
    for folder in folders:
        for name, commands in names.items():
            if not (folder / name).exists():
                continue
            has_template = (folder / "chat_template.jinja").exists()
            yield from folder_runs(folder, name, [command for command in commands
                                                  if has_template or command[0] != "render"],
                                   is_short)
    yield from file_runs("rows.json", ROWS, [
        ["bench", "compare", "FOLDER/rows.json", "FOLDER/rows.json"]], is_short)
    yield from index_runs(GOLDEN / "granite-dense-nope", is_short)
    yield from file_runs("trace.jsonl", TRACE, [["replay", "FOLDER/trace.jsonl", "--json"]],
                         is_short)
    yield from file_runs("in.jsonl", BATCH, [
        ["batch", "demo", "FOLDER/in.jsonl", "--validate"]], is_short)
    yield from file_runs("m.json", MESSAGES, [
        ["render", "demo", "--messages", "FOLDER/m.json"]], is_short)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    chosen = [run for run in runs(options.short) if options.only in run.name]
    count = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for run, findings in zip(chosen, pool.map(lambda one: one.findings(binary), chosen)):
            for finding in findings:
                count += 1
                print(f"{run.name}\n    {finding.strip()[:600]}")
    print(f"{len(chosen)} runs, {count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
