"""A bundle as one C++ header: its machine code, its table, and a function that launches.

    python -m greenfast.runtime.cpp_header BUNDLE.zip FOLDER

writes greenfast_NAME.h, which needs cuda.h and libcuda only, and greenfast_NAME_tvm_ffi.cc, a
module of TVM-FFI that calls it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from greenfast.runtime.archive import read_archive
from greenfast.runtime.cpp_expression import commented, cpp, literal, quoted
from greenfast.runtime.cpp_names import require_fields
from greenfast.runtime.cpp_tensor_maps import ENCODE, map_lines, stride_lines
from greenfast.runtime.kernel_set import LIBRARY, Group, KernelSet
from greenfast.runtime.operation import Operation, ScalarArgument, TensorArgument
from greenfast.runtime.program import LaunchForm, Program
from greenfast.runtime.read_bundle import kernel_set
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.expressions import Value

_SCALARS = {
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "float32": "float",
    "float64": "double",
}
_BYTES_A_LINE = 24
FITS = "inline bool fits(const Call& call) { return refusal(call) == nullptr; }"
_FIXED = Path(__file__).parent / "cpp"  # the parts that are the same for every bundle
BEGIN, LAUNCH, TVM_FFI = (
    (_FIXED / name).read_text("utf-8") for name in ("begin.h.in", "launch.h.in", "tvm_ffi.cc.in")
)


def header(kernels: KernelSet) -> str:
    """The text of the header; UsageError without machine code, or for names that C++ lacks."""
    operation = kernels.operation
    require_fields(operation)
    parts = [
        BEGIN.replace("@NAME@", operation.name)
        .replace("@SCALARS@", _call_scalars(operation))
        .replace("@TENSORS@", ", ".join(item.name for item in operation.tensors))
    ]
    if any(program.tensor_maps for program in kernels.programs.values()):
        parts.append(ENCODE)
    parts.append(_refusal(operation))
    parts += [_images(number, item) for number, item in enumerate(kernels.programs.values())]
    parts.append(_pick(kernels))
    parts += [_kernel(number, item) for number, item in enumerate(kernels.programs.values())]
    parts.append(
        LAUNCH.replace(
            "@SCRATCH_CASES@", _cases(len(kernels.programs), "return scratch_bytes_{}(call);")
        )
        .replace("@LAUNCH_CASES@", _cases(len(kernels.programs), "return launch_{}(call, stream);"))
        .replace("@NAME@", operation.name)
    )
    return "\n".join(parts)


def _cases(count: int, text: str) -> str:
    return "\n".join(f"    case {number}: {text.format(number)}" for number in range(count))


def _call_scalars(operation: Operation) -> str:
    """Fields of Call: dims, options and constants, the last with what means "by default"."""
    lines = [f"    int64_t {dim.name} = 0;" for dim in operation.dims]
    lines += [
        f"    const char* {_field(operation, name)} = {quoted(default)};"
        for name, default in operation.options
        if name not in operation.told_by_inputs
    ]
    lines += [
        f"    double {name} = std::numeric_limits<double>::quiet_NaN();  // {commented(form)}"
        for name, form in operation.constants
    ]
    return "\n".join(lines)


def _field(operation: Operation, option: str) -> str:
    """The field of Call for an option; one with the name of a tensor has another."""
    is_tensor = any(tensor.name == option for tensor in operation.tensors)
    return f"{option}_option" if is_tensor else option


def _option(operation: Operation, name: str) -> str:
    """The text of an option; some are told by whether Call has the tensor of their name."""
    if name in operation.told_by_inputs:
        unread, read = operation.told_by_inputs[name]
        return f"(call.{name}.data != nullptr ? {quoted(read)} : {quoted(unread)})"
    return f"call.{_field(operation, name)}"


def _images(number: int, program: Program) -> str:
    if not program.cubins:
        raise UsageError(f"{program.name} has no machine code in this bundle", code="no_cubin")
    parts, rows = [], []
    for arch, data in sorted(program.cubins.items()):
        name = f"image_{number}_{arch}"
        lines = [
            ",".join(map(str, data[at : at + _BYTES_A_LINE]))
            for at in range(0, len(data), _BYTES_A_LINE)
        ]
        body = ",\n".join(lines)
        parts.append(f"alignas(16) static const unsigned char {name}[{len(data)}] = {{\n{body}}};")
        figures = arch.removeprefix("sm_").rstrip("af")
        exact = "true" if arch.endswith("a") else "false"
        rows.append(f"    {{{figures[:-1]}, {figures[-1]}, {exact}, {name}}}")
    parts.append(f"static const Image images_{number}[] = {{\n" + ",\n".join(rows) + "};")
    return "\n".join(parts) + "\n"


def _dims(operation: Operation) -> str:
    """Local variables of a function over `call`."""
    return "\n".join(
        f"    [[maybe_unused]] const int64_t {dim.name} = call.{dim.name};"
        for dim in operation.dims
    )


def _refusal(operation: Operation) -> str:
    """The layouts that kernel.toml allows, as a function of a call."""
    lines = [
        "// What a call has to change before a kernel can take it; null if nothing.",
        "inline const char* refusal(const Call& call)",
        "{",
        _dims(operation),
    ]
    for argument in operation.tensors:
        lines += _layout_lines(operation, argument)
    for listed in operation.dims:
        if listed.values and not listed.compiled:
            sizes = " || ".join(f"{listed.name} == {size}" for size in listed.values)
            known = ", ".join(map(str, sorted(listed.values)))
            lines += _refused_unless(sizes, f"{listed.name} must be one of {known}")
    if operation.requirements:
        lines += [
            f"    [[maybe_unused]] const std::string_view {name}({_option(operation, name)});"
            for name, _ in operation.options
        ]
        lines += _constants(operation, {})
    for requirement, _ in operation.requirements:
        lines += _refused_unless(cpp(requirement, {}), f"{requirement.text} must hold")
    lines += ["    return nullptr;", "}", "", "// Whether a kernel can take a call."]
    return "\n".join([*lines, FITS, ""])


def _layout_lines(operation: Operation, argument: TensorArgument) -> list[str]:
    """The tests of a tensor's address and strides."""
    tensor, step, name = f"call.{argument.name}", "1", argument.name
    may_be_null = argument.optional or argument.read_when is not None
    null = f"{tensor}.data == nullptr || " if may_be_null else ""
    lines = _refused_unless(
        f"{null}reinterpret_cast<uintptr_t>({tensor}.data) % {operation.pointer_bytes} == 0",
        f"the address of {name} must be a multiple of {operation.pointer_bytes} bytes",
    )
    least = 1 if argument.output else 0
    for axis in range(len(argument.shape) - 1, -1, -1):
        dim, stride = argument.shape[axis], f"{tensor}.strides[{axis}]"
        if axis in argument.free_strides:
            fits = f"({stride} >= {least} && {stride} % {operation.stride_elements} == 0)"
            wanted = f"a multiple of {operation.stride_elements} elements, and at least {least}"
        else:
            fits, wanted = f"{stride} == {step}", "that of a contiguous tensor"
        lines += _refused_unless(
            f"{null}{dim} <= 1 || {fits}", f"the stride of {name} in dim {axis} must be {wanted}"
        )
        step = f"{step} * {dim}"
    return lines


