#!/usr/bin/env python3
"""Published models as GGUF files (scripts/checkpoints/real_models.py), run by the built binary.

    tests/app/real_models.py BINARY [--kills N] [--report FILE]

tests/golden/real_models.json has what transformers answers with the same files
(scripts/golden/make_real_models.py). Exit code 77, which ctest calls skipped: PyPI isn't reached.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(TOP / "scripts"))
from checkpoints import real_models  # noqa: E402

CLOSE = 1e-3  # log-probabilities in f32
TIE = 1e-3  # where the best two are nearer, either may come

failures = []


def check(holds, text):
    if not holds:
        failures.append(text)
        print(f"FAILED: {text}", flush=True)


class Tool:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, pathlib.Path(folder)
        self.environment = {**os.environ, "XDG_DATA_HOME": folder, "XDG_STATE_HOME": folder,
                            "XDG_CONFIG_HOME": folder}

    def start(self, *arguments, **options):
        return subprocess.Popen([self.binary, *map(str, arguments)], env=self.environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                                **options)

    def run(self, *arguments, text=""):
        process = self.start(*arguments, stdin=subprocess.PIPE)
        out, err = process.communicate(text)
        check(process.returncode == 0, f"{arguments} ends with {process.returncode}: {err}")
        return out, err

    def write(self, name, requests):
        path = self.folder / name
        path.write_text("".join(json.dumps(one) + "\n" for one in requests))
        return path


def size_of(path):
    return path.stat().st_size if path.exists() else 0


def results(path):
    """(id, response's body) of each line."""
    return [(line["custom_id"], line["response"]["body"])
            for line in map(json.loads, path.read_text().splitlines())]


def request(number, case, **body):
    body = {"max_tokens": 24, "temperature": 0, **body}
    if "chat" in case:
        body["messages"] = [{"role": "user", "content": case["chat"]}]
        url = "/v1/chat/completions"
        body.update({"logprobs": True, "top_logprobs": 1})
    else:
        body.update({"prompt": case["text"], "logprobs": 1})
        url = "/v1/completions"
    return {"custom_id": str(number), "method": "POST", "url": url, "body": body}


def compare(name, case, body):
    """Tokens and log-probabilities, up to a place where two tokens are as good as one another."""
    check(body["usage"]["prompt_tokens"] == len(case["prompt"]),
          f"{name} {case}: {body['usage']['prompt_tokens']} tokens of the prompt")
    content = body["choices"][0]["logprobs"]["content"]
    compared, worst = 0, 0.0
    for ours, token, logprob, gap in zip(content, case["tokens"], case["logprobs"], case["gaps"]):
        if ours["id"] != token:
            check(gap < TIE, f"{name} {case}: token {compared} is {ours}, gap {gap}")
            break
        worst = max(worst, abs(ours["logprob"] - logprob))
        compared += 1
    check(worst < CLOSE, f"{name} {case}: a log-probability is {worst} off")
    return compared, worst


def golden_answers(tool, name, path):
    """Of f32, and that the prompts have the same tokens."""
    cases = json.loads((TOP / "tests/golden/real_models.json").read_text())[name]["cases"]
    asked = tool.write("golden.jsonl", [request(i, case) for i, case in enumerate(cases)])
    out = tool.folder / f"{name}.out.jsonl"
    tool.run("batch", path, asked, "-o", out, "--dtype", "f32")
    found = [compare(name, cases[int(key)], body) for key, body in results(out)]
    check(len(found) == len(cases), f"{name}: {len(found)} results of {len(cases)}")
    for case in cases:
        text = case.get("text")
        if text is None:
            continue
        ids = [int(line.split("\t")[0])
               for line in tool.run("tokenize", path, "-p", text)[0].splitlines()]
        check(ids == case["prompt"][-len(ids):], f"{name}: {text!r} has the tokens {ids}")
    print(f"{name}: {sum(one[0] for one in found)} tokens as transformers', log-probabilities "
          f"within {max(one[1] for one in found):.1e}", flush=True)


def verified(tool, name, path):
    tool.run("verify", path, "-n", "4", "--prompts", "3", "--length", "160")
    print(f"{name}: verified", flush=True)


def killed_and_resumed(tool, path, prompts):
    """SIGKILL every few results: in the end one result for each line, the undisturbed one."""
    draw = random.Random(7)
    words = "sea stone river light winter bread music engine garden letter".split()
    asked = tool.write("killed.jsonl", [
        request(i, {"chat": f"Write one sentence about {words[i % 10]} and {words[i // 4 % 10]}, "
                            f"number {i}."}, max_tokens=16) for i in range(prompts)])
    whole, cut = tool.folder / "whole.jsonl", tool.folder / "cut.jsonl"
    tool.run("batch", path, asked, "-o", whole, "--parallel", "4")
    kills = 0
    while True:
        before = size_of(cut)
        process = tool.start("batch", path, asked, "-o", cut, "--parallel", "4")
        more = draw.randrange(1, 8000)
        while process.poll() is None and size_of(cut) < before + more:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode != -signal.SIGKILL:
            check(process.returncode == 0, f"a resumed batch ends with {process.returncode}")
            break
        kills += 1

    def texts(file):
        return sorted((int(key), body["choices"][0]["message"]["content"])
                      for key, body in results(file))
    check(kills > 1, f"only {kills} kills")
    check(len(texts(cut)) == prompts, f"{len(texts(cut))} results of {prompts}")
    check(texts(cut) == texts(whole), "results of a batch that was killed differ")
    print(f"{prompts} prompts: {kills} kills, the same results", flush=True)


def long_chat(tool, path):
    """12 turns with two that are taken back: no token that was known before is computed again, but
    for the last one of a prompt."""
    lines = [f"Tell me fact {i} about the sea." for i in range(1, 11)]
    lines[4:4] = ["What do you mean?", "/undo"]
    lines[9:9] = ["/set seed 7", "/regen"]
    lines += ["Thank you.", "Goodbye."]
    silent = ("/undo", "/set seed 7")  # a seed: a greedy answer is not given again without a change
    text = "".join(f"{line}\n" + ("" if line in silent else "/stats\n") for line in lines)
    _, err = tool.run("chat", path, "-n", "12", "--temp", "0", text=text)
    known = [tuple(map(int, one)) for one in re.findall(
        r"prompt +(\d+) tokens \((\d+) reused, (\d+) prefilled\)\n"
        r" +known before +(\d+) tokens \((\d+) not reused\)", err)]
    check(len(known) == 14, f"{len(known)} answers, not 14: {err}")
    check(known[-1][3] > 200, f"the last prompt knows {known[-1]}")
    for prompt, reused, prefilled, before, again in known:
        check(reused + prefilled == prompt and reused + again == before and again <= 1,
              f"a prompt of {prompt} tokens: {reused} reused of {before}, {prefilled} prefilled")
    print(f"chat of 12 turns: {sum(one[1] for one in known)} tokens reused, "
          f"{sum(one[2] for one in known)} prefilled, none twice", flush=True)


def ngram_drafts(tool, path):
    """Guesses from the text itself are accepted, and change nothing. Their number is given: else
    it follows from how long steps take, and a busy machine may end them after the first."""
    poem = " ".join(f"{i} green bottles hanging on the wall," for i in range(12, 5, -1))
    said = {spec: tool.run("run", path, "--raw", "-p", poem, "-n", "64", "--temp", "0", "-v",
                           "--spec", spec, *steps)
            for spec, steps in (("off", ()), ("ngram", ("--draft-steps", "3")))}
    check(said["off"][0] == said["ngram"][0], f"drafts change an answer: {said}")
    drafts = re.search(r"drafts (\d+) of (\d+) accepted", said["ngram"][1])
    check(drafts is not None and int(drafts[1]) > 16, f"no drafts accepted: {said['ngram'][1]}")
    if drafts:
        print(f"repeated text: {drafts[1]} of {drafts[2]} drafts accepted", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--kills", type=int, default=40, help="prompts of the batch that is killed")
    parser.add_argument("--report", type=pathlib.Path, help="gets the last line")
    options = parser.parse_args()
    start = time.monotonic()

    def conclude(text):
        print(text)
        if options.report:
            options.report.write_text(text + "\n", encoding="utf-8")

    try:
        paths = {name: real_models.find(name) for name in real_models.MODELS}
    except real_models.Unreachable as reason:
        conclude(f"real models: skipped: {reason}")
        return real_models.SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        tool = Tool(options.binary, folder)
        for name, path in paths.items():
            golden_answers(tool, name, path)
            verified(tool, name, path)
        small = paths["smollm2-135m-instruct"]
        killed_and_resumed(tool, small, options.kills)
        long_chat(tool, small)
        ngram_drafts(tool, paths["gemma-3-270m"])
    conclude(f"real models: {', '.join(paths)}: {len(failures)} failures, "
             f"{time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
