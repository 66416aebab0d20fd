"""The command line: words in, exit codes, lines and files out."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.cli import main
from cordbundle.flatbuffer import encode

pytest.importorskip("typer", reason="the command line needs the extra cli")
pytest.importorskip("rich", reason="the command line needs the extra cli")
np = pytest.importorskip("numpy", reason="the tests write their case files with NumPy")

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX terminals or signals")


@dataclass(frozen=True)
class Outcome:
    """What a call of the command line left behind."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one error line; fails if there is more, or less, on standard error."""
        lines = [line for line in self.err.splitlines() if ": note: " not in line]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("cordbundle: error: ")
        return lines[0]


Call = Callable[..., Outcome]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Return a function that calls the command line in this process."""

    def caller(*words: str | Path) -> Outcome:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return caller


def process(*words: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Call the command line as a process of its own."""
    command = [sys.executable, "-m", "cordbundle", *map(str, words)]
    return subprocess.run(command, capture_output=True, check=False)


@pytest.fixture
def model(tmp_path: Path, examples: Path) -> Path:
    """Return a program with one method, in a folder of its own."""
    return Path(shutil.copy(examples / "mlp.pte", tmp_path))


@pytest.fixture
def case(examples: Path) -> Path:
    """Return a case for `model`."""
    return examples / "mlp-0.npz"


def bundled(call: Call, model: Path, *words: str | Path) -> Path:
    """Bundle `model` and return the path of the bundle."""
    out = model.with_suffix(".bpte")
    outcome = call("bundle", model, *words, "-o", out)
    assert outcome.code == 0, outcome.err
    return out


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# bundle


def test_bundle_writes_beside_the_model_and_says_what(
    call: Call, model: Path, examples: Path
) -> None:
    cases = sorted(examples.glob("mlp-*.npz"))

    outcome = call("bundle", model, *cases)

    written = model.with_suffix(".bpte")
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.out.splitlines()[:2] == [
        f"wrote {written}: 7.2 KiB, form bp08",
        "  forward: 3 cases",
    ]
    with cb.open(written) as bundle:
        assert isinstance(bundle, cb.BundleFile)
        assert bundle.program == model.read_bytes()
        assert [len(suite.test_cases) for suite in bundle.suites] == [3]
        assert bundle.verify() == []


def test_cases_may_be_named_by_the_option_too(
    call: Call, model: Path, examples: Path, tmp_path: Path
) -> None:
    first, second, third = sorted(examples.glob("mlp-*.npz"))

    call("bundle", model, first, second, third, "-o", tmp_path / "a")
    call("bundle", model, first, "--cases", second, "--cases", third, "-o", tmp_path / "b")

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_bundle_streams_to_standard_output(call: Call, model: Path, case: Path) -> None:
    written = bundled(call, model, case)

    streamed = process("bundle", model, case, "-o", "-")

    assert streamed.returncode == 0
    assert streamed.stdout == written.read_bytes()
    assert streamed.stderr.startswith(b"wrote standard output: 7.2 KiB, form bp08\n")


@posix
def test_binary_data_does_not_go_to_a_terminal(model: Path, case: Path) -> None:
    code, screen = on_terminal("bundle", model, case, "-o", "-")

    assert code == 2
    assert screen.startswith("cordbundle: error: binary data does not go to a terminal")


def test_dry_run_prints_the_layout_and_writes_nothing(
    call: Call, model: Path, case: Path, tmp_path: Path
) -> None:
    before = files(tmp_path)

    outcome = call("bundle", model, case, "--dry-run")

    assert outcome.code == 0
    assert files(tmp_path) == before
    lines = outcome.out.splitlines()
    assert lines[0].split() == ["offset", "size", "align", "padding", "name"]
    offset, size, alignment, _padding, name = lines[2].split()
    assert (offset, size, alignment, name) == ("4096", str(model.stat().st_size), "4096", "program")


def test_dry_run_as_json_is_the_layout(call: Call, model: Path, case: Path) -> None:
    written = bundled(call, model, case)

    layout = json.loads(call("bundle", model, case, "--dry-run", "--json").out)

    assert layout["size"] == written.stat().st_size
    assert layout["segments"][0] == {
        "name": "program",
        "offset": 4096,
        "size": model.stat().st_size,
        "alignment": 4096,
        "padding": 4096 - 4 - layout["head_size"],
        "length_prefix": True,
    }


