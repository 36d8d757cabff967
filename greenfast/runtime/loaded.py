"""`greenfast.load`: the kernels of a bundle, ready to be called."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from greenfast.runtime.archive import read_archive
from greenfast.runtime.calls import Call, Prepared, Refused, prepare, run
from greenfast.runtime.explanation import Explanation, explanation
from greenfast.runtime.fallbacks import FALLBACKS, tell, tell_copies
from greenfast.runtime.frameworks import (
    Framework,
    framework_of,
    returned_like,
    through_dlpack,
)
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.layouts import misaligned, require_no_repeats
from greenfast.runtime.operation import Operation
from greenfast.runtime.program import span_of
from greenfast.runtime.read_bundle import kernel_set
from greenfast.search.errors import UsageError
from greenfast.search.kernels.expressions import Value
from greenfast.search.text import one_line, shortened

MOST_PLANS = 4096  # signatures that are kept; beyond them all are prepared again
EMULATOR = "emulator"
NOT_ON_A_GPU = "the tensors are not in a GPU's memory"
EMULATE = f'without a GPU, load the bundle with device="{EMULATOR}"'
Names = Sequence[str] | str | None


def load(path: str | Path, device: str | None = None) -> LoadedKernels:
    """The kernels of the bundle at `path`, checked against its checksums; nothing is launched.

    They run on the GPU by default. `device="emulator"` runs NumPy arrays, and PyTorch's CPU
    tensors, on the emulator of the GPU that the bundle is for. UsageError `missing_bundle`,
    `bad_bundle` for a damaged, hostile or unknown file, `unknown_device`, or `bad_call`.
    """
    if device is not None and (not isinstance(device, str) or device not in ("cuda", EMULATOR)):
        raise UsageError(
            f"unknown device {shortened(repr(device), 40)}",
            code="unknown_device",
            mend="known: cuda, emulator",
        )
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(
            f"the path of a bundle is of type {type(path).__name__}; give a str or a Path",
            code="bad_call",
        )
    return LoadedKernels(kernel_set(read_archive(Path(path)), Path(path).name), device)


class LoadedKernels:
    """The kernels of a bundle: call it with the operation's inputs, in order or by name.

    Shapes are those of the bundle's kernel.toml. Keywords are options (`mask`), constants (`scale`,
    `eps`), and outputs to write to. The result is the output, or a tuple of the outputs in the
    order of kernel.toml, with the optional ones that `optional=("lse",)` names. UsageError
    `missing_input`, `unread_input`, `overlap` or `bad_call` for wrong arguments, `no_kernel` if
    neither a kernel nor a library takes the call.
    """

    def __init__(self, kernels: KernelSet, device: str | None) -> None:
        self.kernels = kernels
        self._emulated = device == EMULATOR
        self._ready: dict[Any, Prepared | Refused] = {}
        self._repeated: Any = None  # of PyTorch's tensors (torch_loaded.py), from the first on

    @property
    def operation(self) -> Operation:
        return self.kernels.operation

    def __repr__(self) -> str:
        names = ", ".join(program.name for program in self.kernels.programs.values())
        return f"<greenfast kernels for {self.operation.name}: {names}>"

    def __call__(self, *inputs: Any, optional: Names = (), **given: Any) -> Any:
        if self._repeated is not None:
            result = self._repeated(inputs, optional, given)
            if result is not None:
                return result
        tensors, options, constants = self._sorted(inputs, given)
        without = self._left_out(optional, tensors)
        first = next(iter(tensors.values()))
        framework = framework_of(first)
        if framework is None:
            return self._through_dlpack(tensors, {**options, **constants}, optional)
        if self._emulated:
            from greenfast.runtime.emulated import emulate

            return self._returned(
                emulate(self.kernels, framework, tensors, options, constants, without), without
            )
        why = self._unfit(framework, tensors)
        if not why:
            call = self._call(framework, tensors, options, constants, without)
            state = self._prepared(call, framework.device(first) or 0)
            if isinstance(state, Prepared):
                if state.copies:
                    tell_copies(self.operation.name, state.choice.why)
                elif framework.name == "torch" and len(tensors) == len(inputs):
                    self._keep(state, inputs, optional, given)
                return self._launched(state, framework, tensors, without)
            why = state.why
        return self._fallback(why, tensors, options, constants, without)

    def explain(self, *inputs: Any, optional: Names = (), **given: Any) -> Explanation:
        """Which kernel a call would run, and why; nothing is launched."""
        tensors, options, constants = self._sorted(inputs, given)
        without = self._left_out(optional, tensors)
        first = next(iter(tensors.values()))
        framework = framework_of(first)
        if framework is None:
            tensors = {name: through_dlpack(tensor) for name, tensor in tensors.items()}
            first = next(iter(tensors.values()))
            framework = framework_of(first)
            assert framework is not None  # it is PyTorch's or CuPy's now
        if self._emulated:
            from greenfast.runtime.emulated import explained

            return explained(self.kernels, framework, tensors, options, constants, without)
        state: Prepared | Refused
        if why := self._unfit(framework, tensors):
            state = Refused(why)
        else:
            call = self._call(framework, tensors, options, constants, without)
            state = self._prepared(call, framework.device(first) or 0)
        return explanation(self.kernels, state)

    # ---- steps of a call ----

    def _sorted(
        self, inputs: Sequence[Any], given: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Value], dict[str, Value]]:
        """Tensors, options and constants by name; UsageError for a name of none of them."""
        operation = self.operation
        names = [argument.name for argument in operation.tensors if not argument.output]
        if len(inputs) > len(names):
            raise UsageError(
                f"{operation.name} takes {len(names)} input{'s' if len(names) != 1 else ''} "
                f"({', '.join(names)}); got {len(inputs)}",
                code="bad_call",
            )
        may_be_none = {item.name for item in operation.tensors if item.read_when is not None}
        tensors = {
            name: tensor
            for name, tensor in zip(names, inputs, strict=False)
            if tensor is not None or name not in may_be_none
        }
        options, constants = self._default_options(), {}
        known_tensors = {argument.name for argument in operation.tensors}
        known_constants = {name for name, _ in operation.constants}
        unseen = {dim.name for dim in operation.unseen_dims}
        known_options = {*options, *unseen} - {"dtype"}
        for name, value in given.items():
            if name in known_tensors:
                if name in tensors:
                    raise UsageError(f"{name} is given twice", code="bad_call")
                if value is not None or name not in may_be_none:
                    tensors[name] = value
            elif name in unseen:
                options[name] = _size(name, value)
            elif name in known_options:
                options[name] = _option(operation, name, value)
            elif name in known_constants:
                if value is not None:
                    constants[name] = _number(name, value)
            else:
                known = sorted({*known_tensors, *known_constants, *known_options})
                raise UsageError(
                    f"{operation.name} has no argument {name!r}",
                    code="bad_call",
                    mend="known: " + ", ".join(known),
                )
        self._tell_by_inputs(tensors, options)
        unread = operation.unread(options)
        _require_inputs(operation, tensors, unread)
        options.pop("dtype", None)
        return tensors, options, constants

    def _tell_by_inputs(self, tensors: Mapping[str, Any], options: dict[str, Value]) -> None:
        """Set the options that say whether an input is read, where the kernels differ in them."""
        for name, values in self.operation.told_by_inputs.items():
            if len({program.compiled.get(name) for program in self.kernels.programs.values()}) > 1:
                options[name] = values[name in tensors]

    def _default_options(self) -> dict[str, Value]:
        """The value that all kernels share, else the operation's default."""
        options: dict[str, Value] = {}
        for name, default in self.operation.options:
            values = {program.compiled.get(name) for program in self.kernels.programs.values()}
            only = next(iter(values)) if len(values) == 1 else None
            options[name] = default if only is None else only
        for dim in self.operation.unseen_dims:
            values = {program.compiled.get(dim.name) for program in self.kernels.programs.values()}
            only = next(iter(values)) if len(values) == 1 else None
            if only is not None:
                options[dim.name] = only
            elif dim.default is not None:
                options[dim.name] = dim.default(options)
        return options

    def _left_out(self, optional: Names, tensors: Mapping[str, Any]) -> frozenset[str]:
        known = [argument.name for argument in self.operation.tensors if argument.optional]
        wanted = (optional,) if isinstance(optional, str) else optional or ()
        if not isinstance(wanted, Collection):
            raise UsageError(f"optional={optional!r} is not a list of outputs", code="bad_call")
        if unknown := [name for name in wanted if name not in known]:
            raise UsageError(
                f"{self.operation.name} has no optional output {unknown[0]!r}",
                code="bad_call",
                mend="known: " + (", ".join(sorted(known)) or "none"),
            )
        return frozenset(set(known) - set(wanted) - tensors.keys())

    def _unfit(self, framework: Framework, tensors: Mapping[str, Any]) -> str:
        """Why no kernel can read these tensors, whatever their shapes; empty when it can."""
        first = next(iter(tensors.values()))
        device = framework.device(first)
        if device is None:
            return NOT_ON_A_GPU
        for name, tensor in tensors.items():
            if framework_of(tensor) is not framework:
                return f"{name} is of type {type(tensor).__name__}, and another input is not"
            if framework.device(tensor) != device:
                return f"{name} is on another device than the other inputs"
        if framework.name == "torch":
            from greenfast.runtime.torch_checks import unfit

            if why := unfit(tensors.values()):
                return why
        self._require_apart(framework, tensors)
        return ""

    def _require_apart(self, framework: Framework, tensors: Mapping[str, Any]) -> None:
        """UsageError for an output given by the caller that shares memory with another tensor."""
        outputs = [item.name for item in self.operation.tensors if item.output]
        if not tensors.keys() & set(outputs):
            return
        spans = {}
        for name, tensor in tensors.items():
            address, (begin, end) = framework.address(tensor), span_of(framework.facts(tensor))
            spans[name] = address + begin, address + end
        for output in outputs:
            if output not in spans:
                continue
            require_no_repeats(output, framework.facts(tensors[output]))
            begin, end = spans[output]
            for name, (other_begin, other_end) in spans.items():
                if name != output and begin < other_end and other_begin < end:
                    raise UsageError(
                        f"the output {output} overlaps {name} in memory", code="overlap"
                    )

    def _call(
        self,
        framework: Framework,
        tensors: Mapping[str, Any],
        options: Mapping[str, Value],
        constants: Mapping[str, Value],
        without: frozenset[str],
    ) -> Call:
        addresses = {name: framework.address(tensor) for name, tensor in tensors.items()}
        return Call(
            {name: framework.facts(tensor) for name, tensor in tensors.items()},
            options,
            constants,
            without,
            misaligned(self.operation.pointer_bytes, addresses),
        )

    def _prepared(self, call: Call, device: int) -> Prepared | Refused:
        key = (
            device,
            tuple((name, *_key(facts)) for name, facts in call.tensors.items()),
            tuple(call.options.items()),
            tuple(call.constants.items()),
            call.without,
            call.misaligned,
        )
        state = self._ready.get(key)
        if state is None:
            if len(self._ready) >= MOST_PLANS:
                self._ready.clear()
            state = self._ready[key] = prepare(self.kernels, call, device, may_copy=True)
        return state

    def _keep(
        self, state: Prepared, inputs: tuple[Any, ...], optional: Names, given: dict[str, Any]
    ) -> None:
        """Recognise a call of PyTorch's tensors, all in order, when it is made again."""
        if self._repeated is None:
            from greenfast.runtime.torch_loaded import Repeated

            self._repeated = Repeated(self.operation)
        self._repeated.keep(state, inputs, optional, given)

    def _launched(
        self,
        state: Prepared,
        framework: Framework,
        tensors: dict[str, Any],
        without: frozenset[str],
    ) -> Any:
        plan, first = state.plan, next(iter(tensors.values()))
        for name, facts in plan.geometry.outputs.items():
            if name not in tensors:
                tensors[name] = framework.empty(facts, first)
        with plan.driver.on(plan.device):
            run(plan, framework, tensors, first, framework.stream(plan.device), state.copies)
        return self._returned(tensors, without)

    def _returned(self, tensors: Mapping[str, Any], without: frozenset[str]) -> Any:
        outputs = tuple(
            tensors[argument.name]
            for argument in self.operation.tensors
            if argument.output and argument.name not in without
        )
        return outputs[0] if len(outputs) == 1 else outputs

    def _through_dlpack(
        self,
        tensors: Mapping[str, Any],
        settings: Mapping[str, Any],
        optional: Names,
    ) -> Any:
        given = [item.name for item in self.operation.tensors if item.output]
        if written := sorted(set(given) & tensors.keys()):
            raise UsageError(
                f"{written[0]} cannot be written: arrays converted through DLPack are read-only",
                code="bad_call",
            )
        first = next(iter(tensors.values()))
        result = self(
            **{name: through_dlpack(tensor) for name, tensor in tensors.items()},
            optional=optional,
            **settings,
        )
        if isinstance(result, tuple):
            return tuple(returned_like(first, item) for item in result)
        return returned_like(first, result)

    def _fallback(
        self,
        why: str,
        tensors: Mapping[str, Any],
        options: Mapping[str, Value],
        constants: Mapping[str, Value],
        without: frozenset[str],
    ) -> Any:
        fallback: Callable[..., Mapping[str, Any]] | None = FALLBACKS.get(self.operation.name)
        if fallback is None:
            raise UsageError(
                f"no kernel of {self.kernels.origin} takes this call: {why}",
                code="no_kernel",
                mend=EMULATE if why == NOT_ON_A_GPU else "",
            )
        tell(self.operation.name, why)
        results = fallback(tensors, options, constants, without, why)
        for argument in self.operation.tensors:
            if argument.output and argument.name in tensors:
                tensors[argument.name][...] = results[argument.name]
                results = {**results, argument.name: tensors[argument.name]}
        return self._returned(results, without)


