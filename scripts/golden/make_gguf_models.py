#!/usr/bin/env python3
"""tests/golden/NAME/model.gguf: what llama.cpp's own converter makes of a fixture's folder.

    pip install torch transformers sentencepiece
    scripts/golden/make_gguf_models.py --llama-cpp FOLDER [NAME...]  # no names: all of FIXTURES

FOLDER is llama.cpp's source, with convert_hf_to_gguf.py, conversion and gguf-py. Matrices keep the
type of the fixture, or are F32 where the converter computes with them: nothing is rounded. Fixtures
have no tokenizer that the converter knows: a made-up vocabulary takes its place.
"""

import argparse
import pathlib
import sys
import tempfile

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
# The smaller one of a family's fixtures where both show the same.
FIXTURES = [
    "cohere2", "gemma3n", "gemma4-moe", "gemma4-shared", "granite-swa-moe", "llama4-odd",
    "ministral3",
    "falcon-h1-groups", "gemma2-odd", "gemma3-odd", "gpt-oss", "granite-attention-moe",
    "granite-groups", "granite-llama", "granite-moe-rope-untied", "lfm2-dense", "lfm2-moe",
    "llama-3", "llama-old", "mellum-yarn", "nemotron-grouped", "nemotron-latent", "nemotron-moe",
    "qwen2", "qwen3-dense", "qwen3-moe", "qwen3-moe-nvfp4", "qwen3-next-odd", "qwen3_5-dense",
    "qwen3_5-moe", "qwen3_5-moe-text", "falcon-mamba", "jamba", "kimi-linear", "mamba", "mamba2",
    "minimax-text", "smollm3"]


def byte_alphabet():
    """GPT-2's characters for the bytes, letters first."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in plain] + [chr(256 + n) for n in range(256 - len(plain))]


def made_up_vocabulary(model):
    size = model.hparams["vocab_size"]
    bytes_ = byte_alphabet()[:size - 2]
    others = [f"<|unused_{n}|>" for n in range(size - 2 - len(bytes_))]
    writer = model.gguf_writer
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*bytes_, *others, "ab", "<|endoftext|>"])
    writer.add_token_types([1] * len(bytes_) + [3] * len(others) + [1, 3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(size - 1)


def outtype(config, gguf):
    config = config.get("text_config", config)
    if config["model_type"] == "falcon_h1":  # its factors go into the weights
        return gguf.LlamaFileType.ALL_F32
    is_half = config.get("dtype", config.get("torch_dtype")) == "float16"
    return gguf.LlamaFileType.MOSTLY_F16 if is_half else gguf.LlamaFileType.MOSTLY_BF16


def made_up_rows(model):
    """What Gemma's classes count the rows of the embedding by."""
    size = model.hparams["vocab_size"]
    return [b""] * size, [0.0] * size, [1] * size


def convert(folder, target):
    import conversion
    import gguf
    import torch
    from conversion.base import ModelBase, ModelType, get_model_architecture
    hparams = ModelBase.load_hparams(folder, False)
    kind = conversion.get_model_class(get_model_architecture(hparams, ModelType.TEXT))
    kind = getattr(kind, "Ministral3Model", kind)  # Mistral 3's is one around it
    own = type(kind.__name__, (kind,), {"model_arch": kind.model_arch,
                                        "set_vocab": made_up_vocabulary,
                                        "_get_suppress_tokens": lambda model: None,
                                        "_create_vocab_sentencepiece": made_up_rows})
    with torch.inference_mode(), tempfile.TemporaryDirectory() as parent:
        seen = pathlib.Path(parent) / folder.name  # its name goes into the file
        seen.mkdir()
        for path in [*folder.glob("*config.json"), *folder.glob("model*.safetensors")]:
            (seen / path.name).symlink_to(path)
        if hparams["model_type"].startswith("gemma"):
            (seen / "tokenizer.model").touch()  # whose rows they count
        model = own(seen, outtype(hparams, gguf), target)
        if "mamba_head_dim" in hparams:  # Nemotron's class checks by another's key only
            model.hparams["mamba_d_head"] = hparams["mamba_head_dim"]
        if hparams["model_type"] == "cohere2":  # as published ones say
            model.hparams["rotary_pct"] = 1.0
        model.write()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama-cpp", required=True, type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, help="a folder for NAME.gguf instead")
    parser.add_argument("names", nargs="*", default=FIXTURES)
    options = parser.parse_args()
    sys.path[:0] = [str(options.llama_cpp), str(options.llama_cpp / "gguf-py")]
    failed = []
    for name in options.names:
        target = GOLDEN / name / "model.gguf"
        if options.out:
            target = options.out / f"{name}.gguf"
        try:
            convert(GOLDEN / name, target)
            print(f"{name}: {target.stat().st_size} bytes", flush=True)
        except Exception as error:  # noqa: BLE001 - the converter raises anything
            target.unlink(missing_ok=True)
            failed.append(name)
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