def _refused_unless(test: str, sentence: str) -> list[str]:
    return [f"    if (!({test}))", f"        return {quoted(sentence)};"]


def _pick(kernels: KernelSet) -> str:
    ids = {name: number for number, name in enumerate(kernels.programs)}
    lines = [
        "// The index of the kernel for a call; -1: another library's is faster, or none fits.",
        "inline int pick(const Call& call)",
        "{",
        _dims(kernels.operation),
    ]
    for group in kernels.groups or _implied(kernels):
        lines += _group(kernels.operation, group, ids)
    return "\n".join([*lines, "    return -1;", "}", ""])


def _implied(kernels: KernelSet) -> tuple[Group, ...]:
    """For a set without a table: each kernel for its compile-time values."""
    from greenfast.runtime.kernel_set import Rule

    return tuple(
        Group(program.compiled, {}, (Rule((), name),), LIBRARY)
        for name, program in kernels.programs.items()
    )


def _group(operation: Operation, group: Group, ids: Mapping[str, int]) -> list[str]:
    tests = [_is(operation, name, value) for name, value in group.compiled.items()]
    inside = [
        f"{name} >= {low}LL && {name} <= {high}LL" for name, (low, high) in group.region.items()
    ]
    lines = [
        f"    if ({' && '.join(tests) or 'true'}) {{",
        f"        if ({' && '.join(inside) or 'true'}) {{",
    ]
    for rule in group.rules:
        conditions = []
        for condition in rule.conditions:
            value = cpp(condition.value, group.compiled)
            if condition.above is not None:
                conditions.append(f"{value} > {literal(condition.above)}")
            if condition.at_most is not None:
                conditions.append(f"{value} <= {literal(condition.at_most)}")
        lines.append(f"            if ({' && '.join(conditions) or 'true'})")
        lines.append(f"                return {_use(rule.use, group, ids)};")
    return [*lines, "        }", f"        return {_use(LIBRARY, group, ids)};", "    }"]


