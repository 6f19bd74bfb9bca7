"""Classification losses."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.frontends.building import Refused, Value
from headrace.frontends.onnx.node import Node
from headrace.frontends.onnx.ops import converts


@converts("NegativeLogLikelihoodLoss")
def _negative_log_likelihood(n: Node) -> Value:
    return _loss(n, n[0], n[1], n.get(2))


@converts("SoftmaxCrossEntropyLoss")
def _softmax_cross_entropy(n: Node) -> Sequence[Value]:
    logs = n.op("log_softmax", n[0], axis=1)
    return (_loss(n, logs, n[1], n.get(2)), logs)[: max(1, len(n.outputs))]


def _loss(n: Node, logs: Value, target: Value, weight: Value | None) -> Value:
    """-weight[target] · logs[target] along dim 1; classes equal to ignore_index count nothing."""
    ignore, reduction = n.int("ignore_index", None), n.string("reduction", "mean")
    if target.rank < 1 or logs.rank != target.rank + 1 or reduction not in ("none", "sum", "mean"):
        raise Refused(f"target {target.type} does not fit {logs.type}, or reduction is '{reduction}'", code="bad-node")
    target = target if target.dtype in ("i32", "i64") else n.cast(target, "i64")
    counts: Value | None = None
    if ignore is not None:
        counted = n.op("not_equal", target, n.scalar(ignore, target.dtype))
        target = n.op("select", counted, target, n.scalar(0, target.dtype))
        counts = n.cast(counted, logs.dtype)
    if weight is not None:
        each = n.op("gather", weight, target, axis=0)
        counts = each if counts is None else n.op("mul", each, counts)
    at = n.reshape(target, (target.shape[0], 1, *target.shape[1:]))
    picked = n.reshape(n.op("gather_elements", logs, at, axis=1), target.shape)
    loss = n.op("neg", picked)
    if counts is not None:
        loss = n.op("mul", loss, counts)
    if reduction == "none":
        return loss
    axes = tuple(range(loss.rank))
    if reduction == "mean" and counts is None:
        return n.op("reduce_mean", loss, axes=axes, keepdims=False)
    total = n.op("reduce_sum", loss, axes=axes, keepdims=False)
    if reduction == "sum" or counts is None:
        return total
    return n.op("div", total, n.op("reduce_sum", counts, axes=axes, keepdims=False))
