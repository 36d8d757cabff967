"""The C++ header of a bundle, and its module of TVM-FFI, on a driver that runs nothing."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from runtime_bundles import RECORDED, SETS, STUB, files_of, sealed, zipped
from slow_cases import quick_first

import greenfast
from greenfast.runtime.cpp_expression import cpp
from greenfast.runtime.cpp_header import header, main, written
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.expressions import expression
from greenfast.search.toolchain.toolkit import find_toolkit

CALL = STUB.parent / "call.cpp"


def gpp(*arguments) -> None:
    command = ["g++", "-std=c++17", *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[:3000]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The header of the shipped attention set, and the stub as libcuda."""
    place = tmp_path_factory.mktemp("cpp")
    written(RECORDED, place)
    gpp("-shared", "-fPIC", "-o", place / "libcuda.so", STUB)
    return place


def linked(folder: Path) -> tuple[object, ...]:
    include = [f"-I{path}" for path in find_toolkit().include_dirs[:1]]
    return (f"-I{folder}", *include, f"-L{folder}", "-lcuda", f"-Wl,-rpath,{folder}")


def test_the_header_launches_what_python_launches(folder):
    gpp("-Wall", "-Wextra", "-Werror", "-o", folder / "call", CALL, *linked(folder))
    output = subprocess.run([folder / "call"], capture_output=True, text=True, check=True).stdout
    *refusals, last = output.splitlines()
    assert refusals == [
        "the stride of q in dim 2 must be a multiple of 8 elements, and at least 0",
        "the stride of o in dim 0 must be a multiple of 8 elements, and at least 1",
        "the address of k must be a multiple of 16 bytes",
        "the stride of v in dim 3 must be that of a contiguous tensor",
        "1",
    ]
    served, refused, misfit, count, entry, *words = last.split()
    assert (served, refused, misfit, count, entry) == ("0", "801", "1", "1", "attention_mma")
    numbers = [int(word) for word in words]
    assert numbers[:8] == [8, 8, 2, 128, 1, 1, 69632, 7]
    assert numbers[8:13] == [0x1000] * 4 + [0]
    assert [number & 0xFFFFFFFF for number in numbers[13:17]] == [8, 8, 256, 256]
    assert numbers[18:30] == [8 * 256 * 64, 256 * 64, 64] * 4


@pytest.mark.skipif(
    importlib.util.find_spec("tvm_ffi") is None or importlib.util.find_spec("torch") is None,
    reason="apache-tvm-ffi or PyTorch is not installed",
)
def test_the_module_of_tvm_ffi_takes_tensors(folder):
    config = [sys.executable, "-m", "tvm_ffi.config"]

    def flags(name: str) -> list[str]:
        return subprocess.run(
            [*config, name], capture_output=True, text=True, check=True
        ).stdout.split()

    gpp(
        "-shared",
        "-fPIC",
        "-o",
        folder / "module.so",
        folder / "greenfast_attention_tvm_ffi.cc",
        *flags("--cxxflags"),
        *linked(folder),
        *flags("--ldflags"),
        *flags("--libs"),
    )
    script = (
        "import ctypes, sys, torch, tvm_ffi;"
        "stub = ctypes.CDLL(sys.argv[1] + '/libcuda.so');"
        "stub.stub_reset(22, 0); stub.stub_enter();"
        "run = tvm_ffi.load_module(sys.argv[1] + '/module.so').attention;"
        "q, k, v, o = (torch.empty(2, 8, 256, 64, dtype=torch.bfloat16) for _ in range(4));"
        "lse = torch.empty(2, 8, 256); run(q, k, v, o, lse, 'none', float('nan'));"
        "words = (ctypes.c_uint64 * 64)(); stub.stub_launch(0, words);"
        "assert list(words)[8:13] == [item.data_ptr() for item in (q, k, v, o, lse)];\n"
        "odd = torch.empty(2 * 8 * 256 * 64 + 1, dtype=torch.bfloat16)[1:].view(q.shape)\n"
        "for first, wrong in ((q, lse[:, :, :9]), (q, q), (odd, lse)):\n"
        "    try: run(first, k, v, o, wrong, 'none', 1.0)\n"
        "    except (ValueError, IndexError, RuntimeError) as error: print(error)\n"
        "print(stub.stub_launches())\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True
    )
    assert "S_q is 256 in a tensor and 9 in another" in process.stdout
    assert "the address of q must be a multiple of 16 bytes" in process.stdout
    assert process.stdout.split()[-1] == "1"


