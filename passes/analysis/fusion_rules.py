"""Which stages share a section by rule: patterns of op types, built in or from a file of the user's.

A file is a YAML list of rules. A rule has a name, a priority (higher first) and a pattern of named nodes; a node has an
op type, and names the nodes that take its result as its `child` or `children`. A node that is not `required` may be
missing. The first node of the pattern is where a match begins.

    - name: gemm_act
      priority: 1
      pattern:
        gemm: {op_type: matmul, child: act}
        act:  {op_type: gelu, required: false}

Types are names of tensor ops without the dialect, or the classes `elementwise`, `norm` and `any`. A match is a run of
stages in section order that belong to the nodes; it ends where a stage matches none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from xdsl.ir import Operation

from headrace.dialects.dataflow.ops import BufferOp, StageOp
from headrace.dialects.support.diagnostics import Collector, CompileError, nearest
from headrace.dialects.tensor.elementwise import OPS as ELEMENTWISE_OPS

ELEMENTWISE = frozenset(cls.name.removeprefix("tensor.") for cls in ELEMENTWISE_OPS)
CLASSES: dict[str, frozenset[str]] = {
    "elementwise": ELEMENTWISE,
    "norm": frozenset({"layer_norm", "rms_norm", "batch_norm", "group_norm"}),
}


@dataclass(frozen=True)
class Node:
    """One node of a pattern: the op type of its stage's first op, and whether it must be there."""

    name: str
    op_type: str
    children: tuple[str, ...] = ()
    required: bool = True

    def fits(self, kinds: frozenset[str]) -> bool:
        """Whether a stage of these op types can stand for it."""
        return self.op_type == "any" or bool(kinds & CLASSES.get(self.op_type, frozenset({self.op_type})))


@dataclass(frozen=True)
class FusionRule:
    """A pattern of stages that share a section."""

    name: str
    nodes: tuple[Node, ...]
    priority: int = 0

    def match(self, stages: Sequence[Operation]) -> int:
        """How many of the first stages the pattern covers; 0 when one that is required is missing."""
        by_name = {node.name: node for node in self.nodes}
        taken: dict[str, Operation] = {}
        count = 0
        for stage in stages:
            kinds = _kinds(stage)
            if not taken:
                open_nodes = [self.nodes[0]]
            else:
                open_nodes = [
                    by_name[child]
                    for name, parent in taken.items()
                    for child in by_name[name].children
                    if child not in taken and _feeds(parent, stage)
                ]
            node = next((n for n in open_nodes if n.fits(kinds)), None)
            if node is None:
                break
            taken[node.name] = stage
            count += 1
        complete = all(node.name in taken for node in self.nodes if node.required)
        return count if complete else 0


@dataclass(frozen=True)
class FusionRules:
    """Rules in the order in which they are tried."""

    rules: tuple[FusionRule, ...]

    def matched(self, stages: Sequence[Operation]) -> int:
        """How many of the first stages belong together by the first rule that matches, 0 when none does."""
        return next((n for rule in self.rules if (n := rule.match(stages))), 0)


def _kinds(stage: Operation) -> frozenset[str]:
    if not isinstance(stage, StageOp):
        return frozenset({stage.name.removeprefix("dataflow.")})
    return frozenset(op.name.removeprefix("tensor.") for op in stage.body.block.ops if op.operands)


def _feeds(maker: Operation, taker: Operation) -> bool:
    for value in taker.operands:
        owner = value.owner
        made = owner.ins if isinstance(owner, BufferOp) else (value,)
        if any(one.owner is maker for one in made):
            return True
    return False


def _chain(name: str, *types: str, priority: int = 0) -> FusionRule:
    nodes = [Node(f"n{i}", kind, (f"n{i + 1}",) if i + 1 < len(types) else ()) for i, kind in enumerate(types)]
    return FusionRule(name, tuple(nodes), priority)


BUILT_IN = (
    _chain("attention", "matmul", "softmax", "matmul", priority=3),
    _chain("feed_forward", "matmul", "elementwise", "matmul", priority=2),
    _chain("norm_gemm", "norm", "matmul", priority=1),
    _chain("gemm_elementwise", "matmul", "elementwise"),
)


def fusion_rules(path: str) -> FusionRules:
    """The rules of a file, before the built-in ones; only those without a path. `CompileError` lists what is wrong."""
    given = _read(Path(path)) if path else ()
    return FusionRules((*sorted(given, key=lambda r: -r.priority), *BUILT_IN))


def _read(path: Path) -> tuple[FusionRule, ...]:
    try:
        import yaml
    except ImportError:
        raise CompileError(
            "missing-extra", "fusion rules need PyYAML", fix="pip install 'headrace[rules]'", location=str(path)
        ) from None
    try:
        document: Any = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise CompileError("no-such-file", f"cannot read '{path}': {error.strerror}") from None
    except yaml.YAMLError as error:
        raise CompileError("bad-rules", f"{path}: not YAML: {error}") from None
    found = Collector()
    rules = (
        [_rule(one, i, str(path), found) for i, one in enumerate(cast("list[Any]", document or []))]
        if isinstance(document, list | None)
        else []
    )
    if not isinstance(document, list | None):
        found.add("bad-rules", f"{path}: rules are a list", fix="- name: gemm_act")
    found.raise_if_any()
    return tuple(rule for rule in rules if rule is not None)


KEYS = ("name", "priority", "pattern")
NODE_KEYS = ("op_type", "child", "children", "required")


def _rule(given: Any, index: int, path: str, found: Collector) -> FusionRule | None:
    where = f"{path}: rule {index + 1}"
    if not isinstance(given, Mapping) or not isinstance(cast("Any", given).get("pattern"), Mapping):
        found.add("bad-rules", f"{where} has no pattern", fix="pattern: {gemm: {op_type: matmul}}")
        return None
    rule = cast("Mapping[str, Any]", given)
    for key in rule:
        if key not in KEYS:
            found.add("bad-rules", f"{where}: there is no key '{key}'", fix=nearest(str(key), KEYS))
    pattern = cast("Mapping[str, Any]", rule["pattern"])
    nodes: list[Node] = []
    for name, node in pattern.items():
        if not isinstance(node, Mapping) or "op_type" not in node:
            found.add("bad-rules", f"{where}: node '{name}' has no op_type")
            continue
        fields = cast("Mapping[str, Any]", node)
        for key in fields:
            if key not in NODE_KEYS:
                found.add("bad-rules", f"{where}: node '{name}': there is no key '{key}'", fix=nearest(key, NODE_KEYS))
        children = [str(x) for x in fields.get("children") or filter(None, [fields.get("child")])]
        for child in children:
            if child not in pattern:
                found.add("bad-rules", f"{where}: node '{name}' names '{child}'", fix=nearest(child, pattern))
        nodes.append(Node(str(name), str(fields["op_type"]), tuple(children), bool(fields.get("required", True))))
    if not nodes:
        found.add("bad-rules", f"{where} has an empty pattern")
        return None
    return FusionRule(str(rule.get("name", f"rule {index + 1}")), tuple(nodes), int(rule.get("priority", 0)))
