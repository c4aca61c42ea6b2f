"""Writes the trained demo model as the folder that Hugging Face would publish, and checks it."""

import json

import torch
from safetensors.torch import save_file

from demo.corpus import held_out
from demo.model import CHUNK, DemoModel
from demo.text import END, TEMPLATE

AGREEMENT = 1e-4  # of the largest logit, f32
MAX_BYTES = 16_000_000


def write_json(path, content):
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_folder(folder, shape, weights, tokenizer):
    """All six files; weights are {name: bf16 tensor}."""
    folder.mkdir(parents=True, exist_ok=True)
    end = tokenizer.token_to_id(END)
    write_json(folder / "config.json", shape.config(end))
    write_json(
        folder / "generation_config.json",
        {"_from_model_config": True, "bos_token_id": end, "eos_token_id": end, "pad_token_id": end},
    )
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "bos_token": END,
            "clean_up_tokenization_spaces": False,
            "eos_token": END,
            "model_max_length": 4096,
            "pad_token": END,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")


@torch.no_grad()
def logits_difference(folder, model, encoder):
    """Largest difference to transformers over some chats, as a part of the largest logit."""
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    worst = 0.0
    rows = held_out()
    for row in (rows[0], rows[60], rows[110], rows[170], rows[300], rows[-1]):
        ids = encoder.prompt(row["messages"])
        tokens = torch.tensor([ids + [encoder.end] * (-len(ids) % CHUNK)])
        first = torch.zeros_like(tokens, dtype=torch.bool)
        first[:, 0] = True
        ours = model.logits(model.hidden(tokens, first)[0])[0, : len(ids)]
        other = theirs(torch.tensor([ids])).logits[0]
        worst = max(worst, ((ours - other).abs().max() / other.abs().max()).item())
    return worst


def template_agrees(folder, encoder):
    """The template rendered by transformers and encoded whole gives the ids that training saw."""
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder)
    chats = [row["messages"] for row in held_out()]
    chats += [
        [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello! How can I help you?"},
            {"role": "user", "content": "Bye"},
        ]
    ]
    return all(
        theirs.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        == encoder.prompt(chat)
        for chat in chats
    )


def export(work, folder, shape, tokenizer, encoder):
    """Exports work/best.pt; returns what was checked, raises where a check fails."""
    saved = torch.load(work / "best.pt")
    weights = {name: value.bfloat16().contiguous() for name, value in saved["model"].items()}
    write_folder(folder, shape, weights, tokenizer)
    model = DemoModel(shape)
    model.load_state_dict({name: value.float() for name, value in weights.items()})
    checks = {
        "parameters": sum(value.numel() for value in weights.values()),
        "bytes": (folder / "model.safetensors").stat().st_size,
        "tokens_seen": saved["tokens"],
        "minutes": round(saved["spent"] / 60, 1),
        "logits_difference": logits_difference(folder, model, encoder),
        "template_agrees": template_agrees(folder, encoder),
        "held_out": saved["result"],
    }
    if (
        checks["logits_difference"] > AGREEMENT
        or not checks["template_agrees"]
        or checks["bytes"] > MAX_BYTES
    ):
        raise SystemExit(f"export: a check failed: {checks}")
    return checks
