"""How many waves of blocks a kernel needs, which limits how far a measured time holds.

A GPU runs a certain number of blocks of a kernel at a time. One block more needs another wave,
which takes as long as the first, while the library, with other tiles, may need none.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from bench.gpu.set_files import Built
from bench.results import Row
from greenfast.search.devices.facts import Device
from greenfast.search.devices.occupancy import occupancy
from greenfast.search.kernels.expressions import Expression, Value, expression

MANY = 8  # waves: with so many, one more is little


@dataclass(frozen=True)
class Waves:
    """The blocks of a kernel as an expression of the dims, and how many the GPU runs at a time."""

    blocks: Expression
    at_once: int

    def of(self, dims: Mapping[str, Value]) -> int:
        return math.ceil(self.blocks(dims) / self.at_once)

    def limit(self, point: Mapping[str, Value], farthest: Mapping[str, Value], ratio: float) -> Row:
        """The condition of a rule under which waves alone leave the kernel faster than the library.

        `point`: dims that were measured, with `ratio` of the library's time, at most 1. Empty if
        the `farthest` dims of the rule meet it, too.
        """
        waves = self.of(point)
        most = int(waves / ratio)
        if waves >= MANY or self.of(farthest) <= most:
            return {}
        return {"value": self.blocks.text, "above": 0, "at_most": most * self.at_once}


def waves_of(kernel: Built, device: Device) -> Waves:
    """Of the first launch of a kernel, which has the row tiles."""
    launch = json.loads(kernel.files["launch.json"])
    entry = launch["entries"][0]
    (figures,) = (item for item in kernel.figures if item.entry == entry["entry"])
    resident = occupancy(
        device,
        figures.registers,
        math.prod(entry["block"]),
        figures.smem_static_bytes + entry["smem_dynamic_bytes"],
    )
    constants = {**launch["constants"], "sm_count": launch["sm_count"]}
    text = " * ".join(f"({folded(size, constants)})" for size in entry["grid"])
    at_once = resident.blocks_per_sm * device.multiprocessors
    return Waves(expression(folded(text, {}), "blocks"), at_once)


def folded(text: str, constants: Mapping[str, Value]) -> str:
    """The expression with the constants' values, as far as they decide it."""
    return ast.unparse(_Folding(constants).visit(ast.parse(text, mode="eval")))


class _Folding(ast.NodeTransformer):
    def __init__(self, constants: Mapping[str, Value]) -> None:
        self._constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._constants[node.id]) if node.id in self._constants else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self.visit(node.test)
        if isinstance(test, ast.Constant):
            chosen: ast.expr = self.visit(node.body if test.value else node.orelse)
            return chosen
        return ast.IfExp(test, self.visit(node.body), self.visit(node.orelse))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        arguments = [self.visit(item) for item in node.args]
        return _decided(ast.Call(node.func, arguments, []), arguments)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        sides = [self.visit(item) for item in (node.left, *node.comparators)]
        return _decided(ast.Compare(sides[0], node.ops, sides[1:]), sides)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.Mult):
            if _is_one(left):
                return right
            if _is_one(right):
                return left
        return _decided(ast.BinOp(left, node.op, right), [left, right])


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _decided(node: ast.expr, parts: list[ast.expr]) -> ast.expr:
    """The constant that the node is, where its parts are constants."""
    if not all(isinstance(part, ast.Constant) for part in parts):
        return node
    return ast.Constant(expression(ast.unparse(node), "a constant part")({}))
