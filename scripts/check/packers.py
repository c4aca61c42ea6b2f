#!/usr/bin/env python3
"""Compares what quantised_weights.py writes with what the formats' own packers make of the same
numbers, byte by byte: of the matrices of golden fixtures, on the CPU.

    scripts/check/packers.py    # needs numpy, torch; of compressed-tensors, auto-gptq, gptqmodel,
                                # autoawq, auto-round and nvidia-modelopt those that are to be
                                # checked

Of auto-gptq, gptqmodel, autoawq and auto-round only the files that pack are loaded: their other
parts need a card. Not part of the tests; what was compared, with which versions,
tests/golden/README.md says.
"""

import importlib.metadata
import importlib.util
import pathlib
import sys
import types

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])  # scripts/
import needs

import numpy
import torch

from checkpoints import checkpoint_files, quantised_weights

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"


def find(package):
    """The folder of a package that is not imported."""
    return pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0])


def load(path, **stubs):
    """A module by its file; `stubs`: what it imports that is not to run."""
    for name, content in stubs.items():
        module = sys.modules[name.replace("__", ".")] = types.ModuleType(name)
        vars(module).update(content)
    spec = importlib.util.spec_from_file_location(path.stem + "_packer", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def linear(values):
    made = torch.nn.Linear(values.shape[1], values.shape[0], bias=False)
    made.weight.data = torch.from_numpy(values.astype(numpy.float32))
    return made


def same(ours, theirs):
    theirs = numpy.ascontiguousarray(theirs.numpy())
    return ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()


def gptq_matrices():
    """module -> (values, codes' tensors, scales and zero points [out, groups], g_idx)"""
    tensors = checkpoint_files.read_weights(GOLDEN / "qwen3-moe-gptq")
    for name in tensors:
        if name.endswith(".qweight"):
            module = name.removesuffix("qweight")
            own = {end: tensors[module + end] for end in ("qweight", "qzeros", "scales", "g_idx")}
            scales = own["scales"].astype(numpy.float32)
            zeros = quantised_weights.unpacked(own["qzeros"], scales.shape[1]) + 1
            yield quantised_weights.from_gptq(tensors, module), own, scales.T, zeros.T


def gptq_packer(make, ends=("qweight", "qzeros", "scales", "g_idx"), zeros_below=1):
    for values, own, scales, zeros in gptq_matrices():
        if zeros_below == 0:
            codes = quantised_weights.unpacked(own["qzeros"], scales.shape[0]) + 1
            own = {**own, "qzeros": quantised_weights.packed(codes)}
        layer = make(values, torch.from_numpy(scales.copy()),
                     torch.from_numpy(zeros.astype(numpy.float32)), torch.from_numpy(own["g_idx"]))
        yield all(same(own[end], getattr(layer, end)) for end in ends)


def auto_gptq():
    module = load(find("auto_gptq") / "nn_modules/qlinear/qlinear_cuda.py")

    def make(values, scales, zeros, group_of):
        layer = module.QuantLinear(4, 32, values.shape[1], values.shape[0], False)
        layer.pack(linear(values).half(), scales, zeros, group_of)
        layer.scales = layer.scales.half()
        return layer

    return gptq_packer(make)


def gptqmodel():
    """Keeps whole zero points, and takes 1 away when it writes a file of the old form."""
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear

    def make(values, scales, zeros, group_of):
        layer = TorchLinear(bits=4, group_size=32, sym=False, desc_act=True,
                            in_features=values.shape[1], out_features=values.shape[0], bias=False)
        layer.pack_original(linear(values), scales, zeros, group_of)
        return layer

    return gptq_packer(make, zeros_below=0)


def awq_packer(module):
    for values, codes, scales, zeros in int4_matrices(True):
        group = values.shape[1] // scales.shape[1]
        layer = module.WQLinear_GEMM.from_linear(
            linear(values), 4, group, scales=torch.from_numpy(scales.T.astype(numpy.float32)),
            zeros=torch.from_numpy(zeros.T.astype(numpy.float32)))
        yield all(same(quantised_weights.to_awq(ours), theirs)
                  for ours, theirs in ((codes, layer.qweight), (zeros, layer.qzeros)))


def autoawq():
    folder = find("awq")
    return awq_packer(load(
        folder / "modules/linear/gemm.py",
        awq={"__path__": []}, awq__utils={"__path__": []},
        awq__utils__module={"try_import": lambda name: (None, "")},
        awq__utils__utils={"get_best_device": lambda: "cpu"},
        awq__utils__packing_utils={"dequantize_gemm": None}))


def auto_round():
    folder = find("auto_round")
    bits = load(folder / "utils/bit_packing.py")
    return awq_packer(load(
        folder / "export/export_to_awq/utils.py",
        auto_round={"__path__": []},
        auto_round__utils={"__path__": [], "get_packing_device": lambda device: "cpu"},
        auto_round__utils__bit_packing=vars(bits)))


def int4_matrices(has_zeros):
    tensors = checkpoint_files.read_weights(GOLDEN / "qwen3_5-int4")
    for name in tensors:
        weight = name.removesuffix("_packed")
        if not name.endswith("weight_packed") or (weight + "_zero_point" in tensors) != has_zeros:
            continue
        rows, columns = tensors[weight + "_shape"]
        scales = quantised_weights.plain(tensors[weight + "_scale"])
        codes = quantised_weights.unpacked(tensors[name], columns)
        zeros = numpy.full(scales.shape, 8, numpy.uint32)
        if has_zeros:
            words = numpy.ascontiguousarray(tensors[weight + "_zero_point"].T)
            zeros = numpy.ascontiguousarray(quantised_weights.unpacked(words, rows).T)
        yield quantised_weights.from_int4(tensors, weight), codes, scales, zeros


def compressed_tensors():
    from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

    signed = lambda codes: torch.from_numpy((codes.astype(numpy.int32) - 8).astype(numpy.int8))
    for has_zeros in (False, True):
        for _, codes, _, zeros in int4_matrices(has_zeros):
            yield same(quantised_weights.packed(codes), pack_to_int32(signed(codes), 4))
            words = quantised_weights.packed(numpy.ascontiguousarray(zeros.T)).T
            yield same(numpy.ascontiguousarray(words), pack_to_int32(signed(zeros), 4, 0))
    for name, codes in checkpoint_files.read_weights(GOLDEN / "qwen3-moe-nvfp4").items():
        if codes.dtype == numpy.uint8 and name.endswith("weight"):
            halves = numpy.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)
            levels = quantised_weights.mxfp4_levels[halves]
            # Of its code 8 the level is 0 as well, which packs as 0 or 8 by its sign.
            levels = numpy.where(halves == 8, -0.0, levels)
            yield same(codes, pack_fp4_to_uint8(torch.from_numpy(levels).float()))