def test_a_bundle_without_cases_is_made_and_said_to_have_none(call: Call, model: Path) -> None:
    outcome = call("bundle", model)

    assert outcome.code == 0
    assert outcome.err == "cordbundle: note: no case files: the bundle has no test suites\n"
    with cb.open(model.with_suffix(".bpte")) as bundle:
        assert isinstance(bundle, cb.BundleFile)
        assert bundle.suites == ()


def test_notes_of_the_bundle_are_printed(call: Call, tmp_path: Path, examples: Path) -> None:
    outcome = call(
        "bundle",
        examples / "conv_xnnpack.pte",
        examples / "conv_xnnpack.npz",
        *("-o", tmp_path / "out.bpte"),
    )

    assert outcome.code == 0
    assert outcome.err.splitlines()[0] == (
        "cordbundle: note: method 'forward', case 0, input 0: stored in dim order [0, 2, 3, 1],"
        " the method's, instead of [0, 1, 2, 3]"
    )


def test_cases_without_a_method_go_to_forward_or_have_to_be_told(
    call: Call, tmp_path: Path, examples: Path
) -> None:
    model = shutil.copy(examples / "two_methods.pte", tmp_path)
    case = tmp_path / "case.npz"
    np.savez(case, **{"inputs.0": np.arange(5)})

    untold = call("bundle", model, case)
    told = call("bundle", model, case, "--method", "decode")

    assert untold.code == 2
    assert "which method are the cases for?" in untold.error
    assert "'encode'" in untold.error
    assert "'decode'" in untold.error
    assert told.code == 0
    assert "  decode: 1 case" in told.out.splitlines()


def test_a_misspelled_method_is_refused_with_the_right_names(
    call: Call, model: Path, case: Path, tmp_path: Path
) -> None:
    prefixed = tmp_path / "prefixed.npz"
    with np.load(case) as arrays:
        np.savez(prefixed, **{f"fowrard.0.{key}": array for key, array in arrays.items()})

    by_option = call("bundle", model, case, "--method", "fowrard")
    by_key = call("bundle", model, prefixed)

    assert by_option.code == 2
    assert by_option.error.endswith("the program has no method 'fowrard'; it has 'forward'")
    assert by_key.code == 1
    assert "no method 'fowrard'" in by_key.error
    assert "'forward'" in by_key.error
    assert not model.with_suffix(".bpte").exists()


def test_a_method_for_cases_that_name_theirs_is_refused(
    call: Call, tmp_path: Path, examples: Path
) -> None:
    outcome = call(
        "bundle",
        examples / "dynamic.pte",
        examples / "dynamic.npz",
        *("--method", "forward", "-o", tmp_path / "out"),
    )

    assert outcome.code == 2
    assert "all of these do" in outcome.error


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (bytes(30), "zeros"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "an HTML page"),
    ],
)
@pytest.mark.parametrize("verb", ["bundle", "inspect", "verify"])
def test_what_is_no_program_is_refused_by_what_it_is(
    call: Call, tmp_path: Path, case: Path, content: bytes, words: str, verb: str
) -> None:
    model = tmp_path / "model.pte"
    model.write_bytes(content)

    outcome = call(verb, model, *([case] if verb == "bundle" else []))

    assert outcome.code == 1
    assert outcome.out == ""
    assert str(model) in outcome.error
    assert words in outcome.error
    assert not model.with_suffix(".bpte").exists()


def test_a_bundle_given_as_a_program_is_refused(
    call: Call, model: Path, case: Path, tmp_path: Path
) -> None:
    bundle = bundled(call, model, case).rename(tmp_path / "renamed.pte")

    outcome = call("bundle", bundle, case)

    assert outcome.code == 1
    assert "bundled program (.bpte)" in outcome.error


def test_a_missing_file_is_named(call: Call, tmp_path: Path) -> None:
    outcome = call("inspect", tmp_path / "no.pte")

    assert outcome.code == 1
    assert outcome.error == f"cordbundle: error: {tmp_path / 'no.pte'}: No such file or directory"


def test_a_case_that_does_not_fit_is_refused_by_method_case_and_input(
    call: Call, model: Path, tmp_path: Path
) -> None:
    case = tmp_path / "case.npz"
    np.savez(case, **{"inputs.0": np.zeros((1, 9), np.float32)})

    outcome = call("bundle", model, case)

    assert outcome.code == 1
    assert "method 'forward', case 0, input 0: another shape" in outcome.error
    assert not model.with_suffix(".bpte").exists()


