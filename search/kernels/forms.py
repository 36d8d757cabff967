"""The keys of kernel.toml and of a template's .toml: for JSON Schemas and the reference pages.

The loader reads the same keys: tests/unit/test_schemas.py compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenfast.search.kernels.argument_specs import DTYPES, KINDS, SCALAR_DTYPES

Schema = dict[str, Any]

SCHEMA_FOLDER = Path(__file__).parent / "schemas"
# Where a kernel's folder has its copies of the schemas, so that the folder can be moved and shared.
OWN_SCHEMAS = ".schemas"


def schema_line(kind: str) -> str:
    """The first line of a file, by which editors find its schema: relative to the file."""
    return f"#:schema ./{OWN_SCHEMAS}/{kind}.schema.json"


NAME_PATTERN = "^[a-z][a-z0-9_]{0,47}$"
IDENTIFIER_PATTERN = "^[A-Za-z_][A-Za-z0-9_]{0,47}$"
EXPRESSION: Schema = {"type": ["string", "integer", "number", "boolean"]}
TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "pattern": NAME_PATTERN}
INTEGER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
STRINGS: Schema = {"type": "array", "items": TEXT}
SIZES: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}
THREE: Schema = {"type": "array", "items": EXPRESSION, "minItems": 3, "maxItems": 3}
EXPRESSIONS: Schema = {"type": "object", "additionalProperties": EXPRESSION}
VALUES: Schema = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}


@dataclass(frozen=True)
class Key:
    """One key of a table."""

    name: str
    schema: Schema
    doc: str
    default: str | None = None  # None: it is required


@dataclass(frozen=True)
class Form:
    """A table: its header in the file, its description, and its keys."""

    header: str  # "[options] NAME", "[[arguments]]"
    doc: str
    keys: tuple[Key, ...]

    def key(self, name: str) -> Key:
        return next(key for key in self.keys if key.name == name)


OPTION = Form(
    "[options] NAME",
    "A compile-time choice of a workload, such as its type. The template sees its value.",
    (
        Key("values", STRINGS, "the allowed texts"),
        Key("default", TEXT, "the value of a workload that does not choose"),
    ),
)
DIM = Form(
    "[dims] NAME",
    "A size of the operation. Workloads and checks give it a value.",
    (
        Key(
            "time",
            {"enum": ["compile", "run"]},
            "`run`: an argument of the launch; `compile`: a constant in the source",
        ),
        Key("doc", TEXT, "what the size is", ""),
        Key(
            "default",
            EXPRESSION,
            "an expression over the dims before it. Where it computes a size from them, another "
            "size is refused, unless `values` or a `requires` names the dim",
            "none: it is required",
        ),
        Key("values", SIZES, "the only allowed sizes", "any size"),
    ),
)
ARGUMENT = Form(
    "[[arguments]]",
    "The parameter list of every entry of every template, in this order; workspaces follow.",
    (
        Key("name", {"type": "string", "pattern": IDENTIFIER_PATTERN}, "a unique name"),
        Key(
            "kind",
            {"enum": list(KINDS)},
            "`input` and `output` are pointers, `scalar` a value. An output is not zero before a "
            "launch: if a kernel adds to it, clear it in an earlier entry of `[[launches]]`",
        ),
        Key(
            "dtype",
            {"enum": list(DTYPES)},
            "the storage type; `dtype`: the type that the option `dtype` names. A scalar is "
            "`int32`, `int64`, `float32` or `float64`",
        ),
        Key("shape", STRINGS, "names of dims, the contiguous one last; not for scalars", "-"),
        Key(
            "value",
            EXPRESSION,
            "of a scalar: an expression over dims, options and constants, or `stride(q, 0)` for "
            "the element stride of an axis of a tensor before it",
            "-",
        ),
        Key(
            "optional",
            FLAG,
            "an output that may be a null pointer; it is not written when timed",
            "false",
        ),
        Key("contiguous", FLAG, "no check puts gaps between its rows", "false"),
        Key(
            "read_when",
            EXPRESSION,
            "of an input: an expression over options. Where it does not hold, calls leave the "
            "input out, and the kernel gets a null pointer, in checks too",
            "always",
        ),
    ),
)
WORK = Form(
    "[work]",
    "The operation's cost, for the bound on its time. Expressions over dims, options, constants.",
    (
        Key("flop", EXPRESSION, "floating-point operations"),
        Key("bytes", EXPRESSION, "bytes that every kernel must read and write"),
    ),
)
ALIGNMENT = Form(
    "[alignment]",
    "What templates may rely on.",
    (
        Key("pointer_bytes", INTEGER, "every tensor starts at a multiple of it", "16"),
        Key("stride_elements", INTEGER, "row, head and batch strides are multiples of it", "1"),
    ),
)
WORKLOAD = Form(
    "[workloads.NAME]",
    "A shape to time, by name. A mistake in it disables only this workload.",
    (
        Key("title", TEXT, "a line for lists", "the name"),
        Key("dims", {"type": "object", "additionalProperties": INTEGER}, "sizes by dim", "{}"),
        Key(
            "options",
            {"type": "object", "additionalProperties": TEXT},
            "values by option",
            "the defaults",
        ),
    ),
)
REQUIREMENT = Form(
    "[[requires]]",
    "A condition on the sizes and options of a workload. The random sizes that greenfast adds "
    "to the checks satisfy it, too, if all checks do.",
    (
        Key("that", EXPRESSION, "it must hold"),
        Key("because", TEXT, "the sentence for a workload that fails; may use `{NAME}`"),
    ),
)
CHECK = Form(
    "[[checks]]",
    "A case on which every candidate is compared with the reference.",
    (
        Key("name", NAME, "for reports"),
        Key(
            "dims",
            EXPRESSIONS,
            "a size for each run-time dim: expressions over tiles, compile-time dims and options",
            "{}",
        ),
        Key(
            "constants",
            EXPRESSIONS,
            "other values of the kernel's constants. `dims` of `reference` and `make_inputs` has "
            "them in this check's cases only: `dims.get('scale', 1.0)`. Without such a check, a "
            "candidate that ignores a scale is correct",
            "{}",
        ),
        Key("inputs", TEXT, "a recipe of `make_inputs`"),
        Key(
            "layout",
            {"enum": ["contiguous", "padded", "bshd"]},
            "`padded`: gaps of NaN between rows; `bshd`: stored as [B, S, H, D]",
            "contiguous",
        ),
        Key(
            "seeds",
            {"type": "integer", "minimum": 0},
            "number of random seeds. 0: outputs are not compared, and the gate `safety` runs "
            "the first and the last blocks, for sizes that are too large for a reference",
            "3",
        ),
        Key("when", EXPRESSION, "the check exists only when this holds", "always"),
    ),
)
PROBE = Form(
    "[probes.NAME]",
    "A stage of the kernel that `greenfast probe` compares on its own (`greenfast docs probes`).",
    (
        Key("doc", TEXT, "what the stage computes"),
        Key("bound", TEXT, "the allowed error in words"),
        Key("suspect", TEXT, "where to look when this stage is the first wrong one", ""),
        Key("reference", TEXT, "a function of reference.py"),
        Key("of", TEXT, "the output that is compared; or a shape is given", ""),
        Key("shape", {"type": "array", "items": EXPRESSION}, "of the probe's own output", "-"),
        Key("axes", STRINGS, "names of the axes, for reports"),
        Key("tiles", EXPRESSIONS, "elements of a tile by axis", "{}"),
        Key("values", EXPRESSIONS, "defaults of names that a template may redefine", "{}"),
        Key(
            "labels",
            {"type": "object", "additionalProperties": STRINGS},
            "names of an axis' positions",
            "{}",
        ),
    ),
)
PARAMETER = Form(
    "[parameters.NAME]",
    "A tunable value: a name in the .cu.j2 and in expressions.",
    (
        Key("type", {"enum": ["int", "bool", "choice"]}, "whole numbers, true/false, or texts"),
        Key(
            "values",
            {
                "type": "array",
                "items": {"type": ["integer", "boolean", "string"]},
                "uniqueItems": True,
                "minItems": 1,
            },
            "the values to search, all of the type",
            "[false, true] for bool",
        ),
        Key("default", {"type": ["integer", "boolean", "string"]}, "one of the values"),
        Key("doc", TEXT, "what it changes", ""),
        Key(
            "numerics",
            {"enum": ["same", "own"]},
            "`same`: results do not depend on it, bit for bit, and greenfast checks that",
            "own",
        ),
        Key(
            "when",
            EXPRESSION,
            "an expression over parameters, options and compile-time dims: if it does not hold, "
            "the parameter has its default",
            "always",
        ),
        Key(
            "group",
            NAME,
            "a name that parameters share which belong together, such as `tile`: a child of two "
            "candidates takes the whole group from one of them",
            "none",
        ),
    ),
)
CONSTRAINT = Form(
    "[[constraints]]",
    "Conditions for points that are worth compiling. Excluded points cost no trial.",
    (
        Key("expr", EXPRESSION, "it must hold: over parameters, locals, options, `sm_count`"),
        Key("because", TEXT, "the sentence for a point that fails; may use `{NAME}`"),
    ),
)
LAUNCH = Form(
    "[[launches]]",
    "One launch, in order. Block, cluster and shared memory may use all names known when "
    "rendering; the grid may also use run-time dims.",
    (
        Key("entry", TEXT, 'the name of an `extern "C" __global__` function'),
        Key("grid", THREE, "blocks along x, y and z"),
        Key("block", THREE, "threads along x, y and z"),
        Key("smem_dynamic_bytes", EXPRESSION, "bytes of dynamic shared memory", "0"),
        Key("cluster", THREE, "blocks of a cluster", '["1", "1", "1"]'),
        Key("when", EXPRESSION, "the launch exists only when this holds", "always"),
    ),
)
SCALAR = Form(
    "[[scalars]]",
    "A number, passed after the kernel's arguments, that an entry cannot derive from them and its "
    "grid.",
    (
        Key("name", NAME, "for reports"),
        Key("dtype", {"enum": list(SCALAR_DTYPES)}, "its type in the entry's parameter list"),
        Key("value", EXPRESSION, "may use run-time dims"),
        Key("when", EXPRESSION, "it is an argument only when this holds", "always"),
    ),
)
WORKSPACE = Form(
    "[[workspaces]]",
    "Scratch memory, passed as a pointer after the scalars.",
    (
        Key("name", NAME, "for reports"),
        Key("bytes", EXPRESSION, "its size; may use run-time dims"),
        Key("zero_fill", FLAG, "zeros before the launches; else undefined", "false"),
        Key("when", EXPRESSION, "it exists only when this holds", "always"),
    ),
)
TENSOR_MAP = Form(
    "[[tensor_maps]]",
    "A tensor map, passed by value as one of the last arguments of every entry; needs "
    "minimum_sm = 90.",
    (
        Key("name", NAME, "for reports"),
        Key("tensor", TEXT, "an argument, or a workspace of this template"),
        Key(
            "dtype",
            {"enum": ["fp16", "bf16", "float32", "int32", "int64", "uint8"]},
            "of a workspace's elements; an argument has its own",
            "the argument's",
        ),
        Key(
            "axes",
            {"type": "array", "items": INTEGER},
            "axes of the tensor, innermost first",
            "all of them",
        ),
        Key(
            "sizes",
            {"type": "array", "items": EXPRESSION},
            "in place of `axes`: sizes of merged or split axes",
            "-",
        ),
        Key(
            "strides",
            {"type": "array", "items": EXPRESSION},
            "with `sizes`: in elements, of the axes after the first",
            "[]",
        ),
        Key("box", {"type": "array", "items": EXPRESSION}, "elements that a copy moves, by axis"),
        Key("swizzle_bytes", EXPRESSION, "0, 32, 64 or 128", "0"),
        Key(
            "fill",
            {"enum": ["zero", "nan"]},
            "the value that a copy reads beyond the tensor",
            "zero",
        ),
        Key("l2_promotion_bytes", EXPRESSION, "0, 64, 128 or 256", "0"),
        Key("when", EXPRESSION, "it is an argument only when this holds", "always"),
    ),
)
PRESET = Form(
    "[presets.NAME]",
    "A named point: a documented design, run as TEMPLATE:NAME.",
    (
        Key("doc", TEXT, "the design in a sentence", ""),
        Key(
            "parameters",
            {"type": "object", "additionalProperties": {"type": ["integer", "boolean", "string"]}},
            "values; others have their defaults",
            "{}",
        ),
    ),
)


def _map(form: Form, pattern: str = NAME_PATTERN) -> Schema:
    return {
        "type": "object",
        "propertyNames": {"pattern": pattern},
        "additionalProperties": table_schema(form),
    }


def _list(form: Form) -> Schema:
    return {"type": "array", "items": table_schema(form)}


def table_schema(form: Form) -> Schema:
    """The JSON Schema of a table with these keys."""
    return {
        "type": "object",
        "description": form.doc,
        "additionalProperties": False,
        "properties": {key.name: {**key.schema, "description": key.doc} for key in form.keys},
        "required": [key.name for key in form.keys if key.default is None],
    }


KERNEL = Form(
    "kernel.toml",
    "The operation to compute, and what greenfast needs to check and time it.",
    (
        Key("name", NAME, "the name of the folder"),
        Key("title", TEXT, "a line for lists"),
        Key("baseline", TEXT, "`TEMPLATE:PRESET`: the candidate that others are compared with"),
        Key("options", _map(OPTION), "compile-time choices", "{}"),
        Key("dims", _map(DIM, IDENTIFIER_PATTERN), "sizes", "{}"),
        Key("constants", EXPRESSIONS, "named numbers: expressions over dims and options", "{}"),
        Key("arguments", _list(ARGUMENT), "the parameter list of every entry"),
        Key("work", table_schema(WORK), "the operation's cost"),
        Key("alignment", table_schema(ALIGNMENT), "what templates may rely on", "{}"),
        Key("workloads", _map(WORKLOAD), "shapes to time, by name", "{}"),
        Key("requires", _list(REQUIREMENT), "conditions on workloads", "[]"),
        Key("checks", _list(CHECK), "cases on which candidates are checked", "[]"),
        Key("probes", _map(PROBE), "stages for `greenfast probe`", "{}"),
        Key("probe_cases", STRINGS, "names of the checks on which probes run", "[]"),
        Key(
            "reference_uses",
            STRINGS,
            "the modules that reference.py imports: `KERNEL` for another kernel's reference, "
            "imported as `KERNEL_reference`, or `MODULE:FUNCTION` for a function in MODULE.py "
            "beside it, in the folder above, or shipped (`greenfast_bounds:summed`)",
            "[]",
        ),
        Key("empty_dims", STRINGS, "dims that may be 0", "[]"),
    ),
)
TEMPLATE = Form(
    "TEMPLATE.toml",
    "One way to write a kernel: parameters, constraints, launches.",
    (
        Key("name", NAME, "the name of the file"),
        Key("kernel", NAME, "the name of the folder"),
        Key("idea", TEXT, "what distinguishes it, in a sentence"),
        Key("minimum_sm", INTEGER, "the lowest compute capability, times 10", "70"),
        Key(
            "supports",
            {"type": "object", "additionalProperties": {"type": "array"}},
            "by dim or option, the values that the template can compute",
            "everything",
        ),
        Key("parameters", _map(PARAMETER), "the values that a search varies"),
        Key(
            "locals",
            EXPRESSIONS,
            "named values over parameters, options, compile-time dims, `sm_count` and the locals "
            "before them; the text may use them",
            "{}",
        ),
        Key(
            "constraints", _list(CONSTRAINT), "conditions for points that are worth compiling", "[]"
        ),
        Key(
            "tiles",
            EXPRESSIONS,
            "sizes at which the template may go wrong; the kernel's checks use them. If a "
            "template lacks a tile that others have, it is 1",
            "{}",
        ),
        Key("launches", _list(LAUNCH), "the launches, in order"),
        Key(
            "scalars", _list(SCALAR), "numbers that entries take after the kernel's arguments", "[]"
        ),
        Key("workspaces", _list(WORKSPACE), "scratch memory", "[]"),
        Key("tensor_maps", _list(TENSOR_MAP), "maps for bulk tensor copies", "[]"),
        Key(
            "worthwhile_when",
            EXPRESSION,
            "over dims and options: if it does not hold for a workload, only a search that "
            "names the template tries it",
            "always",
        ),
        Key(
            "arch_specific",
            FLAG,
            "compiled for `sm_90a` and the like: it runs on exactly `minimum_sm`",
            "false",
        ),
        Key("presets", _map(PRESET), "named points", "{}"),
        Key(
            "probes",
            {
                "type": "object",
                "properties": {"warp_rows": EXPRESSION},
                "additionalProperties": {"type": "object", "additionalProperties": EXPRESSION},
            },
            "the kernel's probes that this template has, each with `when` and values; `warp_rows` "
            "are the rows of a tile that a warp owns",
            "{}",
        ),
        Key("deterministic", FLAG, "two runs give the same bits, which is checked", "true"),
        Key(
            "deterministic_when",
            EXPRESSION,
            "over parameters: if it does not hold, two runs may differ in their last bits",
            "always",
        ),
    ),
)
TABLES: Mapping[str, tuple[Form, ...]] = {
    "kernel": (
        KERNEL, OPTION, DIM, ARGUMENT, WORK, ALIGNMENT, WORKLOAD, REQUIREMENT, CHECK, PROBE,
    ),
    "template": (TEMPLATE, PARAMETER, CONSTRAINT, LAUNCH, SCALAR, WORKSPACE, TENSOR_MAP, PRESET),
}  # fmt: skip


def file_schema(kind: str) -> Schema:
    """The JSON Schema of a whole file: `kernel` or `template`."""
    form = TABLES[kind][0]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": form.header,
        **table_schema(form),
    }
