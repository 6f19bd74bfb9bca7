"""The wheel holds every module and nothing else; the editable install leaks no generic name."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from headrace.tools.check_repo import TOPS, sources

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built offline from a copy of what git would track, so that build/ and other leftovers play no part."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (tree / name).write_bytes((ROOT / name).read_bytes())
    for top in TOPS:
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                target = tree / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-q",
        "-w",
        "out",
        ".",
    ]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = (tree / "out").glob("*.whl")
    return built


def installed_name(path: Path) -> str:
    """Where a source file stands in the wheel."""
    inside = path.relative_to("tools/api") if path.parts[:2] == ("tools", "api") else path
    return f"headrace/{inside.as_posix()}"


@pytest.mark.slow
def test_the_wheel_holds_every_module(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in names} == {
        "headrace",
        f"{'-'.join(wheel.name.split('-')[:2])}.dist-info",
    }
    assert {name for name in names if name.endswith(".py")} == {installed_name(path) for path in sources(ROOT)}
    data = {f"headrace/{p.relative_to(ROOT).as_posix()}" for p in (ROOT / "dialects/machine/devices").glob("*.toml")}
    assert data and data <= names
    assert {f"headrace/{top}/py.typed" for top in TOPS} | {"headrace/py.typed"} <= names


@pytest.mark.slow
def test_the_wheel_works_on_its_own(wheel: Path, tmp_path: Path) -> None:
    """Unpacked in a folder of its own, with the editable install out of the way, the driver runs."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import sys; editable = lambda f: '__editable__' in getattr(f, '__module__', '');"
        "sys.meta_path[:] = [f for f in sys.meta_path if not editable(f)];"
        f"sys.path.insert(0, {str(tmp_path / 'site')!r});"
        "import headrace, headrace.tools.opt as opt; assert 'site' in headrace.__file__ and 'site' in opt.__file__;"
        "sys.exit(opt.run(['--list-passes']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_generic_is_importable() -> None:
    """`tools`, `runtime` and so on exist only below headrace; `test` is Python's own."""
    code = (
        "from importlib.util import find_spec\n"
        f"print([n for n in {[*TOPS, 'headrace.test']!r} if find_spec(n)], find_spec('test').origin)"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True).stdout
    assert shown.startswith("[] ")
    assert str(ROOT) not in shown


def test_the_facade_is_lazy() -> None:
    """Importing headrace loads neither xDSL nor NumPy; what it offers is there."""
    code = (
        "import sys, headrace;"
        "print(sorted({'xdsl', 'numpy', 'onnx'} & set(sys.modules)), hasattr(headrace, 'nonsense'))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["[]", "False"]
    import headrace

    for name in headrace.__all__:
        assert getattr(headrace, name) is not None


def test_console_scripts_are_installed() -> None:
    for script in ("headrace", "headrace-opt"):
        assert Path(sys.executable).with_name(script).exists()
    assert find_spec("headrace.tools.opt") is not None