def test_without_the_check_a_case_is_stored_as_given(
    call: Call, model: Path, tmp_path: Path
) -> None:
    case = tmp_path / "case.npz"
    np.savez(case, **{"inputs.0": np.zeros((1, 9), np.float32)})

    outcome = call("bundle", model, case, "--no-check")

    assert outcome.code == 0
    with cb.open(model.with_suffix(".bpte")) as bundle:
        assert isinstance(bundle, cb.BundleFile)
        value = bundle.suites[0].test_cases[0].inputs[0]
        assert isinstance(value, cb.TensorView)
        assert value.sizes == (1, 9)


@pytest.mark.parametrize("which", ["model", "case", "named"])
def test_an_input_is_never_overwritten(
    call: Call, model: Path, case: Path, tmp_path: Path, which: str
) -> None:
    own_case = Path(shutil.copy(case, tmp_path))
    blob = tmp_path / "blob"
    blob.write_bytes(b"blob")
    out = {"model": model, "case": own_case, "named": blob}[which]
    before = files(tmp_path)

    outcome = call("bundle", model, own_case, "--named", f"key={blob}", "-o", out)

    assert outcome.code == 2
    assert outcome.error.endswith(f"{out} would be overwritten and is an input")
    assert files(tmp_path) == before


def test_a_0d_entry_is_a_scalar_where_the_method_takes_one(
    call: Call, tmp_path: Path, examples: Path
) -> None:
    out = tmp_path / "out.bpte"

    outcome = call("bundle", examples / "scalars.pte", examples / "scalars.npz", "-o", out)

    assert outcome.code == 0
    with cb.open(out) as bundle:
        assert isinstance(bundle, cb.BundleFile)
        for case in bundle.suites[0].test_cases:
            assert [(type(value), value) for value in case.inputs[1:]] == [
                (int, 3),
                (bool, True),
                (float, 0.5),
            ]


def test_named_data_goes_in_and_comes_out(
    call: Call, model: Path, case: Path, tmp_path: Path
) -> None:
    blob = tmp_path / "tokenizer"
    blob.write_bytes(b"a=b\n" * 5000)
    bundle = bundled(call, model, case, "--named", f"../tokenizer.model={blob}")
    folder = tmp_path / "folder"
    folder.mkdir()

    outcome = call("extract", bundle, "--named", "../tokenizer.model", folder / "out")

    assert outcome.code == 0
    assert files(folder) == {"out": blob.read_bytes()}


@pytest.mark.parametrize("word", ["key", "=path", "key="])
def test_named_data_without_key_or_path_is_wrong_usage(call: Call, model: Path, word: str) -> None:
    outcome = call("bundle", model, "--named", word)

    assert outcome.code == 2
    assert "is not KEY=PATH" in outcome.error


def test_named_data_with_one_key_twice_is_wrong_usage(call: Call, model: Path, case: Path) -> None:
    outcome = call("bundle", model, "--named", f"k={case}", "--named", f"k={case}")

    assert outcome.code == 2
    assert "twice" in outcome.error


def test_alignment_and_digests_are_as_asked(call: Call, model: Path, case: Path) -> None:
    bundle = bundled(call, model, case, "--alignment", "65536", "--no-digest")

    facts = json.loads(call("inspect", bundle, "--json").out)

    assert facts["segments"] == [{"offset": 65536, "size": model.stat().st_size}]
    assert facts["digests"] == {"metadata": False, "segments": 0}


@pytest.mark.parametrize("alignment", ["100", "8", "0"])
def test_an_alignment_that_cannot_be_is_wrong_usage(
    call: Call, model: Path, case: Path, alignment: str
) -> None:
    outcome = call("bundle", model, case, "--alignment", alignment)

    assert outcome.code == 2
    assert "a power of two" in outcome.error


def test_an_unknown_form_is_wrong_usage(call: Call, model: Path) -> None:
    outcome = call("bundle", model, "--form", "zip")

    assert outcome.code == 2
    assert "segmented" in outcome.error


# extract


