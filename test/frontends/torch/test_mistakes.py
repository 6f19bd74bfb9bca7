"""What users get wrong: each mistake has a code, the user's line where there is one, a cause and a cure, and shows no
traceback on the command line. Everything wrong with a model is said at once."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from command import headrace as command

import headrace
from headrace import CompileError

torch: Any = pytest.importorskip("torch")

MODELS = """\
import torch
from torch import nn

CALLS = 0
SEEN = []


class Unsupported(nn.Module):
    def forward(self, x):
        y = torch.linalg.eigh(x)[0]
        return y + torch.special.bessel_j0(x)


class Selects(nn.Module):
    def forward(self, x):
        return x[x > 0]


class Branches(nn.Module):
    def forward(self, x):
        y = x * 2
        if y.sum() > 0:
            return y
        return x


class Spectrum(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x)


class Complex(nn.Module):
    def forward(self, x, y: "complex64"):
        return x + y.real


class Two(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, y):
        return self.linear(x) + y


class Prints(nn.Module):
    def forward(self, x):
        print("x is", x.shape)
        return x + 1


class Global(nn.Module):
    def forward(self, x):
        global CALLS
        CALLS += 1
        SEEN.append(CALLS)
        return x + CALLS


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls


class Wide(nn.Module):
    def forward(self, x):
        y = x.double()
        return y * y


