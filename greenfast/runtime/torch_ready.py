"""A signature of a call on PyTorch's tensors that is prepared, and how it is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from greenfast.runtime import frameworks
from greenfast.runtime.calls import Prepared
from greenfast.runtime.layouts import misaligned
from greenfast.runtime.signatures import POINTER_BYTES, Place
from greenfast.runtime.torch_private import allocation, never, same_tensors

MOST_RENEWALS = 4  # of a signature's comparison, for other modes
TENSORS = frameworks.TorchTensors(torch)
SMALLEST_SCRATCH = 16  # bytes
current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)
current_device = getattr(torch._C, "_cuda_getDevice", lambda: 0)
one_device = torch.cuda.device_count() < 2


class Ready:
    """A prepared signature: how to recognise it, to allocate its outputs, and to launch it."""

    __slots__ = (
        "device", "launch", "new", "options", "ordinal", "outputs", "plan", "quick", "renewals",
        "same", "scratch",
    )  # fmt: skip

    def __init__(
        self, prepared: Prepared, inputs: tuple[Any, ...], options: Any, names: tuple[str, ...]
    ) -> None:
        self.plan, self.device = prepared.plan, inputs[0].device
        self.ordinal, self.launch = prepared.plan.device, prepared.plan.launch
        self.same, self.options, self.renewals = same_tensors(inputs), options, MOST_RENEWALS
        outputs = prepared.plan.geometry.outputs
        self.allocate(
            tuple(
                (outputs[name].shape, outputs[name].strides, TENSORS.dtype(outputs[name].dtype))
                for name in names
            )
        )
        self.scratch = tuple(
            (
                allocation((max(size, SMALLEST_SCRATCH),), (1,), torch.uint8, self.device),
                size if zero_fill else 0,
            )
            for _, size, zero_fill in prepared.plan.scratch
        )
        # Scratch memory, and addresses that are given in another order, take the longer way.
        self.quick = not prepared.plan.scratch and prepared.plan.names[-len(names) :] == names

    def allocate(self, outputs: tuple[tuple[Any, Any, Any], ...]) -> None:
        """Take shapes, strides and types of the outputs."""
        self.outputs = outputs
        self.new = tuple(allocation(*output, self.device) for output in outputs)

    def launch_with_scratch(self, addresses: list[int], stream: int) -> None:
        """Launch with new scratch memory, zeroed on `stream` where the kernel needs it."""
        driver, memory = self.plan.driver, []
        with driver.on(self.ordinal):  # a new thread has no context, and zeroing needs one
            for new, zeros in self.scratch:
                memory.append(new())  # it lives until the launch is queued
                addresses.append(memory[-1].data_ptr())
                if zeros:
                    driver.zero(addresses[-1], zeros, stream)
            self.launch(addresses, stream)

    def is_last(self, last: list[Ready | Nothing], inputs: tuple[Any, ...]) -> None:
        """Compare with this one first from now on; a mode may have changed since it was made."""
        if last[0] is self and self.renewals:
            self.same, self.renewals = same_tensors(inputs), self.renewals - 1
        last[0] = self


class Nothing:
    """Stands for the last signature before there was one."""

    same, options = staticmethod(never), None


def place_of(tensors: Mapping[str, Any]) -> Place:
    """Where PyTorch's tensors lie; PyTorch itself takes those that no kernel can read there."""
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    return Place(misaligned(POINTER_BYTES, addresses))


def layouts(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    """Properties of three tensors, apart from their memory; () for nested and compressed ones."""
    try:
        return (
            a.shape, b.shape, c.shape, a.stride(), b.stride(), c.stride(),
            a.dtype, b.dtype, c.dtype, a.get_device(), b.get_device(), c.get_device(),
        )  # fmt: skip
    except RuntimeError:
        return ()
