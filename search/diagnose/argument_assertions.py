"""Assertions, in the compiled text, that a launch's arguments fit the kernel's parameters.

The compiler knows each parameter's type, also where it is a template's or an alias. An assertion's
message is the whole sentence for the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from greenfast.search.devices.tensor_map import MAP_BYTES, TensorMap
from greenfast.search.diagnose.entries import Entry, place_of
from greenfast.search.oracle.problem import GivenArgument, Packed, Scalar, Tensor

ARGUMENTS = "arguments"  # the file of the assertions in messages
MISFIT = "greenfast: "  # begins an assertion's message
SCALAR_BYTES = {"int32": 4, "uint32": 4, "int64": 8, "float32": 4, "float64": 8}
TRAITS = """
template <class> struct greenfast_signature;
template <class... P> struct greenfast_signature<void (&)(P...)> {
  static constexpr int count = sizeof...(P);
};
template <int, class> struct greenfast_parameter { using type = void; };
template <int i, class F, class... P> struct greenfast_parameter<i, void (&)(F, P...)>
  : greenfast_parameter<i - 1, void (&)(P...)> {};
template <class F, class... P> struct greenfast_parameter<0, void (&)(F, P...)> { using type = F; };
template <class T> struct greenfast_type {
  static constexpr int bytes = sizeof(T);
  static constexpr bool is_pointer = false, is_real = false, is_reference = false;
};
template <> struct greenfast_type<void> {
  static constexpr int bytes = 0;
  static constexpr bool is_pointer = true, is_real = true, is_reference = false;
};
template <class T> struct greenfast_type<T*> {
  static constexpr int bytes = 8;
  static constexpr bool is_pointer = true, is_real = false, is_reference = false;
};
template <class T> struct greenfast_type<T&> {
  static constexpr int bytes = 0;
  static constexpr bool is_pointer = false, is_real = false, is_reference = true;
};
template <> struct greenfast_type<float> {
  static constexpr int bytes = 4;
  static constexpr bool is_pointer = false, is_real = true, is_reference = false;
};
template <> struct greenfast_type<double> {
  static constexpr int bytes = 8;
  static constexpr bool is_pointer = false, is_real = true, is_reference = false;
};
"""


def assertion_lines(entry: Entry, arguments: Sequence[GivenArgument]) -> Iterator[str]:
    """The assertions for one launch of `entry`."""
    kernel, parameters = entry.kernel, entry.kernel.parameters
    signature = f"decltype({entry.alias})"
    listed = f"{kernel.name} ({place_of(kernel)}) takes ({', '.join(parameters)})"
    yield _assertion(
        f"greenfast_signature<{signature}>::count == {len(arguments)}",
        f"the launch of {entry.text} has {len(arguments)} arguments, but {listed}",
    )
    for number, argument in enumerate(arguments):
        parameter = parameters[number] if number < len(parameters) else parameters[-1:] or ("",)
        traits = f"greenfast_type<greenfast_parameter<{number}, {signature}>::type>"
        place = f"argument {number + 1} of {entry.text}"
        declared = f"the parameter is `{parameter}`"
        yield _assertion(
            f"!{traits}::is_reference",
            f"parameter {number + 1} of {kernel.name}, `{parameter}`, is a reference, which no "
            "launch can pass; take it by value or by pointer",
        )
        for condition, message in _conditions(argument, traits):
            yield _assertion(condition, f"{place} is {message}, but {declared}")


def _conditions(argument: GivenArgument, traits: str) -> Iterator[tuple[str, str]]:
    match argument:
        case Tensor():
            yield (f"{traits}::is_pointer || {traits}::bytes == 8", f"the array {argument.name}")
        case None:
            yield (f"{traits}::is_pointer || {traits}::bytes == 8", "a null pointer")
        case Scalar():
            word = f"a scalar of type {argument.dtype}"
            size = SCALAR_BYTES[argument.dtype]
            yield f"!{traits}::is_pointer", f"{word}"
            is_real = argument.dtype.startswith("float")
            yield (
                f"{traits}::bytes == {size} && "
                + (f"({traits}::is_real || {traits}::bytes != {size})" if is_real else "true"),
                f"{word} ({size} bytes)",
            )
        case TensorMap():
            yield f"{traits}::bytes == {MAP_BYTES}", f"the tensor map {argument.name}"
        case Packed():
            size = len(argument.data)
            yield f"{traits}::bytes == {size}", f"a value of {size} bytes"


def _assertion(condition: str, message: str) -> str:
    escaped = message.replace("\\", "\\\\").replace('"', '\\"')
    return f'static_assert({condition}, "{MISFIT}{escaped}");'
