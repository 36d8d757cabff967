"""A kernel's reference.py: inputs for a case, and what right outputs are."""

from __future__ import annotations

import builtins
import math
import sys
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from greenfast.search import compute_turns
from greenfast.search.cores import usable_cores
from greenfast.search.digest import text_digest
from greenfast.search.errors import Fault, SpecError
from greenfast.search.kernels.reference_text import importable_name
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.reference_children import ReferenceChildren, children_for

KEPT_BYTES = 2 * 2**30  # of answers, the least recently used given up first


def frobenius_norm(values: np.ndarray) -> float:
    """Without BLAS, whose threads and locks make many callers wait for each other."""
    flat = values.ravel()
    return math.sqrt(float(np.einsum("i,i->", flat, flat)))


@dataclass(frozen=True)
class Expected:
    """One output: `value` in float64, the pointwise `bound` on |output - value|, and a float64 model in which only
    stored values are `rounded` (None: the pointwise bound alone holds). All have the output's shape."""

    value: np.ndarray
    bound: np.ndarray
    rounded: np.ndarray | None

    @cached_property
    def finite(self) -> np.ndarray:
        return np.isfinite(self.value)

    @cached_property
    def all_finite(self) -> bool:
        return bool(self.finite.all())

    @cached_property
    def norm(self) -> float:
        """Frobenius, of the finite elements."""
        return frobenius_norm(self.value[self.finite])

    @cached_property
    def rounding(self) -> float:
        """The same norm of what rounding alone costs."""
        return frobenius_norm((self.rounded - self.value)[self.finite])


@dataclass(frozen=True)
class CaseData:
    """Inputs by argument name (logical order, storage dtype) and the expected outputs."""

    inputs: dict[str, np.ndarray]
    outputs: dict[str, Expected]
    laid_out: dict[Hashable, Any] = field(
        default_factory=dict, compare=False
    )  # tensors made of it, to make them once

    @property
    def nbytes(self) -> int:
        arrays = [
            *self.inputs.values(),
            *(
                array
                for output in self.outputs.values()
                for array in (output.value, output.bound, output.rounded)
                if array is not None
            ),
        ]
        return sum(one.nbytes for one in arrays) + sum(
            input_.nbytes for input_ in self.inputs.values()
        )  # once more laid out


Arrays = dict[str, dict[str, np.ndarray | None]]  # output -> the fields of Expected
Compute = Callable[[KernelSpec, Case], Arrays | None]


class CaseDataCache:
    """What was computed once, up to a number of bytes. Who asks for what is being computed waits for it."""

    def __init__(self, kept_bytes: int, children: ReferenceChildren = ReferenceChildren(0)) -> None:
        self._kept_bytes, self._bytes, self._lock, self.children = (
            kept_bytes,
            0,
            threading.Lock(),
            children,
        )
        # The key holds the kernel's identity, since its hash walks the whole specification; the entry keeps it alive.
        self._futures: OrderedDict[Hashable, tuple[KernelSpec, Future[CaseData]]] = OrderedDict()

    def get(self, kernel: KernelSpec, case: Case, compute: Compute | None) -> CaseData:
        key = id(kernel), case
        with self._lock:
            _, future = self._futures.get(key, (None, None))
            if future is not None:
                self._futures.move_to_end(key)
            else:
                mine: Future[CaseData] = Future()
                self._futures[key] = kernel, mine
        if future is None:
            future = self._settled(key, mine, lambda: compute_case_data(kernel, case, compute))
        return future.result()

    def fill(self, kernel: KernelSpec, cases: Iterable[Case]) -> None:
        """Have what is missing and small computed by a child, all at once, where there are children."""
        if not self.children.count:
            return
        mine: dict[Case, Future[CaseData]] = {}
        with self._lock:
            for case in cases:
                if (id(kernel), case) not in self._futures and _size_bytes(
                    kernel, case
                ) < compute_turns.LARGE_BYTES:
                    mine[case] = Future()
                    self._futures[id(kernel), case] = kernel, mine[case]
        if not mine:
            return
        try:
            found = self.children.computed(kernel, list(mine))
        except BaseException:
            found = [None] * len(mine)  # others may wait for these already
            raise
        finally:
            for (case, future), arrays in zip(mine.items(), found):
                self._settled(
                    (id(kernel), case),
                    future,
                    lambda: (
                        compute_case_data(kernel, case, None)
                        if arrays is None
                        else _answer(kernel, case, *arrays)
                    ),
                )

    def _settled(
        self, key: Hashable, future: Future[CaseData], compute: Callable[[], CaseData]
    ) -> Future[CaseData]:
        """Computed, or failed and forgotten."""
        try:
            found = compute()
        except BaseException as error:
            with self._lock:
                self._futures.pop(key, None)
            future.set_exception(error)
            return future
        future.set_result(found)
        self._count(found)
        return future

    def _count(self, found: CaseData) -> None:
        """Give up what was used least recently; what is still being computed stays. Nothing is walked while there is room."""
        with self._lock:
            self._bytes += found.nbytes
            while self._bytes > self._kept_bytes and len(self._futures) > 1:
                oldest = next(
                    (key for key, (_, future) in self._futures.items() if future.done()), None
                )
                if oldest is None:
                    break
                self._bytes -= self._futures.pop(oldest)[1].result().nbytes