@pytest.mark.parametrize("form", ["bp08", "segmented"])
def test_the_program_comes_out_as_it_went_in(
    call: Call, model: Path, case: Path, tmp_path: Path, form: str
) -> None:
    bundle = bundled(call, model, case, "--form", form)

    outcome = call("extract", bundle, "--program", tmp_path / "out.pte")
    streamed = process("extract", bundle, "--program", "-")

    assert outcome.code == 0
    assert (tmp_path / "out.pte").read_bytes() == model.read_bytes()
    assert (streamed.returncode, streamed.stdout) == (0, model.read_bytes())


def test_a_detached_bundle_has_no_program_to_give(
    call: Call, model: Path, case: Path, tmp_path: Path
) -> None:
    bundle = bundled(call, model, case, "--form", "detached")

    outcome = call("extract", bundle, "--program", tmp_path / "out.pte")

    assert outcome.code == 1
    assert "holds no program" in outcome.error
    assert not (tmp_path / "out.pte").exists()


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("name", ["mlp", "scalars", "dynamic"])
def test_a_case_comes_out_as_a_file_that_bundles_the_same(
    call: Call, tmp_path: Path, examples: Path, name: str, suffix: str
) -> None:
    model = Path(shutil.copy(examples / f"{name}.pte", tmp_path))
    cases = sorted(examples.glob(f"{name}*.npz"))
    bundle = bundled(call, model, *cases)
    with cb.open(bundle) as file:
        assert isinstance(file, cb.BundleFile)
        count = len(file.suites[0].test_cases)
    outs = [tmp_path / f"{number}{suffix}" for number in range(count)]

    codes = [
        call("extract", bundle, "--case", f"forward/{number}", out).code
        for number, out in enumerate(outs)
    ]
    before = bundle.read_bytes()

    assert codes == [0] * count
    assert bundled(call, model, *outs).read_bytes() == before


def test_an_extracted_npz_is_numpys_own_format(
    call: Call, model: Path, case: Path, tmp_path: Path
) -> None:
    bundle = bundled(call, model, case)
    out = tmp_path / "out.npz"

    call("extract", bundle, "--case", "forward/0", out)

    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None
    with np.load(out) as found, np.load(case) as wanted:
        assert list(found) == list(wanted) == ["inputs.0", "outputs.0"]
        for key in wanted:
            assert found[key].dtype == wanted[key].dtype
            assert found[key].tobytes() == wanted[key].tobytes()
    streamed = process("extract", bundle, "--case", "forward/0", "-")
    assert streamed.stdout == out.read_bytes()


def test_a_channels_last_case_comes_out_row_major(
    call: Call, tmp_path: Path, examples: Path
) -> None:
    model = Path(shutil.copy(examples / "conv_xnnpack.pte", tmp_path))
    bundle = bundled(call, model, examples / "conv_xnnpack.npz")
    out = tmp_path / "out.npz"

    call("extract", bundle, "--case", "forward/1", out)

    with np.load(out) as found, np.load(examples / "conv_xnnpack.npz") as wanted:
        assert found["inputs.0"].flags.c_contiguous
        np.testing.assert_array_equal(found["inputs.0"], wanted["forward.1.inputs.0"])


def test_bfloat16_comes_out_as_safetensors_only(call: Call, tmp_path: Path, examples: Path) -> None:
    model = Path(shutil.copy(examples / "two_methods.pte", tmp_path))
    bundle = bundled(call, model, examples / "two_methods.safetensors")

    refused = call("extract", bundle, "--case", "encode/0", tmp_path / "out.npz")
    taken = call("extract", bundle, "--case", "encode/0", tmp_path / "out.safetensors")

    assert refused.code == 1
    assert refused.error.endswith(
        "inputs.0: .npz has no type for BFLOAT16; name a .safetensors file instead"
    )
    assert not (tmp_path / "out.npz").exists()
    assert taken.code == 0
    length = int.from_bytes((tmp_path / "out.safetensors").read_bytes()[:8], "little")
    header = json.loads((tmp_path / "out.safetensors").read_bytes()[8 : 8 + length])
    assert header["inputs.0"] == {"dtype": "BF16", "shape": [5, 4], "data_offsets": [0, 40]}


