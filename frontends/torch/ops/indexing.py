"""Rows at indices."""

from __future__ import annotations

from headrace.frontends.building import Value
from headrace.frontends.torch.node import Node
from headrace.frontends.torch.ops import converts


@converts("embedding")
def _embedding(n: Node) -> Value:
    return n.op("gather", n["weight"], n["indices"], axis=0)


@converts("index_select")
def _index_select(n: Node) -> Value:
    x = n["self"]
    return n.done(n.op("gather", x, n.reshape(n["index"], (n["index"].type.elements,)), axis=n.dim("dim", x.rank)))


@converts("gather")
def _gather(n: Node) -> Value:
    x = n["self"]
    return n.op("gather_elements", x, n["index"], axis=n.dim("dim", x.rank))
