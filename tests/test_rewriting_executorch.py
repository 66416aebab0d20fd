"""Rewritten programs and ExecuTorch: its runtime runs them, and its reader reads them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cordbundle as cb

pytestmark = pytest.mark.executorch

if find_spec("executorch") is None or find_spec("torch") is None:
    pytest.skip("ExecuTorch and PyTorch are not installed", allow_module_level=True)

import numpy as np
import torch
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.extension.pybindings.portable_lib import _load_for_executorch as load_file
from executorch.extension.pybindings.portable_lib import (
    _load_for_executorch_from_buffer as load_bytes,
)

from tests.executorch_models import INPUTS, manager


def case(examples: Path, name: str) -> tuple[list[Any], Any]:
    """Return inputs and the first expected output of an example."""
    arrays = np.load(examples / f"{name}.npz")
    keys = [key for key in arrays if "inputs" in key and not key.startswith("1.")]
    image = [torch.from_numpy(arrays[key]) for key in keys[:1]]
    output = next(key for key in arrays if "outputs.0" in key)
    return image, torch.from_numpy(arrays[output])


def editor(data: Path | bytes) -> cb.PteEditor:
    return cb.PteEditor(cb.open(data))


def run(data: bytes | cb.Cord, inputs: Any) -> Any:
    """Run a program and return its first output; the runtime needs the bytes while it lives."""
    held = bytes(data)
    module = load_bytes(held)
    return module.forward(inputs)[0].clone()


def test_weights_moved_to_a_file_of_their_own_are_found_there(
    examples: Path, tmp_path: Path
) -> None:
    inputs, expected = case(examples, "conv_xnnpack")
    inputs = [inputs[0].to(memory_format=torch.channels_last)]
    with cb.open(examples / "conv_xnnpack.pte") as file:
        assert isinstance(file, cb.PteFile)
        edit, keys = cb.PteEditor(file), list(file.named_data)
    cb.write(cb.serialize_ptd(edit.move_out(keys)), tmp_path / "weights.ptd")
    alone = edit.finish()
    alone.write(tmp_path / "program.pte")

    module = load_file(str(tmp_path / "program.pte"), str(tmp_path / "weights.ptd"))
    (found,) = module.forward(inputs)

    assert len(alone) < (examples / "conv_xnnpack.pte").stat().st_size
    torch.testing.assert_close(found, expected)
    with pytest.raises(RuntimeError):
        load_file(str(tmp_path / "program.pte")).forward(inputs)


def test_weights_moved_back_into_the_program_are_found_there(examples: Path) -> None:
    inputs, expected = case(examples, "conv_xnnpack")
    inputs = [inputs[0].to(memory_format=torch.channels_last)]
    with cb.open(examples / "conv_xnnpack.pte") as file:
        assert isinstance(file, cb.PteFile)
        edit, keys = cb.PteEditor(file), list(file.named_data)
    weights = cb.serialize_ptd(edit.move_out(keys))
    back = cb.PteEditor(cb.open(edit.finish().cord))
    with cb.open(weights) as file:
        assert isinstance(file, cb.PtdFile)
        back.move_in(file)

    found = run(back.finish().cord, inputs)

    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("alignment", [4096, 16384])
@pytest.mark.parametrize("name", ["conv_xnnpack", "mlp"])
def test_a_program_with_raised_alignment_runs(examples: Path, alignment: int, name: str) -> None:
    inputs, expected = case(examples, "conv_xnnpack" if name == "conv_xnnpack" else "mlp-0")
    if name == "conv_xnnpack":
        inputs = [inputs[0].to(memory_format=torch.channels_last)]
    edit = editor(examples / f"{name}.pte")
    edit.align_segments(alignment)

    found = run(edit.finish().cord, inputs)

    torch.testing.assert_close(found, expected)


def test_replaced_constants_change_the_output_as_predicted(examples: Path) -> None:
    inputs, _ = case(examples, "mlp-0")
    logits = torch.tensor([0.0, 1.0, -2.0, 3.0])
    edit = editor(examples / "mlp.pte")
    sizes = edit._constant_sizes
    bias = next(index for index, size in sizes.items() if size == 16)
    matrix = next(index for index, size in sizes.items() if size == 4 * 16 * 4)
    edit.replace_constant(bias, logits)
    edit.replace_constant(matrix, torch.zeros(4, 16))

    found = run(edit.finish().cord, inputs)

    torch.testing.assert_close(found, torch.softmax(logits, 0)[None])


def test_a_payload_moved_from_the_metadata_to_a_segment_runs() -> None:
    data = manager("delegate").buffer  # exported with its payload inline
    edit = editor(data)
    edit.extract_delegates()
    found = edit.finish()

    output = run(found.cord, INPUTS["delegate"])

    torch.testing.assert_close(output, run(data, INPUTS["delegate"]))
    (delegate,) = cb.PteFile(found.cord, "new").methods["forward"].delegates
    assert delegate.segment is not None
    assert deserialize_pte_binary(bytes(found.cord)).program.backend_delegate_data


def test_executorchs_reader_reads_a_rewritten_program(examples: Path) -> None:
    edit = editor(examples / "conv_xnnpack.pte")
    edit.move_in({"tokenizer": b"t" * 1000})

    read = deserialize_pte_binary(bytes(edit.finish().cord))

    assert read.named_data is not None
    entry = read.named_data.pte_data["tokenizer"]
    assert bytes(read.named_data.buffers[entry.buffer_index]) == b"t" * 1000