def test_a_method_name_may_hold_slashes(call: Call, model: Path, tmp_path: Path) -> None:
    suite = cb.MethodTestSuite("a/0/b", [cb.MethodTestCase([7])])
    cb.bundle(model, [suite], check=False).write(tmp_path / "slash.bpte")

    outcome = call("extract", tmp_path / "slash.bpte", "--case", "a/0/b/0", tmp_path / "out.npz")

    assert outcome.code == 0
    with np.load(tmp_path / "out.npz") as found:
        assert found["inputs.0"] == np.int64(7)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("forward", "is not METHOD/INDEX"),
        ("forward/x", "is not METHOD/INDEX"),
        ("forward/-1", "is not METHOD/INDEX"),
        ("forward/1", "has no case 1; it has 1"),
        ("backward/0", "has no cases for 'backward'; it has 'forward'"),
    ],
)
def test_a_case_that_is_not_there_is_wrong_usage(
    call: Call, model: Path, case: Path, tmp_path: Path, name: str, words: str
) -> None:
    bundle = bundled(call, model, case)

    outcome = call("extract", bundle, "--case", name, tmp_path / "out.npz")

    assert outcome.code == 2
    assert words in outcome.error


def test_extract_takes_exactly_one_thing(call: Call, model: Path, case: Path) -> None:
    bundle = bundled(call, model, case)

    assert call("extract", bundle).code == 2
    assert call("extract", bundle, "--program", "a", "--named", "k", "b").code == 2


def test_extract_never_overwrites_its_bundle(call: Call, model: Path, case: Path) -> None:
    bundle = bundled(call, model, case)
    before = bundle.read_bytes()

    outcome = call("extract", bundle, "--program", bundle)

    assert outcome.code == 2
    assert bundle.read_bytes() == before


def test_extract_names_the_keys_that_there_are(call: Call, model: Path, case: Path) -> None:
    bundle = bundled(call, model, case, "--named", f"b={case}", "--named", f"a={model}")

    outcome = call("extract", bundle, "--named", "c", "out")

    assert outcome.code == 2
    assert outcome.error.endswith("has no key 'c'; it has 'a', 'b'")


def test_extract_wants_a_bundle(call: Call, model: Path, tmp_path: Path) -> None:
    outcome = call("extract", model, "--program", tmp_path / "out")

    assert outcome.code == 1
    assert outcome.error.endswith(
        "no bundle: found ExecuTorch program (.pte), expected a bundled program (.bpte)"
    )


# verify


def test_verify_finds_a_sound_bundle_sound_and_says_what_it_covered(
    call: Call, model: Path, case: Path
) -> None:
    bundle = bundled(call, model, case)

    outcome = call("verify", bundle)

    assert outcome.code == 0
    assert outcome.out == (
        f"{bundle}: sound (structure checked; recomputed: xxh3-128 of the metadata and 1 segment)\n"
    )


