"""Mixtures of experts without their sort.

transformers has a token's experts compute in three moves: rows (a token and one of its experts) are sorted by expert,
each run of rows is multiplied by the matrices of its expert, and the results are put back in order. Where runs end is
data, so a static program has to be ready for all rows to go to any expert, and sorting and counting gain nothing. What
happens between the sort and its undoing is done row by row, so it can be done on rows in any order:

* `slots`: the rows as they come, each with the matrices of its expert, for as many rows as experts or fewer (decode);
* `dense`: every token with every expert, what it did not choose left out of the sum. Every matrix is read once, for
  experts / experts of a token times the multiplications;
* `blocks`: rows in blocks of some size, each of one expert and each with the matrices of it. How many blocks there can
  be is known however tokens choose: an expert fills its last one up with rows that nobody reads. Nothing is dropped.
  A row's place is counted, not sorted: how many tokens before chose its expert, behind the blocks of experts before.

Which one is by what reading matrices and multiplying by them cost. A graph in which anything else happens to a row is
left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

GROUPED = ("transformers.grouped_mm_fallback.default", "aten._grouped_mm.default")
"""Products run by run: rows, the matrices of experts, and where the run of each ends."""
ROWS_PER_READ = 256
"""Rows that are multiplied by a matrix in about the time in which it is read."""
LARGEST_BLOCK = 1024
LESS = 1.5
"""Blocks must cost that many times less than dense rows: they are put in place and back."""


def unsort(graph: Any) -> int:
    """Rewrite the mixtures of experts of a graph; how many there were."""
    found = 0
    if any(_kind(node) in GROUPED for node in graph.nodes):
        for node in list(graph.nodes):
            if _kind(node) in ("aten.sort.default", "aten.sort.stable"):
                found += _Mixture(graph, node).rewrite()
    return found


def _kind(node: Any) -> str:
    if node.op != "call_function":
        return node.op
    return "getitem" if getattr(node.target, "__name__", "") == "getitem" else str(node.target).replace("::", ".")


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _value(node: Any) -> Any:
    return node.meta["val"]


class _Mixture:
    """What depends on one sort."""

    def __init__(self, graph: Any, sort: Any) -> None:
        self.graph = graph
        self.sort = sort
        self.roles: dict[Any, str] = {}
        """The nodes that depend on the sort: `expert`, `slot` and `token` number a row's expert, the row itself and its
        token; `number` is the expert as a float, `counts` and `ends` how many rows experts have and where these end;
        `inverse` undoes the sort; `parts` and `rows` are what is done row by row, `back` rows in order, `view` those of
        each token, and `sums` their sums; a `check` is of a type."""
        self.tokens = self.chosen = self.experts = 0
        self.made: dict[Any, Any] = {}
        self.how = "dense"
        self.block = self.blocks = 0
        """Rows of a block, and how many blocks there are at most."""
        self.places: tuple[Any, Any, Any] | None = None

    @property
    def dense(self) -> bool:
        """Whether every token goes through every expert."""
        return self.how == "dense"

    def rewrite(self) -> bool:
        """Rewrite it; False when it is something else."""
        if not self._routes() or not self._roles():
            return False
        self._decide()
        if self.dense and any(role == "back" and not self._summed(node) for node, role in self.roles.items()):
            return False
        for node, role in list(self.roles.items()):
            if role in ("parts", "rows"):
                self.made[node] = self._row(node)
            elif role == "back" and self.how == "blocks":
                node.replace_all_uses_with(self._from_blocks(node, self.made[node.args[0]]))
            elif role == "back" and not self.dense:
                node.replace_all_uses_with(self._in_full(node, self.made[node.args[0]]))
            elif role == "sums" and self.dense:
                node.replace_all_uses_with(self._sum(node, self.made[node.args[0].args[0].args[0]]))
        for node in (*reversed(self.roles), self.sort):
            if not node.users:
                self.graph.erase_node(node)
        return True

    def _decide(self) -> None:
        """Choose how rows get to experts, by how many matrices are read and how many rows are multiplied by each."""

        def cost(reads: int, rows: int) -> float:
            return reads * (1 + rows / ROWS_PER_READ)

        rows = self.tokens * self.chosen
        if rows <= self.experts:
            self.how = "slots"
            return
        sizes = [1 << i for i in range(LARGEST_BLOCK.bit_length())]
        most = {size: _rounded(min((rows + self.experts * (size - 1)) // size, rows)) for size in sizes}
        self.block = min(sizes, key=lambda size: cost(most[size], size))
        self.blocks = most[self.block]
        cheap = cost(self.blocks, self.block) * LESS < cost(self.experts, self.tokens)
        self.how = "blocks" if cheap else "dense"

    # What it is

    def _routes(self) -> bool:
        """Whether what is sorted are the experts that a top-k chose, which differ from one another for a token."""
        source = self.sort.args[0]
        while _kind(source) in ("aten.view.default", "aten.reshape.default", "aten.clone.default"):
            source = source.args[0]
        top = source.args[0] if _kind(source) == "getitem" and source.args[1] == 1 else None
        if top is None or _kind(top) != "aten.topk.default" or len(_shape(self.sort.args[0])) != 1:
            return False
        scores, chosen = _shape(top.args[0]), _shape(source)
        along = top.args[2] if len(top.args) > 2 else -1
        if len(scores) != 2 or along % 2 != 1:
            return False
        if not all(type(size) is int for size in (*scores, *chosen)):
            return False  # it depends on the sizes which order is good
        self.experts, (self.tokens, self.chosen) = scores[1], chosen
        return self.tokens * self.chosen > 1

    def _roles(self) -> bool:
        """Find what each node is; False when one is none of that."""
        reached: set[Any] = {self.sort}
        for node in self.graph.nodes:
            if node in reached or not any(x in reached for x in node.all_input_nodes):
                continue
            role = self._role(node)
            if not role:
                return False
            self.roles[node] = role
            if role != "sums":
                reached.add(node)
        return "back" in self.roles.values()

    def _is(self, node: Any, *roles: str) -> bool:
        return self.roles.get(node, "") in roles

    def _role(self, node: Any) -> str:
        kind, args = _kind(node), node.args
        known = [self.roles[x] for x in node.all_input_nodes if x in self.roles]
        if kind == "aten._assert_tensor_metadata.default":
            return "check"
        if kind == "getitem" and args[0] is self.sort:
            return "slot" if args[1] else "expert"
        if kind in ("aten.div.Tensor_mode", "aten.floor_divide.default") and known == ["slot"]:
            floors = kind != "aten.div.Tensor_mode" or node.kwargs.get("rounding_mode") == "floor"
            return "token" if floors and args[1] == self.chosen else ""
        if kind == "aten._to_copy.default" and known == ["expert"]:
            return "number"
        if kind == "aten.histc.default" and known in (["number"], ["expert"]):
            return "counts" if tuple(args[1:]) == (self.experts, 0, self.experts - 1) else ""
        if kind == "aten.cumsum.default" and known == ["counts"]:
            return "ends"
        if kind == "aten.index_put.default":
            return "inverse" if self._inverts(node) else ""
        if kind == "aten.index.Tensor":
            return self._picks(node)
        if kind in GROUPED:
            x, weight, ends, *more = (*args, *node.kwargs.values())
            if any(part is not None for part in more):
                return ""
            fits = self._is(x, "rows") and self._is(ends, "ends") and weight not in self.roles
            return "rows" if fits and len(_shape(x)) == 2 and _shape(weight)[0] == self.experts else ""
        if kind == "aten.view.default" and known == ["back"]:
            return "view"
        if kind == "aten.sum.dim_IntList" and known == ["view"]:
            return "sums" if not node.kwargs and [d % 3 for d in args[1]] == [1] and len(args) == 2 else ""
        if any(role not in ("rows", "parts") for role in known):
            return ""
        return self._step(node)

    def _inverts(self, node: Any) -> bool:
        """Whether a node writes row numbers where the sort took rows from."""
        base, at, numbers = node.args[:3]
        counts = _kind(numbers) in ("aten.arange.start_step", "aten.arange.default")
        starts = [x for x in numbers.args if not hasattr(x, "op")] if counts else []
        rows = self.tokens * self.chosen
        whole = starts in ([0, rows], [rows], [0, rows, 1])
        return base not in self.roles and len(at) == 1 and self._is(at[0], "slot") and whole and len(node.args) == 3

    def _picks(self, node: Any) -> str:
        """What a node is that picks rows of a tensor."""
        x, at = node.args
        if len(at) != 1 or not hasattr(at[0], "op"):
            return ""
        if self._is(x, "rows") and self._is(at[0], "inverse"):
            return "back"
        if x in self.roles:
            return ""
        rows = {"expert": self.experts, "token": self.tokens, "slot": self.tokens * self.chosen}
        size = rows.get(self.roles.get(at[0], ""), 0)
        return "rows" if _shape(x) and _shape(x)[0] == size else ""

    def _step(self, node: Any) -> str:
        """What a node is that works on rows, one by one."""
        import torch

        kind, args = _kind(node), node.args
        if kind == "getitem":
            return "rows" if self._is(args[0], "parts") else ""
        rank = len(_shape(args[0])) if args and hasattr(args[0], "op") else 0
        if kind in ("aten.split_with_sizes.default", "aten.slice.Tensor", "aten.unsqueeze.default"):
            at = {"aten.split_with_sizes.default": 2, "aten.slice.Tensor": 1, "aten.unsqueeze.default": 1}[kind]
            dim = args[at] if len(args) > at else 0
            if not self._is(args[0], "rows") or dim % (rank + (kind == "aten.unsqueeze.default")) == 0:
                return ""
            return "parts" if "split" in kind else "rows"
        pointwise: Any = torch.Tag.pointwise
        simple = pointwise in getattr(node.target, "tags", ()) or kind in (
            "aten._to_copy.default",
            "aten.clone.default",
        )
        mine = [x for x in node.all_input_nodes if x in self.roles]
        if not simple or any(not self._is(x, "rows") for x in mine):
            return ""
        full = len(_shape(node))
        others = [_shape(x) for x in node.all_input_nodes if x not in self.roles]
        aligned = all(len(_shape(x)) == full for x in mine) and all(len(s) < full or s[0] == 1 for s in others)
        return "rows" if aligned and _shape(node)[0] == self.tokens * self.chosen else ""

    def _summed(self, node: Any) -> bool:
        """Whether of rows in order only the sum for each token is used."""
        views = list(node.users)
        fits = (self.tokens, self.chosen, *_shape(node)[1:])
        return len(fits) == 3 and all(
            self._is(view, "view") and _shape(view) == fits and all(self._is(user, "sums") for user in view.users)
            for view in views
        )

    # What becomes of it

    def _call(self, before: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        """A new node, made for `before` and in front of it."""
        import torch
        from torch.fx.node import map_arg

        packet, overload = name.split(".")
        target = getattr(getattr(torch.ops.aten, packet), overload)
        with self.graph.inserting_before(before):
            node = self.graph.call_function(target, args, kwargs)
        node.meta = {key: value for key, value in before.meta.items() if key != "val"}
        self._fake(node, map_arg)
        return node

    def _fake(self, node: Any, map_arg: Any) -> None:
        import torch

        args, kwargs = map_arg((node.args, node.kwargs), _value)
        with self.sort.args[0].meta["val"].fake_mode, torch.no_grad():
            node.meta["val"] = node.target(*args, **kwargs)

    def _row(self, node: Any) -> Any:
        """The node on rows of the new order. Dense rows have dims [experts, tokens], those of blocks [blocks, rows];
        either of these may be 1."""
        from torch.fx.node import map_arg

        kind, args = _kind(node), list(node.args)
        if self._is_cut(node) or (kind == "aten.split_with_sizes.default" and self._is_cut(args[0])):
            return None
        if kind == "getitem" and _kind(args[0]) == "aten.split_with_sizes.default" and self._is_cut(args[0].args[0]):
            return self._part(node)
        if kind == "aten.index.Tensor":
            return self._picked(node, args[0], self.roles[args[1][0]])
        if kind in GROUPED:
            return self._product(node, self.made[args[0]], args[1])
        if self.how != "slots" and kind != "getitem":
            for at in (i for i, x in enumerate(args) if kind in _DIMS and i == _DIMS[kind] and x > 0):
                args[at] += 1
        with self.graph.inserting_before(node):
            new = self.graph.call_function(
                node.target,
                *map_arg((tuple(args), dict(node.kwargs)), lambda x: self.made.get(x, x)),
            )
        new.meta = {key: value for key, value in node.meta.items() if key != "val"}
        if kind == "getitem":
            new.meta["val"] = new.args[0].meta["val"][new.args[1]]
        else:
            self._fake(new, map_arg)
        return new

    def _hot(self, node: Any) -> Any:
        """Which of its experts a token chose which: [experts, tokens, chosen]."""
        ids = self.sort.args[0].meta["val"]
        numbers = self._call(node, "arange.start_step", 0, self.experts, dtype=ids.dtype, device=ids.device)
        numbers = self._call(node, "view.default", numbers, [self.experts, 1, 1])
        chosen = self._call(node, "view.default", self.sort.args[0], [1, self.tokens, self.chosen])
        return self._call(node, "eq.Tensor", chosen, numbers)

    def _picked(self, node: Any, x: Any, by: str) -> Any:
        rest: Sequence[int] = _shape(x)[1:]
        if self.how == "blocks":
            return self._to_blocks(node, x, by)
        if self.dense and by != "slot":
            return self._call(node, "unsqueeze.default", x, int(by == "expert"))
        if self.dense:
            parts = self._call(node, "view.default", x, [1, self.tokens, self.chosen, *rest])
            hot = self._hot(node)
            if rest:
                hot = self._call(node, "view.default", hot, [*_shape(hot), *(1 for _ in rest)])
            return self._call(node, "sum.dim_IntList", self._where(node, hot, parts), [2])
        if by == "slot":
            return x
        if by == "expert":
            return self._call(node, "index.Tensor", x, [self.sort.args[0]])
        each = self._call(node, "unsqueeze.default", x, 1)
        each = self._call(node, "expand.default", each, [self.tokens, self.chosen, *rest])
        return self._call(node, "reshape.default", each, [self.tokens * self.chosen, *rest])

    def _is_cut(self, node: Any) -> bool:
        """Whether a product is cut into columns at once, as that of gate and up is: then each part is a product of its
        own, with columns of the matrices, which sockets can share out by columns."""
        if _kind(node) not in GROUPED or not node.users:
            return False
        return all(
            _kind(user) == "aten.split_with_sizes.default" and (user.args[2] if len(user.args) > 2 else 0) in (1, -1)
            for user in node.users
        )

    def _part(self, node: Any) -> Any:
        """A part of a product that is cut."""
        split, which = node.args
        x, weight = split.args[0].args[:2]
        start = sum(split.args[1][:which])
        columns = self._call(node, "slice.Tensor", weight, 2, start, start + split.args[1][which])
        return self._product(node, self.made[x], columns)

    def _product(self, node: Any, x: Any, weight: Any) -> Any:
        if self.dense:
            return self._call(node, "matmul.default", x, weight)
        if self.how == "blocks":
            _, _, expert = self._places()
            return self._call(node, "matmul.default", x, self._call(node, "index.Tensor", weight, [expert]))
        own = self._call(node, "index.Tensor", weight, [self.sort.args[0]])
        each = self._call(node, "matmul.default", self._call(node, "unsqueeze.default", x, 1), own)
        return self._call(node, "squeeze.dims", each, [1])

    def _places(self) -> tuple[Any, Any, Any]:
        """The place of each row in all blocks, the row at each place (any where there is none), and the expert of each
        block."""
        if self.places is None:
            at, ids = self.sort, self.sort.args[0]
            rows, experts, size = self.tokens * self.chosen, self.experts, self.block
            like = {"dtype": torch_int64(), "device": ids.meta["val"].device}
            each = self._call(at, "view.default", ids, [self.tokens, self.chosen])
            chose = self._call(at, "_to_copy.default", self._call(at, "any.dim", self._hot(at), 2), **like)
            so_far = self._call(at, "cumsum.default", chose, 1)  # [experts, tokens]
            before = self._call(at, "permute.default", self._call(at, "sub.Tensor", so_far, chose), [1, 0])
            mine = self._call(at, "view.default", self._call(at, "gather.default", before, 1, each), [rows])
            count = self._call(at, "sum.dim_IntList", chose, [1])
            more = self._call(at, "add.Tensor", count, size - 1)
            blocks = self._call(at, "div.Tensor_mode", more, size, rounding_mode="floor")
            ends = self._call(at, "cumsum.default", blocks, 0)
            starts = self._call(at, "mul.Tensor", self._call(at, "sub.Tensor", ends, blocks), size)
            place = self._call(at, "add.Tensor", self._call(at, "index.Tensor", starts, [ids]), mine)
            nothing = self._call(at, "full.default", [self.blocks * size], 0, **like)
            numbers = self._call(at, "arange.start_step", 0, rows, **like)
            row = self._call(at, "index_put.default", nothing, [place], numbers)
            row = self._call(at, "view.default", row, [self.blocks, size])
            block = self._call(at, "view.default", self._call(at, "arange.start_step", 0, self.blocks, **like), [-1, 1])
            over = self._call(at, "le.Tensor", self._call(at, "view.default", ends, [1, experts]), block)
            over = self._call(at, "sum.dim_IntList", self._call(at, "_to_copy.default", over, **like), [1])
            expert = self._call(at, "clamp.default", over, 0, experts - 1)
            self.places = place, row, expert
        return self.places

    def _to_blocks(self, node: Any, x: Any, by: str) -> Any:
        """Rows of a tensor in blocks; one row for each block where it is by expert."""
        _, row, expert = self._places()
        if by == "expert":
            return self._call(node, "unsqueeze.default", self._call(node, "index.Tensor", x, [expert]), 1)
        if by == "token":
            row = self._call(node, "div.Tensor_mode", row, self.chosen, rounding_mode="floor")
        return self._call(node, "index.Tensor", x, [row])

    def _from_blocks(self, node: Any, x: Any) -> Any:
        """Rows in order, out of blocks."""
        place, _, _ = self._places()
        rest = _shape(node)[1:]
        whole = self._in_full_shape(node, x, [self.blocks, self.block, *rest])
        return self._call(node, "index.Tensor", self._call(node, "reshape.default", whole, [-1, *rest]), [place])

    def _in_full(self, node: Any, x: Any) -> Any:
        return self._in_full_shape(node, x, list(_shape(node)))

    def _in_full_shape(self, node: Any, x: Any, shape: list[int]) -> Any:
        return x if _shape(x) == tuple(shape) else self._call(node, "expand.default", x, shape)

    def _sum(self, node: Any, x: Any) -> Any:
        """The sum over the experts that a token chose."""
        chosen = self._call(node, "any.dims", self._hot(node), [2], True)
        return self._call(node, "sum.dim_IntList", self._where(node, chosen, x), [0])

    def _where(self, node: Any, which: Any, x: Any) -> Any:
        """The elements of `x` that are chosen; zero elsewhere, whatever is there."""
        type = x.meta["val"]
        zero = self._call(node, "scalar_tensor.default", 0, dtype=type.dtype, device=type.device)
        return self._call(node, "where.self", which, x, zero)


def _rounded(blocks: int) -> int:
    """As many blocks or a few more, so that they can be gone through in equal steps."""
    step = 64 if blocks > 256 else 16 if blocks > 64 else 1
    return -(-blocks // step) * step


def torch_int64() -> Any:
    """The type of places."""
    import torch

    return torch.int64


_DIMS = {"aten.split_with_sizes.default": 2, "aten.slice.Tensor": 1, "aten.unsqueeze.default": 1}
"""Where the dim is among the arguments."""