_CACHE = CaseDataCache(KEPT_BYTES)


def case_data(kernel: KernelSpec, case: Case, compute: Compute | None = None) -> CaseData:
    """Inputs and expected outputs of `case`; SpecError when reference.py does not keep its contract.

    `compute` gives what the kernel's `reference` would, from elsewhere; None from it: `reference` itself is called.
    """
    return _CACHE.get(kernel, case, compute)


def use_children() -> None:
    """For many candidates, where there are cores to spare: from now on children compute what `expect` names. One candidate
    is done before a child has started."""
    if not _CACHE.children.count:
        _CACHE.children = ReferenceChildren(children_for(usable_cores()))


def precompute(kernel: KernelSpec, cases: Iterable[Case]) -> None:
    """All of these will be asked for: where children are used, one computes what is missing."""
    _CACHE.fill(kernel, cases)


def compute_case_data(kernel: KernelSpec, case: Case, compute: Compute | None) -> CaseData:
    module, size_bytes = kernel_module(kernel), _size_bytes(kernel, case)
    dims, options = dict(case.dims), dict(case.options)
    try:
        with compute_turns.turn(size_bytes):
            inputs = module.make_inputs(dims, options, case.inputs, case.seed, dict(case.tiles))
        found = compute(kernel, case) if compute is not None else None
        if not found:
            with compute_turns.turn(size_bytes):
                found = module.reference(dims, options, inputs)
    except Fault:
        raise
    except Exception as error:  # the author's code: any of its errors is the author's
        raise _failed(kernel, f"case {case.name}: {type(error).__name__}: {error}") from error
    return _answer(kernel, case, inputs, found)


def _size_bytes(kernel: KernelSpec, case: Case) -> int:
    """Of all tensors in float64."""
    dims = dict(case.dims)
    return 8 * sum(
        math.prod(int(dims[dim]) for dim in argument.shape)
        for argument in kernel.arguments
        if argument.kind != "scalar"
    )


def _answer(
    kernel: KernelSpec, case: Case, inputs: dict[str, np.ndarray], found: Arrays
) -> CaseData:
    """What reference.py gave, held to its contract."""
    dims = dict(case.dims)
    try:
        outputs = {name: Expected(**one) for name, one in found.items()}
    except Exception as error:
        raise _failed(kernel, f"case {case.name}: {type(error).__name__}: {error}") from error
    for argument in kernel.arguments:
        shape = tuple(int(dims[dim]) for dim in argument.shape)
        if argument.kind == "input" and inputs.get(argument.name, np.empty(0)).shape != shape:
            raise _failed(kernel, f"make_inputs gave {argument.name} another shape than {shape}")
        if argument.kind == "output":
            if argument.name not in outputs or outputs[argument.name].value.shape != shape:
                raise _failed(kernel, f"reference gave {argument.name} another shape than {shape}")
            if (
                np.isnan(outputs[argument.name].value).any()
                or np.isnan(outputs[argument.name].bound).any()
            ):
                raise _failed(
                    kernel, f"case {case.name}: the reference of {argument.name} holds NaN"
                )
    return CaseData(inputs, outputs)


def _failed(kernel: KernelSpec, what: str) -> SpecError:
    return SpecError(f"{kernel.name}/reference.py: {what}", code="reference_failed")


def kernel_module(kernel: KernelSpec) -> types.ModuleType:
    """The kernel's reference.py, loaded; SpecError as below."""
    return reference_module(kernel.folder.name, kernel.reference_text, kernel.reference_uses)


def described_module(request: Mapping[str, Any]) -> types.ModuleType:
    """In a child: that of the kernel which `described_kernel` described."""
    return reference_module(request["name"], request["text"], tuple(map(tuple, request["uses"])))


@lru_cache(maxsize=16)
def reference_module(
    name: str, text: str, uses: tuple[tuple[str, str], ...] = ()
) -> types.ModuleType:
    """reference.py, loaded, with those of the kernels that it builds on to import; SpecError when it lacks a function."""
    used = {importable_name(other): reference_module(other, its_text) for other, its_text in uses}
    texts = "".join((text, *(its_text for _, its_text in uses)))
    module = types.ModuleType(f"greenfast_reference_{name}_{text_digest(texts)[:8]}")
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _importing(used)}
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, f"{name}/reference.py", "exec"), module.__dict__)
    except Exception as error:
        raise SpecError(
            f"{name}/reference.py does not load: {type(error).__name__}: {error}",
            code="reference_failed",
        ) from error
    for needed in ("make_inputs", "reference"):
        if not callable(getattr(module, needed, None)):
            raise SpecError(
                f"{name}/reference.py has no function {needed}", code="reference_failed"
            )
    return module


def _importing(used: Mapping[str, types.ModuleType]) -> Callable[..., types.ModuleType]:
    """Python's import with `used` found by their plain names. They are not in sys.modules, which is everybody's: another
    kernel may build on another text of the same name."""
    return lambda name, *rest, **more: used.get(name) or __import__(name, *rest, **more)
