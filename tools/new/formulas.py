"""Formulas of one variable, such as `x / (1 + abs(x))`: read, and written as NumPy."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from headrace.dialects.support.diagnostics import CompileError, nearest


@dataclass(frozen=True)
class Function:
    """A function that formulas may call."""

    meaning: str
    """What it is in dialects/tensor/meaning/elementwise.py, with `{}` for each argument."""
    exact: Callable[..., float]
    """Its value for numbers: calls without x are replaced by what they give."""
    flops: int = 1
    """Operations an element."""
    arguments: int = 1


def _sign(x: float) -> float:
    return float((x > 0) - (x < 0))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _relu(x: float) -> float:
    return max(x, 0.0)


def _power(exponent: float) -> Callable[[float], float]:
    return lambda x: x**exponent


_PLAIN: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "tanh": math.tanh,
    "floor": math.floor,
    "ceil": math.ceil,
    "abs": math.fabs,
    "sign": _sign,
}
FUNCTIONS = {
    **{name: Function(f"np.{name}({{}})", exact) for name, exact in _PLAIN.items()},
    "round": Function("np.rint({})", round),
    "erf": Function("special.erf({})", math.erf),
    "sigmoid": Function("_sigmoid({})", _sigmoid, flops=3),
    "rsqrt": Function("np.reciprocal(np.sqrt({}))", _power(-0.5), flops=2),
    "reciprocal": Function("np.reciprocal({})", _power(-1)),
    "relu": Function("np.maximum({}, 0)", _relu),
    "max": Function("np.maximum({}, {})", max, arguments=2),
    "min": Function("np.minimum({}, {})", min, arguments=2),
}
"""Each is called as the function of a compute unit that it costs."""
OPERATORS: dict[type[ast.operator], tuple[str, str, Callable[[float, float], float]]] = {
    ast.Add: ("add", "+", lambda a, b: a + b),
    ast.Sub: ("sub", "-", lambda a, b: a - b),
    ast.Mult: ("mul", "*", lambda a, b: a * b),
    ast.Div: ("div", "/", lambda a, b: a / b),
    ast.Pow: ("pow", "**", lambda a, b: a**b),
}


@dataclass(frozen=True)
class Formula:
    """A formula that was read."""

    text: str
    """As it is documented."""
    meaning: str
    """An expression of NumPy in `x`."""
    functions: dict[str, int]
    """Functions of a compute unit that an element costs."""
    flops: int
    """Operations an element."""


def read(text: str) -> Formula:
    """Read a formula. `CompileError` for what is no formula in x."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise _bad(f"cannot read '{text}': {error.args[0]}") from None
    writer = _Writer()
    meaning = writer.write(tree)
    if not isinstance(meaning, str):
        raise _bad(f"'{text}' is {meaning:g} whatever x is")
    if not writer.functions:
        raise _bad(f"'{text}' computes nothing")
    return Formula(ast.unparse(tree), _bare(meaning), dict(writer.functions), writer.flops)


def _bad(what: str, fix: str = "") -> CompileError:
    return CompileError("bad-formula", what, fix=fix or "write it like 'x / (1 + abs(x))'")


def _bare(text: str) -> str:
    """Without the brackets around the whole."""
    tree = ast.parse(text, mode="eval").body
    return ast.unparse(tree)


class _Writer:
    """Writes a formula as NumPy and counts what it costs. Parts without x become numbers: NumPy would compute them in
    f64 and take the result for the type of the whole."""

    def __init__(self) -> None:
        self.functions: Counter[str] = Counter()
        self.flops = 0

    def write(self, node: ast.expr) -> str | float:
        """The text of a part that has x in it, the value of one that has not."""
        match node:
            case ast.Name(id="x"):
                return "x"
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                value = self.write(inner)
                return self._count("neg", 1, f"(-{value})") if isinstance(value, str) else -value
            case ast.UnaryOp(op=ast.UAdd(), operand=inner):
                return self.write(inner)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return self._operator(*OPERATORS[type(op)], self.write(left), self.write(right))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(name, [self.write(arg) for arg in args])
            case ast.Name(id=name):
                raise _bad(f"'{name}' is no variable: a formula has one, x")
            case _:
                raise _bad(f"'{ast.unparse(node)}' is not part of a formula: numbers, x, + - * / ** and functions are")

    def _operator(
        self,
        name: str,
        sign: str,
        exact: Callable[[float, float], float],
        left: str | float,
        right: str | float,
    ) -> str | float:
        if not isinstance(left, str) and not isinstance(right, str):
            return _value(exact, left, right, shown=f"{left} {sign} {right}")
        squared = name == "pow" and right == 2
        return self._count("mul" if squared else name, 1, f"({left} {sign} {right})")

    def _call(self, name: str, args: list[str | float]) -> str | float:
        if name not in FUNCTIONS:
            fix = nearest(name, FUNCTIONS) or f"there are {', '.join(sorted(FUNCTIONS))}"
            raise _bad(f"there is no function '{name}'", fix)
        function = FUNCTIONS[name]
        if len(args) != function.arguments:
            raise _bad(f"{name} takes {function.arguments} argument{'s' * (function.arguments > 1)}, not {len(args)}")
        numbers = [arg for arg in args if not isinstance(arg, str)]
        if len(numbers) == len(args):
            return _value(function.exact, *numbers, shown=f"{name}({', '.join(map(str, numbers))})")
        return self._count(name, function.flops, function.meaning.format(*args))

    def _count(self, function: str, flops: int, text: str) -> str:
        self.functions[function] += 1
        self.flops += flops
        return text


def _value(exact: Callable[..., float], *args: float, shown: str) -> float:
    try:
        value = float(exact(*args))
    except (ArithmeticError, ValueError, TypeError):
        value = math.nan
    if not math.isfinite(value):
        raise _bad(f"{shown} is no number")
    return value