def modelopt():
    """The scales from the numbers that the fixture's codes stand for, and the codes from both."""
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor

    tensors = checkpoint_files.read_weights(GOLDEN / "qwen3-moe-nvfp4")
    for name in tensors:
        if not name.endswith("weight_scale_2"):
            continue
        weight = name.removesuffix("_scale_2")
        codes, scales, whole = tensors[weight], tensors[weight + "_scale"], tensors[name]
        values = quantised_weights.from_nvfp4(codes, scales, whole).astype(numpy.float32)
        of_groups, _ = NVFP4QTensor.get_weights_scaling_factor(
            torch.from_numpy(values), quantised_weights.nvfp4_group, torch.tensor(whole))
        yield same(scales, of_groups.view(torch.uint8))
        packed, _, _ = NVFP4QTensor.quantize(
            torch.from_numpy(values), quantised_weights.nvfp4_group, of_groups,
            torch.tensor(whole))
        yield same(codes, packed._quantized_data)


def main():
    failed = False
    for package, check in (("compressed-tensors", compressed_tensors), ("auto-gptq", auto_gptq),
                           ("gptqmodel", gptqmodel), ("autoawq", autoawq),
                           ("auto-round", auto_round), ("nvidia-modelopt", modelopt)):
        try:
            version = importlib.metadata.version(package)
            found = list(check())
        except (ImportError, importlib.metadata.PackageNotFoundError) as error:
            print(f"{package}: not checked: {error}")
            continue
        right = bool(found) and all(found)
        failed |= not right
        print(f"{package} {version}: {sum(found)} of {len(found)} the same")
    return failed


if __name__ == "__main__":
    sys.exit(main())