def test_verify_walks_the_structure_of_a_sound_file_once(
    call: Call, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[cb.PteFile] = []
    real = cb.PteFile._flatbuffer_findings

    def findings(file: cb.PteFile) -> list[cb.Finding]:
        walked.append(file)
        return real(file)

    monkeypatch.setattr(cb.PteFile, "_flatbuffer_findings", findings)

    assert call("verify", model).code == 0
    assert len(walked) == 1


def test_verify_finds_flipped_bytes_and_says_where(call: Call, model: Path, case: Path) -> None:
    bundle = bundled(call, model, case)
    content = bytearray(bundle.read_bytes())
    content[-1] ^= 1
    bundle.write_bytes(content)

    outcome = call("verify", bundle)

    *findings, last = outcome.out.splitlines()
    assert outcome.code == 1
    assert len(findings) == 1
    assert findings[0].startswith("offset 4096: ")
    assert last.startswith(f"{bundle}: 1 finding (")


def test_verify_says_what_it_could_not_check(call: Call, model: Path, case: Path) -> None:
    bundle = bundled(call, model, case)
    content = bytearray(bundle.read_bytes())
    content[72:4000] = b"\xff" * (4000 - 72)
    bundle.write_bytes(content)

    outcome = call("verify", bundle)

    *findings, last = outcome.out.splitlines()
    assert outcome.code == 1
    assert "xxh3-128 of header and metadata" in findings[0]
    assert last.endswith(" findings (structure is damaged; what it leads to could not be checked)")


def test_verify_says_when_it_stopped(call: Call, tmp_path: Path) -> None:
    plans = [schema.ExecutionPlan(f"f{number}", values=[]) for number in range(1000)]
    path = tmp_path / "model.pte"
    path.write_bytes(bytes(encode(schema.Program(execution_plan=plans), b"ET12").cord))

    outcome = call("verify", path)

    *findings, last = outcome.out.splitlines()
    assert outcome.code == 1
    assert len(findings) == 1000
    assert last == f"{path}: 1000 findings or more; the check stopped"


def test_verify_says_when_there_are_no_digests(call: Call, model: Path, case: Path) -> None:
    bundle = bundled(call, model, case, "--no-digest")

    assert call("verify", bundle).out.endswith("the file holds no digests)\n")
    assert call("verify", model).out.endswith("the format holds no digests)\n")


def test_verify_finds_public_files_sound(call: Call, real_files: Path) -> None:
    paths = [path for path in real_files.iterdir() if path.suffix in (".pte", ".bpte", ".bp")]

    codes = {path.name: call("verify", path).code for path in paths}

    assert codes == {path.name: 0 for path in paths}


# inspect


def test_inspect_describes_a_program_as_json(call: Call, model: Path) -> None:
    facts = json.loads(call("inspect", model, "--json").out)

    assert facts["file"] == str(model)
    assert facts["identifier"] == "ET12"
    assert facts["size"] == model.stat().st_size
    assert facts["header"]["length"] == 32
    assert list(facts) == [
        *("file", "kind", "identifier", "size", "header"),
        *("methods", "segments", "named_data"),
    ]
    assert facts["methods"] == [
        {
            "name": "forward",
            "inputs": [
                {
                    "type": "tensor",
                    "scalar_type": "FLOAT",
                    "sizes": [1, 8],
                    "dim_order": [0, 1],
                    "dynamism": "static",
                    "size": 32,
                }
            ],
            "outputs": [
                {
                    "type": "tensor",
                    "scalar_type": "FLOAT",
                    "sizes": [1, 4],
                    "dim_order": [0, 1],
                    "dynamism": "static",
                    "size": 16,
                }
            ],
            "operators": [
                "aten::permute_copy.out",
                "aten::addmm.out",
                "aten::relu.out",
                "aten::_softmax.out",
            ],
            "delegates": [],
        }
    ]


def test_inspect_describes_a_bundle_as_json(call: Call, model: Path, case: Path) -> None:
    bundle = bundled(call, model, case, "--named", f"notes={case}")

    facts = json.loads(call("inspect", bundle, "--json").out)

    assert facts["identifier"] == "BP08"
    assert facts["form"] == "bp08"
    assert facts["suites"] == [
        {
            "method": "forward",
            "cases": [
                {
                    "inputs": [
                        {
                            "type": "tensor",
                            "scalar_type": "FLOAT",
                            "sizes": [1, 8],
                            "dim_order": [0, 1],
                            "size": 32,
                        }
                    ],
                    "expected_outputs": [
                        {
                            "type": "tensor",
                            "scalar_type": "FLOAT",
                            "sizes": [1, 4],
                            "dim_order": [0, 1],
                            "size": 16,
                        }
                    ],
                }
            ],
        }
    ]
    assert facts["program"]["size"] == model.stat().st_size
    assert facts["program"]["methods"][0]["name"] == "forward"
    assert facts["named_data"] == [{"key": "notes", "size": case.stat().st_size}]
    assert facts["digests"] == {"metadata": True, "segments": 2}


def test_inspect_describes_weights_as_json(call: Call, real_files: Path) -> None:
    facts = json.loads(call("inspect", real_files / "xor.ptd", "--json").out)

    assert facts["identifier"] == "FT01"
    assert {blob["key"]: blob["sizes"] for blob in facts["named_data"]} == {
        "net.linear.bias": [10],
        "net.linear.weight": [10, 2],
        "net.linear2.bias": [2],
        "net.linear2.weight": [2, 10],
    }


def test_numbers_that_json_lacks_are_strings(call: Call, model: Path, tmp_path: Path) -> None:
    case = cb.MethodTestCase([float("inf"), float("nan"), 1.5, True])
    bundle = tmp_path / "scalars.bpte"
    cb.bundle(model, [cb.MethodTestSuite("forward", [case])], check=False).write(bundle)

    facts = json.loads(call("inspect", bundle, "--json").out)

    assert facts["suites"][0]["cases"][0]["inputs"] == [
        {"type": "float", "value": "inf"},
        {"type": "float", "value": "nan"},
        {"type": "float", "value": 1.5},
        {"type": "bool", "value": True},
    ]


def test_inspect_in_a_pipe_is_plain_text(call: Call, model: Path, examples: Path) -> None:
    bundle = bundled(call, model, *sorted(examples.glob("mlp-*.npz")))

    out = call("inspect", bundle).out

    assert "\x1b" not in out
    assert "\nsuite forward: 3 cases\n" in out
    assert "\n     2  FLOAT [1, 8]  FLOAT [1, 4]      48 bytes\n" in out


def test_dynamic_shapes_show_their_bound(call: Call, examples: Path) -> None:
    out = call("inspect", examples / "dynamic.pte").out

    assert "FLOAT [≤8, ≤6] bound" in out


def test_every_public_file_is_described(call: Call, real_files: Path) -> None:
    paths = [p for p in real_files.iterdir() if p.suffix != ".md" and "old_schema" not in p.name]

    for path in paths:
        outcome = call("inspect", path)
        assert outcome.code == 0, outcome.err
        assert outcome.out.startswith(f"{path}: ")


def test_names_from_a_file_cannot_steer_the_terminal(
    call: Call, model: Path, tmp_path: Path
) -> None:
    suite = cb.MethodTestSuite("\x1b[2J\nforged [red]", [cb.MethodTestCase([1])])
    bundle = tmp_path / "evil.bpte"
    cb.bundle(model, [suite], check=False).write(bundle)

    out = call("inspect", bundle).out

    assert "\x1b" not in out
    assert "suite \\x1b[2J\\nforged [red]: 1 case\n" in out


def test_a_damaged_program_leaves_the_rest_of_a_bundle_readable(
    call: Call, model: Path, tmp_path: Path
) -> None:
    program = model.read_bytes()[:4] + b"ET99" + model.read_bytes()[8:]
    bundle = tmp_path / "damaged.bpte"
    cb.bundle(model, [], digest=False).write(bundle)
    bundle.write_bytes(bundle.read_bytes().replace(model.read_bytes(), program))

    facts = json.loads(call("inspect", bundle, "--json").out)
    out = call("inspect", bundle).out

    assert facts["program"]["size"] == len(program)
    assert "unknown version" in facts["program"]["error"]
    assert "unknown version" in out


# the frame


def test_without_words_the_help_is_printed(call: Call) -> None:
    outcome = call()

    assert outcome.code == 2
    assert all(verb in outcome.out for verb in ("bundle", "inspect", "extract", "verify", "run"))


def test_help_is_no_error(call: Call) -> None:
    assert call("--help").code == 0
    outcome = call("bundle", "--help")
    assert outcome.code == 0
    assert "--no-digest" in outcome.out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["bundel"], "No such command 'bundel'"),
        (["bundle"], "Missing argument 'MODEL.pte'"),
        (["inspect", "a", "--jsn"], "No such option"),
        (["bundle", "a", "--alignment", "x"], "--alignment"),
        (["bundle", "a", "--json"], "--json goes with --dry-run"),
        (["bundle", "a", "--method", "m"], "--method goes with case files"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(call: Call, words: list[str], text: str) -> None:
    outcome = call(*words)

    assert outcome.code == 2
    assert outcome.out == ""
    assert text in outcome.error


def test_an_error_is_one_line_even_if_a_name_holds_a_line_break(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "two\nlines.pte"
    path.write_bytes(b"")

    outcome = call("inspect", path)

    assert outcome.code == 1
    assert "two\\nlines.pte" in outcome.error


def test_a_process_prints_no_traceback(tmp_path: Path) -> None:
    outcome = process("inspect", tmp_path / "no.pte")

    assert outcome.returncode == 1
    assert outcome.stdout == b""
    assert outcome.stderr.count(b"\n") == 1
    assert outcome.stderr.startswith(b"cordbundle: error: ")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra_the_command_line_says_what_to_install(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from cordbundle.cli import main; sys.exit(main(['inspect', 'x']))"
    )

    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert outcome.returncode == 2
    assert outcome.stderr.splitlines() == [
        f"cordbundle: error: the command line needs {missing};"
        " run: pip install 'cordbundle[cli]'".encode()
    ]


def test_a_look_at_a_file_imports_nothing_slow(model: Path) -> None:
    code = (
        "import sys; from cordbundle.cli import main\n"
        f"main(['inspect', {str(model)!r}])\n"
        "slow = {'numpy', 'rich', 'torch', 'executorch'} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else 0)"
    )

    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert (outcome.returncode, outcome.stderr) == (0, b"")


def big_blob(folder: Path) -> Path:
    """Return a sparse file that is large enough for a progress bar."""
    path = folder / "blob"
    with path.open("wb") as file:
        file.truncate(80 << 20)
    return path


@posix
def test_ctrl_c_ends_with_one_line_and_code_130(model: Path, tmp_path: Path) -> None:
    words = ["bundle", str(model), "--named", f"blob={big_blob(tmp_path)}", "-o", "-"]
    with subprocess.Popen(
        [sys.executable, "-m", "cordbundle", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        running.stdout.read(1)  # now it writes, and is stuck when the pipe is full
        running.send_signal(signal.SIGINT)
        _, err = running.communicate()

    assert running.returncode == 130
    assert err.splitlines()[-1] == b"cordbundle: error: interrupted"
    assert b"Traceback" not in err


@posix
def test_a_reader_who_leaves_early_is_no_traceback(model: Path, tmp_path: Path) -> None:
    words = ["bundle", str(model), "--named", f"blob={big_blob(tmp_path)}", "-o", "-"]
    with subprocess.Popen(
        [sys.executable, "-m", "cordbundle", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        running.stdout.read(1)
        running.stdout.close()
        assert running.stderr is not None
        err = running.stderr.read()

    assert running.returncode == 1
    assert b"Traceback" not in err


def without_stream(number: int, *words: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Call the command line as a process whose standard output (1) or error (2) is closed."""
    command = [sys.executable, "-m", "cordbundle", *map(str, words)]
    closing = f"import os, sys; os.close({number}); os.execv(sys.executable, {command!r})"
    return subprocess.run([sys.executable, "-c", closing], capture_output=True, check=False)


@posix
@pytest.mark.parametrize("verb", ["bundle", "inspect", "verify"])
def test_a_closed_standard_output_takes_no_results_and_is_no_traceback(
    model: Path, verb: str
) -> None:
    outcome = without_stream(1, verb, model)

    assert outcome.returncode == 0
    assert b"Traceback" not in outcome.stderr
    assert model.with_suffix(".bpte").exists() == (verb == "bundle")


@posix
def test_a_bundle_for_a_closed_standard_output_is_refused(model: Path) -> None:
    outcome = without_stream(1, "bundle", model, "-o", "-")

    assert outcome.returncode == 2
    assert outcome.stderr.splitlines()[-1].startswith(
        b"cordbundle: error: standard output is closed"
    )


@posix
def test_with_standard_error_closed_nothing_but_the_bundle_goes_to_standard_output(
    model: Path, case: Path
) -> None:
    outcome = without_stream(2, "bundle", model, case, "-o", "-")

    assert outcome.returncode == 0
    with cb.open(outcome.stdout) as file:
        assert file.verify() == []


@posix
def test_with_standard_error_closed_an_error_is_not_taken_for_a_result(tmp_path: Path) -> None:
    outcome = without_stream(2, "inspect", tmp_path / "no.pte")

    assert (outcome.returncode, outcome.stdout) == (1, b"")


def on_terminal(*words: str | Path) -> tuple[int, str]:
    """Call the command line on a terminal and return its exit code and what the screen got."""
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "cordbundle", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    ) as running:
        os.close(theirs)
        screen = io.BytesIO()
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # how Linux says that the other side is closed
                break
            if not data:
                break
            screen.write(data)
        os.close(ours)
    return running.returncode, screen.getvalue().decode()


@posix
def test_tables_are_drawn_on_a_terminal(model: Path) -> None:
    code, screen = on_terminal("inspect", model)

    assert code == 0
    assert "───" in screen
    assert "aten::addmm.out" in screen


@posix
def test_long_work_shows_a_bar_on_a_terminal_and_none_elsewhere(
    model: Path, tmp_path: Path
) -> None:
    words: list[str | Path] = ["bundle", model, "--named", f"blob={big_blob(tmp_path)}"]
    words += ["-o", tmp_path / "out"]

    code, screen = on_terminal(*words)
    quiet = process(*words)

    assert code == quiet.returncode == 0
    assert "writing out" in screen
    assert quiet.stderr == b"cordbundle: note: no case files: the bundle has no test suites\n"
