#!/usr/bin/python3
"""Checks tests/core/text/jinja/cases.jsonl against python3-jinja2.

A case is a line {"name", "template", "variables", "expected"}, or with "error": true in place of
"expected". "file" names a template in templates/, "scenario" a member of scenarios.json that holds
the variables. "mutable": true allows list.append and the like, which the environment of the
reference refuses and hyb allows.

  jinja_cases.py                    every expectation is what jinja2 renders
  jinja_cases.py --write            rewrite the expectations with what jinja2 renders
  jinja_cases.py --tool RENDER      the program render_lines renders them too
  jinja_cases.py --tool RENDER --fuzz N [--seed S]   N random templates, both engines compared
"""

import argparse
import copy
import datetime
import json
import pathlib
import subprocess
import sys
import warnings

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import jinja2
import jinja2.ext
import jinja2.sandbox

from fuzz import jinja_templates

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/core/text/jinja"
CASES = FOLDER / "cases.jsonl"
NOW = datetime.datetime(2025, 6, 15, 12, 30, 45)


class Generation(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %}, rendered as is in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_generation_support")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _generation_support(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def environment(mutable):
    sandbox = jinja2.sandbox
    kind = sandbox.SandboxedEnvironment if mutable else sandbox.ImmutableSandboxedEnvironment
    env = kind(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols],
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return env


ENVIRONMENTS = {mutable: environment(mutable) for mutable in (False, True)}


def reference(case):
    """What jinja2 renders, or None for an error."""
    try:
        env = ENVIRONMENTS[case.get("mutable", False)]
        # A copy: the indent filter of jinja2 changes lists that are passed to it.
        return env.from_string(case["template"]).render(**copy.deepcopy(case["variables"]))
    except Exception:  # every error of a template counts, whatever Python calls it
        return None


def rendered_by(tool, cases):
    lines = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases)
    done = subprocess.run([tool], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def lines():
    with CASES.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def resolved(case):
    """The case with its template and variables in it."""
    whole = dict(case)
    if "file" in case:
        whole["template"] = (FOLDER / "templates" / case["file"]).read_text(encoding="utf-8")
    if "scenario" in case:
        scenarios = json.loads((FOLDER / "scenarios.json").read_text(encoding="utf-8"))
        whole["variables"] = scenarios[case["scenario"]]
    whole.setdefault("variables", {})
    return whole


def write(cases):
    kept = []
    for case in cases:
        text = reference(resolved(case))
        line = {k: v for k, v in case.items() if k not in ("expected", "error")}
        line.update({"error": True} if text is None else {"expected": text})
        kept.append(json.dumps(line, ensure_ascii=False) + "\n")
    CASES.write_text("".join(kept), encoding="utf-8")


def report(name, template, wanted, got):
    print(f"{name}: {template[:300]!r}\n  wanted {wanted!r}\n  got    {got!r}")


def compare(cases, wanted, tool):
    failures = 0
    answers = rendered_by(tool, cases)
    if len(answers) != len(cases):
        sys.exit(f"{tool}: {len(answers)} answers to {len(cases)} cases")
    for case, text, answer in zip(cases, wanted, answers):
        if answer.get("text") != text and jinja_templates.is_comparable(text, answer):
            report(case.get("name", "fuzz"), case["template"], text, answer)
            failures += 1
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--tool")
    parser.add_argument("--fuzz", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)
    if options.fuzz:
        cases = jinja_templates.cases(options.fuzz, options.seed)
        wanted = [reference(case) for case in cases]
        failures = compare(cases, wanted, options.tool)
        errors = sum(text is None for text in wanted)
        print(f"{len(cases)} random templates ({errors} errors), {failures} differences")
        return 1 if failures else 0
    if options.write:
        write(lines())
    cases = [resolved(case) for case in lines()]
    failures = 0
    for case in cases:
        text = reference(case)
        if text != case.get("expected"):
            report(case["name"], case["template"], case.get("expected"), text)
            failures += 1
    if options.tool:
        failures += compare(cases, [case.get("expected") for case in cases], options.tool)
    print(f"{len(cases)} cases, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