def _use(use: str, group: Group, ids: Mapping[str, int]) -> str:
    """The kernel's index; of another library, what a program without it runs."""
    if use != LIBRARY:
        return str(ids[use])
    return "-1" if group.outside == LIBRARY else f"call.has_library ? -1 : {ids[group.outside]}"


def _is(operation: Operation, name: str, value: Value) -> str:
    if isinstance(value, str):
        return f"std::strcmp({_option(operation, name)}, {quoted(value)}) == 0"
    return f"{name} == {literal(value)}"


def _constants(operation: Operation, known: Mapping[str, Value]) -> list[str]:
    """Local variables for the constants: what Call has, or the usual value."""
    return [
        f"    [[maybe_unused]] const double {name} = "
        f"std::isnan(call.{name}) ? double({cpp(form, known)}) : call.{name};"
        for name, form in operation.constants
    ]


def _kernel(number: int, program: Program) -> str:
    operation, known = program.operation, dict(program.point)
    sizes = " + ".join(f"padded({cpp(form.bytes, known)})" for form in program.scratch) or "0"
    lines = [
        f"// {program.name}",
        f"inline int64_t scratch_bytes_{number}([[maybe_unused]] const Call& call)",
        "{",
        _dims(operation),
        f"    return {sizes};",
        "}",
        "",
        f"inline CUresult launch_{number}(const Call& call, CUstream stream)",
        "{",
        _dims(operation),
    ]
    lines += _constants(operation, known)
    lines += stride_lines(program)
    lines += _argument_lines(program, known)
    for launch in program.launches:
        lines += _launch_lines(number, launch, known)
    return "\n".join([*lines, "    return CUDA_SUCCESS;", "}", ""])


def _argument_lines(program: Program, known: Mapping[str, Value]) -> list[str]:
    """Storage for every argument and tensor map, and the list of addresses."""
    lines, names = [], []
    unread = program.operation.unread(program.compiled)
    for argument in program.arguments:
        name = f"argument_{argument.name}"
        names.append(f"&{name}")
        if argument.name in unread:
            lines.append(f"    const void* {name} = nullptr;  // not read")
        elif isinstance(argument, TensorArgument):
            if argument.read_when is not None:
                lines.append(
                    f"    if (call.{argument.name}.data == nullptr)\n"
                    "        return CUDA_ERROR_INVALID_VALUE;"
                )
            lines.append(f"    const void* {name} = call.{argument.name}.data;")
        else:
            lines.append(f"    {_SCALARS[argument.dtype]} {name} = {_scalar(argument, known)};")
    if program.scratch:
        lines.append("    auto at = reinterpret_cast<uintptr_t>(call.scratch);")
    for form in program.scratch:
        name, size = f"argument_{form.name}", cpp(form.bytes, known)
        names.append(f"&{name}")
        lines.append(f"    uintptr_t {name} = at;")
        if form.zero_fill:
            lines.append(
                f"    if (CUresult status = cuMemsetD8Async({name}, 0, {size}, stream))\n"
                "        return status;"
            )
        lines.append(f"    at += padded({size});")
    lines += map_lines(program, known)
    names += [f"&argument_{form.name}" for form in program.tensor_maps]
    lines.append(f"    const void* arguments[] = {{{', '.join(names)}}};")
    return lines


def _scalar(argument: ScalarArgument, known: Mapping[str, Value]) -> str:
    kind = _SCALARS[argument.dtype]
    if argument.stride_of is not None:
        owner, axis = argument.stride_of
        return f"{kind}(call.{owner}.strides[{axis}])"
    assert argument.value is not None  # a scalar is a stride or a value
    return f"{kind}({cpp(argument.value, known)})"


def _launch_lines(number: int, launch: LaunchForm, known: Mapping[str, Value]) -> list[str]:
    grid = ", ".join(f"int64_t({cpp(size, known)})" for size in launch.grid)
    block = ", ".join(f"unsigned({cpp(size, known)})" for size in launch.block)
    smem = cpp(launch.smem_dynamic_bytes, known)
    images = f"images_{number}, std::size(images_{number})"
    sizes = f'"{launch.entry}", {{{grid}}}, {{{block}}}, unsigned({smem})'
    return [
        f"    if (CUresult status = start({images}, {sizes}, arguments, stream))",
        "        return status;",
    ]