def _require_inputs(
    operation: Operation, tensors: Mapping[str, Any], unread: Collection[str]
) -> None:
    """UsageError for inputs that are missing, or that no kernel with these options reads."""
    inputs = [item for item in operation.tensors if not item.output]
    missing = [tensor.name for tensor in inputs if tensor.name not in {*tensors, *unread}]
    if missing:
        several = len(missing) > 1
        raise UsageError(
            f"the input{'s' * several} {', '.join(missing)} {'are' if several else 'is'} missing",
            code="missing_input",
        )
    for tensor in inputs:
        if tensor.name in tensors and tensor.name in unread and tensor.read_when is not None:
            raise UsageError(
                f"{tensor.name} is given, but these kernels do not read it: they do when "
                f"{tensor.read_when.text}",
                code="unread_input",
                mend=f"leave {tensor.name} out, or load kernels for that option",
            )


def _size(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} is {type(value).__name__}, not a whole number", code="bad_call")
    return value


def _option(operation: Operation, name: str, value: Any) -> Value:
    known = dict(operation.option_values).get(name)
    if not isinstance(value, (str, int, float)):
        kind = type(value).__name__
        mend = f"known: {', '.join(known)}" if known else ""
        raise UsageError(f"{name} is {kind}, not an option", code="bad_call", mend=mend)
    if known is not None and value not in known:
        raise UsageError(
            f"{operation.name} has no {name} {shortened(one_line(repr(value)), 40)}",
            code="bad_call",
            mend=f"known: {', '.join(known)}",
        )
    return value


def _number(name: str, value: Any) -> Value:
    """The constant as a finite number, also of NumPy's or PyTorch's scalars."""
    if isinstance(value, (str, bytes)):
        raise UsageError(f"{name} is text, not a number", code="bad_call")
    try:
        number: int | float = value if isinstance(value, int) else float(value)
        if math.isfinite(number):
            return number
    except (TypeError, ValueError, RuntimeError):
        raise UsageError(
            f"{name} is {type(value).__name__}, not a number", code="bad_call"
        ) from None
    except OverflowError:
        pass
    raise UsageError(f"{name} is not finite, or too large", code="bad_call")


def _key(facts: Any) -> tuple[Any, ...]:
    return facts.dtype, facts.shape, facts.strides