class Breaks(nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        if y.sum() > 0:
            y = y * 3
        return y + 1


class Loops(nn.Module):
    def forward(self, x):
        for _ in range(2):
            torch._dynamo.graph_break()
            x = x + 1
        return x
"""


@dataclass(frozen=True)
class Mistake:
    """A model of the file, the shapes of its inputs, and what is said: for each error its code, the text of the line
    that it points at (or the whole location), and a part of what it says."""

    model: str
    inputs: dict[str, str]
    errors: tuple[tuple[str, str, str], ...]
    flags: tuple[str, ...] = ()
    options: dict[str, Any] | None = None


MISTAKES = {
    "unsupported op": Mistake(
        "Unsupported",
        {"x": "3x3"},
        (
            ("unsupported-op", "y = torch.linalg.eigh(x)[0]", "aten._linalg_eigh.default is not supported"),
            ("unsupported-op", "torch.special.bessel_j0(x)", "aten.special_bessel_j0.default is not supported"),
        ),
    ),
    "data-dependent shape": Mistake(
        "Selects", {"x": "4"}, (("dynamic-shape", "return x[x > 0]", "mask instead of selecting"),)
    ),
    "data-dependent branch": Mistake(
        "Branches", {"x": "4"}, (("dynamic-shape", "if y.sum() > 0:\n            return y", "torch.where"),)
    ),
    "complex dtype": Mistake(
        "Spectrum", {"x": "4"}, (("unknown-element-type", "return torch.fft.fft(x)", "torch.view_as_real"),)
    ),
    "missing example inputs": Mistake("Two", {}, (("missing-inputs", "", "x"),)),
    "missing one example input": Mistake("Two", {"x": "2x4"}, (("missing-inputs", "", "y"),)),
    "a module that prints": Mistake("Prints", {"x": "2"}, (("side-effect", 'print("x is", x.shape)', "is_exporting"),)),
    "a module that changes a global": Mistake(
        "Global",
        {"x": "2"},
        (
            ("side-effect", "CALLS += 1", "Global changes global CALLS"),
            ("side-effect", "SEEN.append(CALLS)", "Global changes global SEEN"),
        ),
    ),
    "a module that counts in an attribute": Mistake(
        "Counts", {"x": "2"}, (("side-effect", "self.calls += 1", "register_buffer"),)
    ),
    "float64 under native types": Mistake(
        "Wide",
        {"x": "2"},
        (
            ("emulated-type", "y = x.double()", "tensor.cast computes in f64, which sn40l emulates"),
            ("emulated-type", "return y * y", "tensor.mul computes in f64, which sn40l emulates"),
        ),
        ("--native-types",),
        {"native_types": True},
    ),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("user") / "models.py"
    path.write_text(MODELS)
    return path


@pytest.fixture(scope="module")
def models(file: Path) -> Any:
    spec = spec_from_file_location("models", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line_of(text: str) -> str:
    return f"models.py:{MODELS[: MODELS.index(text)].count(chr(10)) + 1}"


def check(error: CompileError, mistake: Mistake) -> None:
    assert len(error.diagnostics) == len(mistake.errors), str(error)
    for one, (code, at, part) in zip(error.diagnostics, mistake.errors, strict=True):
        assert one.code == code and one.what and one.fix
        assert not at or one.location.rstrip(")").endswith(line_of(at)), one.location
        assert part in str(one)


@pytest.mark.parametrize("name", MISTAKES)
def test_from_python(name: str, models: Any, capsys: Any) -> None:
    mistake = MISTAKES[name]
    inputs = {key: torch.ones([int(n) for n in shape.split("x")]) for key, shape in mistake.inputs.items()}
    module = getattr(models, mistake.model)()
    with pytest.raises(CompileError) as caught:
        headrace.compile(module, example_inputs=tuple(inputs.values()), **(mistake.options or {}))
    check(caught.value, mistake)
    shown = capsys.readouterr()
    assert not shown.out and "def forward" not in shown.err


@pytest.mark.parametrize("name", MISTAKES)
def test_from_the_command_line(name: str, file: Path) -> None:
    mistake = MISTAKES[name]
    inputs = [part for key, shape in mistake.inputs.items() for part in ("--input", f"{key}={shape}")]
    result = command("compile", f"{file}:{mistake.model}", *inputs, *mistake.flags, "--json")
    assert result.code == 2 and "Traceback" not in result.err
    assert {one["code"] for one in result.json["errors"]} == {code for code, _, _ in mistake.errors}
    for code, at, part in mistake.errors:
        assert f"error[{code}]" in result.err and part in result.err and (not at or line_of(at) in result.err)


def test_a_dynamic_dim_that_is_not_bound(models: Any, tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", max=64)
    examples, shapes = (torch.ones(3, 4), torch.ones(3, 4)), {"x": {0: batch}, "y": {0: batch}}
    module = models.Two()
    program = torch.export.export(module, examples, dynamic_shapes=shapes)
    with pytest.raises(CompileError) as caught:
        headrace.compile(program)
    assert [one.code for one in caught.value.diagnostics] == ["unbound-dim"] * 2
    assert "--dim batch=1" in str(caught.value)
    with pytest.raises(CompileError, match="did you mean 'batch'"):
        headrace.compile(program, dims={"bach": 2})
    with pytest.raises(CompileError, match="exported for 0 to 64"):
        headrace.compile(program, dims={"batch": 65})
    x = torch.randn(2, 4)
    for bound in ({"dims": {"batch": 2}}, {"input_shapes": {"x": (2, 4)}}):
        torch.testing.assert_close(headrace.compile(program, **bound)(x, x), module(x, x))
    path = tmp_path / "two.pt2"
    torch.export.save(program, path)
    result = command("compile", path)
    assert result.code == 2 and "error[unbound-dim] at x" in result.err and "fix: --dim s" in result.err
    symbol = result.err.partition("--dim ")[2].partition("=")[0]
    assert command("compile", path, "--dim", f"{symbol}=2").code == 0
    assert command("compile", path, "--input", "x=2x4").code == 0
    assert command("plan", path, "--input", "x=2x4").code == 0
    plan = command("plan", path)
    assert (
        plan.code == 0
        and "linear" in plan.out
        and f"dims are not bound, so shapes are not checked: --dim {symbol}" in plan.out
    )


def test_sizes_that_an_export_does_not_hold_for() -> None:
    class Ways(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x.sum() + y.reshape(-1, 2).sum() if x.shape[0] > y.shape[0] else x.sum()

    auto = torch.export.Dim.AUTO
    module = Ways()
    program = torch.export.export(
        module, (torch.ones(6), torch.ones(4)), dynamic_shapes={"x": {0: auto}, "y": {0: auto}}
    )
    with pytest.raises(CompileError) as caught:
        headrace.compile(program, input_shapes={"x": (4,), "y": (5,)})
    assert "not x.shape[0] > y.shape[0]" in str(caught.value) and len(caught.value.diagnostics) == 2
    x, y = torch.randn(9), torch.randn(6)
    executable = headrace.compile(program, input_shapes={"x": (9,), "y": (6,)})
    torch.testing.assert_close(executable(x, y), module(x, y))


def test_sizes_that_are_made_of_others() -> None:
    class Halves(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            rows = y.shape[0]
            return x.reshape(rows, 2).sum(1) + y + torch.arange(rows)

    half = torch.export.Dim("half", min=2)
    module = Halves()
    program = torch.export.export(
        module, (torch.ones(6), torch.ones(3)), dynamic_shapes={"x": {0: 2 * half}, "y": {0: half}}
    )
    x, y = torch.randn(8), torch.randn(4)
    for bound in ({"dims": {"half": 4}}, {"input_shapes": {"x": (8,)}}):
        torch.testing.assert_close(headrace.compile(program, **bound)(x, y), module(x, y))
    with pytest.raises(CompileError, match=r"its dim 0 is 2\*half"):
        headrace.compile(program, input_shapes={"x": (9,)})


def test_what_depends_on_a_bound_dim_is_a_number() -> None:
    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.rows += x.shape[0]
            return x.flatten(), x.shape[0], (x.shape[0] + 1) / 2, torch.arange(x.shape[0]), self.rows * 1

    shapes = {"x": {0: torch.export.Dim("n", max=9)}}
    program = torch.export.export(Counts(), (torch.ones(3, 2),), dynamic_shapes=shapes)
    executable = headrace.compile(program, dims={"n": 5})
    flat, rows, half, steps, _ = executable(torch.ones(5, 2))
    assert flat.shape == (10,) and (rows, half) == (5, 3.0) and steps.tolist() == [0, 1, 2, 3, 4]
    assert executable(torch.ones(5, 2))[-1].item() == 10.0
    for one in headrace.compile(program, dims={"n": 1})(torch.ones(1, 2))[:2]:
        assert one == 1 if isinstance(one, int) else one.tolist() == [1.0, 1.0]


def test_tensors_on_another_device(models: Any) -> None:
    meta = torch.ones(2, 4, device="meta")
    with pytest.raises(CompileError) as caught:
        headrace.compile(models.Two().to("meta"), example_inputs=(meta, torch.ones(2, 4)))
    (one,) = caught.value.diagnostics
    assert one.code == "wrong-device" and one.fix
    assert "input 'x', parameter 'linear.weight', parameter 'linear.bias' are on device meta" in one.what
    executable = headrace.compile(models.Two(), example_inputs=(torch.ones(2, 4),) * 2)
    with pytest.raises(CompileError, match="input 'y' is on device meta"):
        executable(torch.ones(2, 4), meta)


def test_inputs_of_complex_numbers(models: Any) -> None:
    with pytest.raises(CompileError) as caught:
        headrace.compile(models.Complex(), example_inputs=(torch.ones(2), torch.ones(2, dtype=torch.complex64)))
    (one,) = caught.value.diagnostics
    assert one.code == "unknown-element-type" and one.location == "y" and "view_as_real" in one.fix


def test_example_inputs_that_do_not_fit(models: Any) -> None:
    x = torch.ones(2, 4)
    for inputs, kwargs, part in (
        ((x, x, x), None, "is given 3 example inputs and takes 2"),
        ({"x": x, "y": x}, None, "are a mapping"),
        ((x,), {"z": x}, "has no input 'z'"),
        ((x,), {"x": x}, "'x' of Two is given twice"),
        ((x, x.numpy()), None, "'y' is an array of NumPy"),
        ((x, x.to_sparse()), None, "'y' has layout torch.sparse_coo"),
    ):
        with pytest.raises(CompileError) as caught:
            headrace.compile(models.Two(), example_inputs=inputs, example_kwargs=kwargs)
        assert part in str(caught.value)


def test_a_flag_that_the_constructor_does_not_have(file: Path) -> None:
    result = command("compile", f"{file}:Two", "--widht", "4", "--input", "x=2x4", "--input", "y=2x4")
    assert result.code == 2 and "error[bad-option]" in result.err and "Traceback" not in result.err
    assert "did you mean '--width'?" in result.err


@pytest.mark.parametrize(
    ("model", "at", "parts"),
    [
        ("Breaks", "if y.sum() > 0:\n            y = y * 3", ("the graph of forward ends here", "torch.where")),
        ("Loops", "torch._dynamo.graph_break()", ("forward runs in PyTorch", "graph_break")),
    ],
)
def test_a_graph_break_is_shown_once(model: str, at: str, parts: tuple[str, ...], models: Any) -> None:
    from headrace.dynamo import backend
    from headrace.frontends.torch.breaks import watch

    torch._dynamo.reset()
    watch(backend)  # which reset has forgotten
    module = getattr(models, model)()
    compiled = torch.compile(module, backend=backend)
    x = torch.randn(4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for sign in (1, -1, 1):
            torch.testing.assert_close(compiled(sign * x.abs()), module(sign * x.abs()))
    shown = [one for one in caught if one.category is headrace.GraphBreak]
    assert len(shown) == 1 and f"{Path(shown[0].filename).name}:{shown[0].lineno}" == line_of(at)
    assert all(part in str(shown[0].message) for part in (*parts, "why: ", "fix: ", "fullgraph=True"))


def test_a_module_that_is_exported_may_do_what_only_python_does() -> None:
    class Guarded(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            if not torch.compiler.is_exporting():
                print("in Python")
            return x + 1

    assert headrace.compile(Guarded(), example_inputs=(torch.ones(2),))(torch.ones(2)).tolist() == [2.0, 2.0]


def test_a_graph_break_may_be_an_error(models: Any) -> None:
    from headrace.dynamo import backend

    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", headrace.GraphBreak)
        with pytest.raises(Exception, match="the graph of forward ends here"):
            torch.compile(models.Breaks(), backend=backend)(torch.ones(4))
    torch._dynamo.reset()


def test_options_of_the_backend_that_there_are_not() -> None:
    from headrace.dynamo import backend

    compiled: Any = torch.compile(torch.nn.ReLU(), backend=backend, options={"modes": "O1", "devise": "sn40l"})
    with torch.no_grad(), pytest.raises(CompileError) as caught:
        compiled(torch.ones(2))
    assert len(caught.value.diagnostics) == 2 and "did you mean 'device'?" in str(caught.value)


def test_an_attribute_that_a_call_writes_before_it_reads() -> None:
    class Keeps(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows, self.seen = 0, 0

        def forward(self, x: Any) -> Any:
            if self.seen != x.shape[0]:
                self.seen = x.shape[0]
            self.rows = x.shape[0]
            return x * self.rows

    module = Keeps()
    assert headrace.compile(module, example_inputs=(torch.ones(3),))(torch.ones(3)).tolist() == [3.0] * 3
    assert module.rows == 0


class Remembers(torch.nn.Module):
    """Keeps tensors in attributes, in a way."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.sum = torch.zeros(2)
        self.table = torch.zeros(0)
        self.memo: dict[int, Any] = {}
        self.seen: list[Any] = []
        self.last: Any = None

    def forward(self, x: Any) -> Any:
        if self.how == "sum":
            self.sum = self.sum + x
            return self.sum * 1
        if self.how == "seen":
            self.seen.append(x)
            return x * len(self.seen)
        if self.how == "last":
            self.last = x + 1
            return self.last * 2
        if self.how == "table":
            if self.table.shape[0] != x.shape[0]:
                self.table = torch.ones(x.shape[0])
            return x * self.table
        if x.shape[0] not in self.memo:
            self.memo[x.shape[0]] = torch.ones(x.shape[0])
        return x + self.memo[x.shape[0]]


@pytest.mark.parametrize("how", ["sum", "seen", "last", "table", "memo"])
def test_tensors_in_attributes(how: str) -> None:
    """What is another at each call is refused; what a call makes for itself is computed; the module stays as it was."""
    module, x = Remembers(how), torch.ones(2)
    before = {**vars(module), "memo": dict(module.memo), "seen": list(module.seen)}
    if how in ("sum", "seen"):
        with pytest.raises(CompileError, match=f"Remembers changes attribute {how}"):
            headrace.compile(module, example_inputs=(x,))
    else:
        executable = headrace.compile(module, example_inputs=(x,))
        assert all(executable(x).tolist() == Remembers(how)(x).tolist() for _ in range(2))
    assert all(vars(module)[name] is before[name] for name in ("sum", "table", "last"))
    assert module.memo == {} and module.seen == []


def test_what_is_no_module(models: Any) -> None:
    x = torch.ones(2, 4)
    for model, part in (
        (models.Two, "make a module of it: Two(...)"),
        (torch.relu, "relu is a function, no module"),
        (torch.jit.script(torch.nn.ReLU()), "is a scripted module"),
        ({"x": x}, "no PyTorch module"),
    ):
        with pytest.raises(CompileError) as caught:
            headrace.compile(model, example_inputs=(x,))
        assert part in str(caught.value)


class Cache:
    """A class that PyTorch knows nothing of."""

    def __init__(self, x: Any = None) -> None:
        self.x = x


class GivesCache(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return Cache(x)


def test_classes_that_are_no_structures() -> None:
    for module, inputs in ((GivesCache(), (torch.ones(2),)), (torch.nn.ReLU(), (Cache(),))):
        with pytest.raises(CompileError) as caught:
            headrace.compile(module, example_inputs=inputs)
        assert caught.value.code == "not-exportable" and "Cache" in caught.value.what
        assert "register_pytree_node" in caught.value.fix


def test_an_error_of_the_module_itself() -> None:
    class Wrong(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.reshape(3)

    with pytest.raises(CompileError) as caught:
        headrace.compile(Wrong(), example_inputs=(torch.ones(2),))
    assert "test_mistakes.py:" in caught.value.location and "invalid for input of size 2" in str(caught.value)
    assert "module(*example_inputs)" in caught.value.fix