def tvm_ffi_source(kernels: KernelSet) -> str:
    """A module of TVM-FFI: one function that takes tensors, options and constants in order."""
    operation = kernels.operation
    options = [
        _field(operation, name)
        for name, _ in operation.options
        if name != "dtype" and name not in operation.told_by_inputs
    ]
    given = [_view(item) for item in operation.tensors]
    given += [f"tvm::ffi::String {name}" for name in options]
    given += [f"double {name}" for name, _ in operation.constants]
    lines = []
    for item in operation.tensors:
        view, indent = item.name, "    "
        if item.read_when is not None:
            view, indent = f"(*{item.name})", "        "
            lines.append(f"    if ({item.name}.has_value()) {{")
        lines.append(f"{indent}call.{item.name} = tensor({view});")
        for axis, dim in enumerate(item.shape):
            lines.append(f'{indent}set(call.{dim}, {view}.size({axis}), "{dim}");')
        if item.read_when is not None:
            lines.append("    }")
    lines += _other_dims(kernels)
    lines += [f"    call.{name} = {name}.c_str();" for name in options]
    if "dtype" in dict(operation.options):
        lines.append(f"    call.dtype = dtype_of({operation.tensors[0].name});")
    lines += [f"    call.{name} = {name};" for name, _ in operation.constants]
    return (
        TVM_FFI.replace("@NAME@", operation.name)
        .replace("@ARGUMENTS@", ", ".join(given))
        .replace("@FIRST@", operation.tensors[0].name)
        .replace("@FILL@", "\n".join(lines))
    )


def _other_dims(kernels: KernelSet) -> list[str]:
    """Dims that no tensor has: those of the kernels, and those that another dim is.

    With A_columns = "M if turned_a else K" and turned_a = 0, K is A_columns.
    """
    operation, lines = kernels.operation, []
    seen = {dim for item in operation.tensors for dim in item.shape}
    for dim in operation.unseen_dims:
        if dim.name in seen:
            continue
        values = {program.compiled.get(dim.name) for program in kernels.programs.values()}
        if len(values) == 1 and type(only := next(iter(values))) is int:
            lines.append(f"    call.{dim.name} = {literal(only)};")
    missing = {dim.name for dim in operation.dims} - seen
    for dim in operation.dims:
        if dim.name in seen and dim.default is not None and dim.default.names & missing:
            node = ast.parse(dim.default.text.strip(), mode="eval").body
            lines += _solved(node, dim.name, missing, "    ")
    return lines


def _solved(node: ast.expr, size: str, missing: Collection[str], indent: str) -> list[str]:
    """Sets the dim that `size` is by its default: a name, or one of two."""
    match node:
        case ast.Name(id=name) if name in missing:
            return [f'{indent}set(call.{name}, call.{size}, "{name}");']
        case ast.IfExp(test=ast.Name(id=name), body=body, orelse=otherwise):
            lines = []
            for branch, sign in ((body, "!="), (otherwise, "==")):
                if inner := _solved(branch, size, missing, f"{indent}    "):
                    lines += [f"{indent}if (call.{name} {sign} 0) {{", *inner, f"{indent}}}"]
            return lines
    return []


def _view(argument: TensorArgument) -> str:
    """The parameter of a tensor; None is passed for one that the kernel does not read."""
    if argument.read_when is not None:
        return f"tvm::ffi::Optional<tvm::ffi::TensorView> {argument.name}"
    return f"tvm::ffi::TensorView {argument.name}"


def cpp_files(kernels: KernelSet) -> dict[str, str]:
    """Both files by name; UsageError for kernels that the header does not launch."""
    name = kernels.operation.name
    return {
        f"greenfast_{name}.h": header(kernels),
        f"greenfast_{name}_tvm_ffi.cc": tvm_ffi_source(kernels),
    }


def written(bundle: Path, folder: Path) -> list[Path]:
    """Write both files into `folder`."""
    texts = cpp_files(kernel_set(read_archive(bundle), bundle.name))
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, text in texts.items():
        (folder / file_name).write_text(text, "utf-8")
    return [folder / file_name for file_name in texts]


def main() -> int:
    if len(sys.argv) != 3:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    try:
        for path in written(Path(sys.argv[1]), Path(sys.argv[2])):
            print(path)
    except GreenfastError as error:
        print(f"greenfast: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