@pytest.mark.parametrize(
    ("text", "known", "expected"),
    [
        ("ceil_div(S, tile) * parts", {"tile": 64, "parts": 1}, "(ceil_div(S, 64LL) * 1LL)"),
        ("4 if kind == 'a' else S", {"kind": "a"}, "4LL"),
        ("4 if kind == 'a' else S", {"kind": "b"}, "S"),
        ("max(S, T, 3)", {}, "larger(S, larger(T, 3LL))"),
        ("S % 2 == 0 and not T > 1", {}, "((modulo(S, 2LL) == 0LL) && (!(T > 1LL)))"),
        ("1 < S <= 4", {}, "(1LL < S && S <= 4LL)"),
        ("S in (1, 2)", {}, "((S == 1LL || S == 2LL))"),
        ("S ** 0.5 / 2", {}, "(double(std::pow(double(S), double(0.5))) / double(2LL))"),
        ("-S // 3", {}, "floor_div((-S), 3LL)"),
        ("kind != 'a' or S > 1", {}, '((kind != "a") || (S > 1LL))'),
        ("kind in ('a', 'b c')", {}, '((kind == "a" || kind == "b c"))'),
        ("S & (S - 1) | S >> 2", {}, "((S & (S - 1LL)) | (S >> 2LL))"),
    ],
)
def test_expressions_become_cpp(text, known, expected):
    assert cpp(expression(text, "a test"), known) == expected


@pytest.mark.slow
def test_a_program_without_another_library_gets_a_kernel(tmp_path):
    kernels = greenfast.load(RECORDED).kernels
    first = kernels.groups[0]
    rules = (dataclasses.replace(first.rules[-1], conditions=(), use="library"),)
    outside = next(
        name for name, item in kernels.programs.items() if item.compiled == first.compiled
    )
    group = dataclasses.replace(first, rules=rules, outside=outside)
    text = header(dataclasses.replace(kernels, groups=(group,)))
    (tmp_path / "greenfast_attention.h").write_text(text)
    fields = "".join(
        f"call.{name} = {value!r};".replace("'", '"') for name, value in first.compiled.items()
    )
    sizes = "".join(f"call.{name} = {high};" for name, (_, high) in first.region.items())
    (tmp_path / "main.cpp").write_text(
        '#include "greenfast_attention.h"\n#include <cstdio>\nint main() {'
        f"greenfast_attention::Call call; {fields} {sizes}"
        "int with = pick(call); call.has_library = false; int inside = pick(call);"
        'call.B *= 1000; std::printf("%d %d %d", with, inside, pick(call)); }'
    )
    gpp("-shared", "-fPIC", "-o", tmp_path / "libcuda.so", STUB)
    gpp("-Wall", "-Werror", "-o", tmp_path / "main", tmp_path / "main.cpp", *linked(tmp_path))
    output = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    number = list(kernels.programs).index(outside)
    assert output.split() == ["-1", str(number), str(number)]


def test_a_requirement_may_use_options_and_constants():
    kernels = greenfast.load(RECORDED).kernels
    rule = expression("mask == 'none' or scale > 0", "a test")
    operation = dataclasses.replace(kernels.operation, requirements=((rule, "no"),))
    text = header(dataclasses.replace(kernels, operation=operation))
    fits = text[text.index("char* refusal") :].partition("return nullptr")[0]
    assert "const std::string_view mask(call.mask);" in fits and "const double scale = " in fits
    assert 'if (!(((mask == "none") || (scale > 0LL))))' in fits


def test_text_has_no_form_in_cpp():
    with pytest.raises(SpecError, match="is not a number"):
        cpp(expression("S == kind", "a test"), {"kind": "a"})


@pytest.mark.parametrize(("name", "why"), [("B", r"\[dims\] has it"), ("class", "C\\+\\+ has an")])
def test_names_that_cpp_lacks_are_refused(name, why):
    kernels = greenfast.load(RECORDED).kernels
    operation = kernels.operation
    arguments = tuple(
        dataclasses.replace(each, name=name) if each.name == "lse" else each
        for each in operation.arguments
    )
    renamed = dataclasses.replace(operation, arguments=arguments)
    with pytest.raises(UsageError, match=f"no C.. header for the name {name}: {why}"):
        header(dataclasses.replace(kernels, operation=renamed))


def test_a_bundle_without_a_table_has_a_header_too(tmp_path, capsys, monkeypatch):
    kernels = greenfast.load(SETS / "rmsnorm-h200.zip").kernels
    text = header(type(kernels)(kernels.origin, kernels.operation, kernels.programs))
    assert 'if (std::strcmp(call.dtype, "fp16") == 0)' in text
    monkeypatch.setattr(sys, "argv", ["cpp_header", str(tmp_path / "none.zip"), str(tmp_path)])
    assert main() == 2
    assert "does not exist" in capsys.readouterr().err


QUOTE = '"; }; int stolen = 1; struct T { const char* t = "'
CODE_OF_LINES = "(  # \\\nD ** -0.5\n# define int64_t stolen \\\n)"


@pytest.mark.parametrize(
    ("before", "after"),
    quick_first(
        [
            ('default = "none"', f"default = '{QUOTE}'"),
            ('"D ** -0.5"', f"'''{CODE_OF_LINES}'''"),
        ],
        1,
    ),
)
def test_no_text_of_a_bundle_becomes_code_of_the_header(tmp_path, before, after):
    files = files_of("attention-h200.zip")
    changed = files["kernel.toml"].replace(before.encode(), after.encode())
    assert changed != files["kernel.toml"]
    path = zipped(tmp_path / "evil.zip", sealed({**files, "kernel.toml": changed}))
    text = header(greenfast.load(path).kernels)
    code = re.sub(r'"(?:\\.|[^"\\\n])*"|//.*', "", text)
    assert "stolen" not in code and "\\" not in code
