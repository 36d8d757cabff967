"""The inputs of a case and its correct outputs, by the kernel's reference.py; kept and shared."""

from __future__ import annotations

import math
import re
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from greenfast.search import compute_turns
from greenfast.search.cores import usable_cores, usable_memory_bytes
from greenfast.search.errors import Fault, GreenfastError, SpecError
from greenfast.search.kernels.spec import Argument, KernelSpec
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.expected import Arrays, CaseData, Expected
from greenfast.search.oracle.guarded_reference import GuardedReferences
from greenfast.search.oracle.known_outputs import KnownOutputs, outputs_key
from greenfast.search.oracle.not_finite import Planted, planted, planted_inputs, with_planted
from greenfast.search.oracle.read_tiles import TilesRead, WatchedTiles
from greenfast.search.oracle.reference_children import ReferenceChildren, children_for
from greenfast.search.oracle.reference_contract import (
    input_fault,
    output_fields,
    place_of,
    read_only,
    said_by,
)
from greenfast.search.oracle.reference_module import reference_module
from greenfast.search.oracle.storage import DTYPES

# Of case data; beyond it the least recently used is dropped. A long row of attention is 1.2 GB.
KEPT_BYTES = max(2 * 2**30, usable_memory_bytes() // 16)
Compute = Callable[[KernelSpec, Case], Arrays | None]


class CaseDataCache:
    """Case data, computed once and kept up to a number of bytes; safe for several threads.

    A thread that needs data which another is computing waits for it. Cases share data when they
    differ only in their name, their layout, and tiles that their recipe does not read.
    """

    def __init__(self, kept_bytes: int, children: ReferenceChildren | None = None) -> None:
        self.children = children or ReferenceChildren(0)
        self.guard: GuardedReferences | None = None
        self._kept_bytes, self._bytes, self._lock = kept_bytes, 0, threading.Lock()
        # Keys use id(kernel), because hashing a kernel walks its whole specification. The entry
        # holds the kernel, so that its id is not reused.
        self._futures: OrderedDict[Hashable, tuple[KernelSpec, Future[CaseData]]] = OrderedDict()
        # By kernel and recipe, the tiles that calls have read so far; None: all of them.
        self._names_read: dict[Hashable, frozenset[str] | None] = {}

    def keep_at_most(self, size_bytes: int) -> None:
        self._kept_bytes = size_bytes

    def get(self, kernel: KernelSpec, case: Case, compute: Compute | None) -> CaseData:
        """The data of `case`; SpecError when reference.py breaks its contract."""

        def computed() -> CaseData:
            return compute_case_data(kernel, case, compute)

        whole, key = (id(kernel), case), self._key(kernel, case)
        data = self._known(key, kernel, computed)
        read = data.tiles_read
        if read is not None:
            self._note(kernel, case, read)
        if key != whole and (read is None or not read.agrees(case.tiles)):
            return self._known(whole, kernel, computed)  # its recipe reads more tiles at times
        return data

    def _key(self, kernel: KernelSpec, case: Case) -> Hashable:
        """Equal for cases that share their data, as far as is known of their recipe."""
        whole = id(kernel), case
        names = self._names_read.get((id(kernel), case.inputs))
        if names is None or whole in self._futures:
            return whole
        read = tuple(tile for tile in case.tiles if tile[0] in names)
        return id(kernel), case.dims, case.options, case.inputs, case.seed, read

    def _note(self, kernel: KernelSpec, case: Case, read: TilesRead) -> None:
        recipe = id(kernel), case.inputs
        with self._lock:
            known = self._names_read.get(recipe, frozenset())
            self._names_read[recipe] = (
                None if known is None or read.names is None else known | read.names
            )

    def inputs(self, kernel: KernelSpec, case: Case) -> CaseData:
        """The data of `case` without expected outputs."""
        return self._known(
            (id(kernel), case, "inputs"),
            kernel,
            lambda: CaseData(_inputs_of(kernel, case, self.guard), {}),
        )

    def _known(
        self, key: Hashable, kernel: KernelSpec, compute: Callable[[], CaseData]
    ) -> CaseData:
        with self._lock:
            _, future = self._futures.get(key, (None, None))
            if future is not None:
                self._futures.move_to_end(key)
            else:
                created: Future[CaseData] = Future()
                self._futures[key] = kernel, created
        if future is None:
            future = created
            self._settle(key, future, compute)
        return future.result()

    def fill(self, kernel: KernelSpec, cases: Iterable[Case]) -> None:
        """Let one child compute all missing small cases. Without children, do nothing."""
        if not self.children.pool.count:
            return
        futures: dict[Case, Future[CaseData]] = {}
        with self._lock:
            for case in cases:
                small = _size_bytes(kernel, case) < compute_turns.LARGE_BYTES
                if (id(kernel), case) not in self._futures and small:
                    futures[case] = Future()
                    self._futures[id(kernel), case] = kernel, futures[case]
        if not futures:
            return
        contents: list[tuple[dict[str, np.ndarray], Arrays] | None] = [None] * len(futures)
        try:
            contents = self.children.computed(kernel, list(futures))
        finally:  # also after an error: other threads may already wait for these futures
            for (case, future), arrays in zip(futures.items(), contents, strict=True):
                self._settle((id(kernel), case), future, partial(_from_child, kernel, case, arrays))

    def _settle(
        self, key: Hashable, future: Future[CaseData], compute: Callable[[], CaseData]
    ) -> None:
        """Give `future` its result. An error drops the entry, so that the next call retries."""
        try:
            data = compute()
        except BaseException as error:
            with self._lock:
                self._futures.pop(key, None)
            future.set_exception(error)
            return
        future.set_result(data)
        self._make_room(data.nbytes)

    def _make_room(self, added_bytes: int) -> None:
        """Drop the least recently used data. Entries that are being computed are kept."""
        with self._lock:
            self._bytes += added_bytes
            while self._bytes > self._kept_bytes and len(self._futures) > 1:
                oldest = next(
                    (key for key, (_, future) in self._futures.items() if future.done()), None
                )
                if oldest is None:
                    break
                self._bytes -= self._futures.pop(oldest)[1].result().nbytes


_CACHE = CaseDataCache(KEPT_BYTES)


class _Shared:
    """Files that this process shares with others; None if it shares none."""

    known: KnownOutputs | None = None


_SHARED = _Shared()


def case_data(kernel: KernelSpec, case: Case, compute: Compute | None = None) -> CaseData:
    """Inputs and expected outputs of `case`; SpecError when reference.py breaks its contract.

    `compute` replaces the kernel's `reference`. Where it returns None, `reference` is called.
    """
    return _CACHE.get(kernel, case, compute)


def use_children(count: int | None = None) -> None:
    """Compute references in worker processes from now on, where there are cores to spare.

    For a single candidate the start-up would cost more than it saves.
    """
    if not _CACHE.children.pool.count:
        count = children_for(usable_cores()) if count is None else count
        _CACHE.children = ReferenceChildren(count)


def guard_references(deadline_s: float) -> None:
    """Compute the references of authors' kernels in children from now on.

    This process then loads only references that a child has loaded before.
    """
    if _CACHE.guard is None:
        _CACHE.guard = GuardedReferences(deadline_s)


def guard_deadline_s() -> float | None:
    """The deadline of `guard_references`; None if no guard watches this process."""
    return _CACHE.guard.deadline_s if _CACHE.guard is not None else None


def end_guard() -> None:
    """End the children of `guard_references`, and use none from now on."""
    guard, _CACHE.guard = _CACHE.guard, None
    if guard is not None:
        guard.close()


def keep_at_most(size_bytes: int) -> None:
    """Keep no more case data than that in this process."""
    _CACHE.keep_at_most(size_bytes)


def share_outputs(known: KnownOutputs) -> None:
    """Look for references in these files before computing them, and write new ones there."""
    _SHARED.known = known


def precompute(kernel: KernelSpec, cases: Iterable[Case]) -> None:
    """Compute the missing data of these cases in a worker process, if there are any."""
    _CACHE.fill(kernel, cases)


def compute_case_data(kernel: KernelSpec, case: Case, compute: Compute | None) -> CaseData:
    """The data of `case`, not kept; computed in this process unless a guard watches the kernel.

    `compute` goes before both.
    """
    guard = guard_of(kernel)
    if guard is not None:
        given = compute(kernel, case) if compute is not None else None
        if given:
            return _checked(kernel, case, _inputs_of(kernel, case, guard), given)
        arrays = guard.computed(kernel, case)
        if arrays is not None:
            return _from_child(kernel, case, arrays)
        compute = None
    put = planted(case.inputs)
    if put is not None:
        return _planted_data(kernel, case, put)
    module, size_bytes = kernel_module(kernel), _size_bytes(kernel, case)
    dims, options = dict(case.dims), dict(case.options)

    def outputs_of(inputs: dict[str, np.ndarray]) -> Any:
        outputs = elsewhere.result() if elsewhere is not None else None
        if outputs:
            return outputs
        with compute_turns.turn(size_bytes):
            return module.reference(dims, options, read_only(inputs))

    def checked() -> dict[str, Expected]:
        outputs = _authors(kernel, case, lambda: outputs_of(inputs))
        return _checked(kernel, case, inputs, outputs).outputs

    with ThreadPoolExecutor(1) as threads:
        # It makes its own inputs, in the time that they take here.
        elsewhere = threads.submit(compute, kernel, case) if compute is not None else None
        inputs, read = _inputs(kernel, case)
        outputs = _known_or(checked, lambda: outputs_key(kernel, case, inputs))
    return CaseData(inputs, outputs, tiles_read=read)


def inputs_alone(kernel: KernelSpec, case: Case) -> CaseData:
    """The inputs of `case` without expected outputs, for runs that are not compared."""
    return _CACHE.inputs(kernel, case)


def _inputs_of(
    kernel: KernelSpec, case: Case, guard: GuardedReferences | None
) -> dict[str, np.ndarray]:
    """The inputs of `case`, from a child where a guard watches the kernel."""
    if guard is not None and guard.watches(kernel):
        inputs = guard.inputs(kernel, case)
        if inputs is not None:
            _require_inputs(kernel, case, inputs)
            return inputs
    return _inputs(kernel, case)[0]


def _inputs(kernel: KernelSpec, case: Case) -> tuple[dict[str, np.ndarray], TilesRead]:
    dims, options, tiles = dict(case.dims), dict(case.options), WatchedTiles(case.tiles)

    def make() -> Any:
        with compute_turns.turn(_size_bytes(kernel, case)):
            return kernel_module(kernel).make_inputs(dims, options, case.inputs, case.seed, tiles)

    inputs = _authors(kernel, case, make)
    _require_inputs(kernel, case, inputs)
    return dict(inputs), tiles.read


def _known_or(
    compute: Callable[[], dict[str, Expected]], key_of: Callable[[], str]
) -> dict[str, Expected]:
    """The outputs from the shared files, or else computed by `compute` and written there."""
    if (known := _SHARED.known) is None:
        return compute()
    key = key_of()
    if (fields := known.get(key)) is not None:
        return {name: Expected(**each) for name, each in fields.items()}  # type: ignore[arg-type]
    outputs = compute()
    known.put(key, {name: _fields(expected) for name, expected in outputs.items()})
    return outputs


def _fields(expected: Expected) -> dict[str, np.ndarray | None]:
    return {field.name: getattr(expected, field.name) for field in fields(expected)}


def _authors(kernel: KernelSpec, case: Case, call: Callable[[], Any]) -> Any:
    """The result of the author's code; SpecError for its errors, with the line."""
    try:
        return call()
    except Fault:
        raise
    except MemoryError as error:  # of this machine: another one may have more
        raise Fault(
            f"{kernel.name}/reference.py: the reference of case {case.name} needs more memory than "
            "there is",
            code="reference_memory",
        ) from error
    except (Exception, SystemExit) as error:  # sys.exit() would end a worker
        raise _raised(kernel, case, error) from error


def _planted_data(kernel: KernelSpec, case: Case, put: Planted) -> CaseData:
    """The data of a case with a NaN or infinity, made from the plain case's data."""
    plain = case_data(kernel, replace(case, inputs=put.recipe))
    dims, options, module = dict(case.dims), dict(case.options), kernel_module(kernel)
    outputs = {
        name: {"value": each.value, "bound": each.bound} for name, each in plain.outputs.items()
    }

    def expected() -> dict[str, Expected]:
        arrays = with_planted(
            case.seed,
            put,
            plain.inputs,
            outputs,
            lambda inputs: module.reference(dims, options, read_only(inputs)),
        )
        return {name: Expected(rounded=None, **fields) for name, fields in arrays.items()}

    try:
        with compute_turns.turn(_size_bytes(kernel, case)):
            inputs = planted_inputs(case.seed, put, plain.inputs)
            key = partial(outputs_key, kernel, case, plain.inputs, put, case.seed)
            return CaseData(inputs, _known_or(expected, key), tiles_read=plain.tiles_read)
    except (Exception, SystemExit) as error:
        raise _raised(kernel, case, error) from error


def _from_child(
    kernel: KernelSpec, case: Case, arrays: tuple[dict[str, np.ndarray], Arrays] | None
) -> CaseData:
    """The data that a child computed; computed here where the child has none."""
    if arrays is None:
        return compute_case_data(kernel, case, None)
    if planted(case.inputs) is not None:
        inputs, outputs = arrays
        expected = {
            name: Expected(rounded=None, **each)  # type: ignore[arg-type]
            for name, each in outputs.items()
        }
        return CaseData(inputs, expected)
    return _checked(kernel, case, *arrays)


def _size_bytes(kernel: KernelSpec, case: Case) -> int:
    """Size of all tensors in float64."""
    dims = dict(case.dims)
    return 8 * sum(
        math.prod(int(dims[dim]) for dim in argument.shape)
        for argument in kernel.arguments
        if argument.kind != "scalar"
    )


def _checked(
    kernel: KernelSpec, case: Case, inputs: dict[str, np.ndarray], arrays: Any
) -> CaseData:
    """The results of reference.py, after checking that they keep its contract."""
    _require_inputs(kernel, case, inputs)
    outputs = {}
    for argument in kernel.arguments:
        if argument.kind == "output":
            fields, fault = output_fields(argument, arrays, _shape(argument, case))
            if fault:
                raise _failed(kernel, "reference", f"case {case.label}: {fault}")
            outputs[argument.name] = Expected(**fields)  # type: ignore[arg-type]
    return CaseData(inputs, outputs)


def _require_inputs(kernel: KernelSpec, case: Case, inputs: Any) -> None:
    """SpecError for inputs that break the contract of make_inputs."""
    for argument in kernel.arguments:
        if argument.kind != "input":
            continue
        dtype = dict(case.options)["dtype"] if argument.dtype == "dtype" else argument.dtype
        if fault := input_fault(argument, inputs, _shape(argument, case), DTYPES[str(dtype)]):
            raise _failed(kernel, "make_inputs", f"case {case.label}: {fault}")


def _shape(argument: Argument, case: Case) -> tuple[int, ...]:
    dims = dict(case.dims)
    return tuple(int(dims[dim]) for dim in argument.shape)


def _failed(kernel: KernelSpec, function: str, sentence: str) -> SpecError:
    """A fault of what a function of reference.py returns."""
    place, text = f"{kernel.name}/reference.py", kernel.reference_text
    if defined := re.search(rf"^def {function}\b", text, re.MULTILINE):
        place += f":{text.count(chr(10), 0, defined.start()) + 1}"
    return SpecError(f"{place}: {sentence}", code="reference_failed")


def _raised(kernel: KernelSpec, case: Case, error: BaseException) -> SpecError:
    file = f"{kernel.folder.name}/reference.py"
    return SpecError(raised(file, case.label, error), code="reference_failed")


def raised(file: str, case_label: str, error: BaseException) -> str:
    """The sentence about an error of the author's code, with its line."""
    kind = "" if isinstance(error, GreenfastError) else f"{type(error).__name__}: "
    return f"{place_of(error, file)}: case {case_label}: {kind}{said_by(error)}"


def guard_of(kernel: KernelSpec) -> GuardedReferences | None:
    """The guard that watches this kernel's reference; None if it is called in this process."""
    guard = _CACHE.guard
    return guard if guard is not None and guard.watches(kernel) else None


def kernel_module(kernel: KernelSpec) -> types.ModuleType:
    """The kernel's reference.py, loaded; SpecError as in `reference_module`."""
    guard = guard_of(kernel)
    if guard is not None:
        guard.require_loads(kernel)
    return reference_module(kernel.folder.name, kernel.reference_text, kernel.reference_uses)
