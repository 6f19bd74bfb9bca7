"""The guides are followed to the letter: what they say to write is written, what they say to run is run.

Each guide has a copy of the repository for itself. In it, a block of code behind a line that ends with a file's name in
backquotes and a colon is that file; behind `Add to` and a file's name it is appended; `sh` blocks are commands, run in
order, with exit code 0 unless a comment says `# exit code N`; `>>>` is a doctest.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from headrace.tools import check_types, opt
from headrace.tools.cli import execute
from headrace.tools.demo import Attention
from headrace.tools.opt.arguments import arguments

ROOT = Path(__file__).parents[2]
GUIDES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "guides").glob("*.md"))}
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXT = "\n".join([README, (ROOT / "docs" / "guides.md").read_text(encoding="utf-8"), *GUIDES.values()])
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)


class Step(NamedTuple):
    """One thing that a guide says to do: `file`, `append` or `run`."""

    kind: str
    path: str
    text: str


def steps(guide: str) -> Iterator[Step]:
    """What a guide says to do, in order."""
    end = 0
    for match in FENCE.finditer(guide):
        before = guide[end : match.start()].rstrip()
        text = re.sub(rf"^{match[1]}", "", match[3], flags=re.M)
        end = match.end()
        place = re.search(r"`([\w./]+\.\w+)`[^`:]*:$", before.splitlines()[-1] if before else "")
        adds = re.search(r"Add to `([\w./]+)`[^`]*:$", before.replace("\n", " "))
        if match[2] == "sh":
            for line in text.splitlines():
                yield Step("run", "", line)
        elif adds and match[2] == "python":
            yield Step("append", adds[1], text)
        elif place and match[2] in ("python", "mlir", "toml"):
            yield Step("file", place[1], text)


def attention(folder: Path) -> None:
    model = Attention(tokens=16, width=16, heads=2)
    onnx.save(model.model(), folder / "m.onnx")
    np.savez(folder / "x.npz", **model.inputs())


def nearly_gelu(folder: Path) -> None:
    """A gelu whose root is written as 0.7, as a model and as IR."""
    numbers = {"root": 0.7, "one": 1.0, "half": 0.5}
    nodes = [
        helper.make_node(op, operands, [result], name=f"/encoder/act/{name}")
        for op, operands, result, name in (
            ("Mul", ["x", "root"], "a", "Mul"),
            ("Erf", ["a"], "b", "Erf"),
            ("Add", ["b", "one"], "c", "Add"),
            ("Mul", ["x", "c"], "d", "Mul_1"),
            ("Mul", ["d", "half"], "y", "Mul_2"),
        )
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy")
    constants = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in numbers.items()]
    graph = helper.make_graph(nodes, "gelu", [x], [y], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), folder / "m.onnx")
    assert execute(["compile", str(folder / "m.onnx"), "--to=import", "-o", str(folder / "x.mlir")]) == 0


def compiled(folder: Path) -> None:
    attention(folder)
    assert execute(["compile", str(folder / "m.onnx"), "-o", str(folder / "m.sn")]) == 0


PREPARED: Mapping[str, Callable[[Path], None]] = {"why": nearly_gelu, "read-a-profile": compiled}
"""What guides say that one has; others have a model and its inputs."""


class Follower:
    """Follows a guide in a copy of the repository."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "repository"
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for name in listed:
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.root / name)
        for words in (["init", "-q"], ["add", "-A"]):
            subprocess.run(["git", *words], cwd=self.root, check=True)
        tools = folder / "bin"
        tools.mkdir()
        here = Path(sys.executable).parent
        commands = {"python": "", "headrace": "-m headrace.tools.headrace", "headrace-opt": "-m headrace.tools.opt",
                    "pytest": "-m pytest", "ruff": "-m ruff"}  # fmt: skip
        for name, module in commands.items():
            (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            (tools / name).chmod(0o755)
        (folder / "installed").touch()  # make takes the environment for made
        path = os.pathsep.join([str(tools), str(here), os.environ["PATH"]])
        package = check_types.link(self.root)
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": str(package.parent), "MAKEFLAGS": "e",
                            "DEV": str(folder), "BIN": str(tools)}  # fmt: skip

    def follow(self, step: Step) -> None:
        """Do one step."""
        if step.kind == "file":
            (self.root / step.path).write_text(step.text)
        elif step.kind == "append":
            with (self.root / step.path).open("a") as file:
                file.write(f"\n\n{step.text}")
        else:
            self.run(step.text)

    def run(self, line: str) -> None:
        """Run a command. Of `make check` only what is quick, and lint of what the guide has written."""
        code = re.search(r"# exit code (\d+)", line)
        written = "git ls-files -mo --exclude-standard '*.py' | xargs -r ruff"
        command = re.sub(r"\bmake check\b", f"{written} format && {written} check && make repo", line)
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.root, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == (int(code[1]) if code else 0), f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in GUIDES if name != "when-a-pass-is-wrong"])
def test_followed_to_the_letter(name: str, tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    PREPARED.get(name, attention)(follower.root)
    done = 0
    for step in steps(GUIDES[name]):
        follower.follow(step)
        done += 1
    assert done, "nothing was run"
    check = CHECKS.get(name)
    if check is not None:
        check(follower.root)


def op_is_as_shown(root: Path) -> None:
    """What `tools.new` wrote for the op is what the guide shows."""
    wrote = "\n".join((root / "dialects" / "tensor" / name / "elementwise.py").read_text() for name in ("", "meaning"))
    for match in FENCE.finditer(GUIDES["add-an-op"]):
        if match[2] == "python":
            assert re.sub(rf"^{match[1]}", "", match[3], flags=re.M).strip() in wrote


def ends_in_one_artifact(root: Path) -> None:
    """What went through phases by hand is what went through at once."""
    assert (root / "passes" / "17.fuse-stages.mlir").exists() and (root / "trace.json").exists()
    first = root / "first.sn"
    assert execute(["compile", str(root / "m.onnx"), "-o", str(first)]) == 0
    assert first.read_bytes() == (root / "m.sn").read_bytes()


def draws_what_it_names(root: Path) -> None:
    """Each picture is there and whole."""
    for name, first, last in (
        ("m.html", "<!doctype html", "</html>"),
        ("m.svg", "<svg", "</svg>"),
        ("m.json", "{", "}"),
    ):
        text = (root / name).read_text().strip()
        assert text.lower().startswith(first) and text.endswith(last), name


CHECKS: Mapping[str, Callable[[Path], None]] = {
    "add-an-op": op_is_as_shown,
    "look-inside": ends_in_one_artifact,
    "read-a-profile": draws_what_it_names,
}


def test_what_they_show_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attention(tmp_path)
    monkeypatch.chdir(tmp_path)
    parser, runner, count = doctest.DocTestParser(), doctest.DocTestRunner(), 0
    for name, text in [("README", README), *GUIDES.items()]:
        test = parser.get_doctest(text.replace("\n```\n", "\n\n"), {}, name, None, 0)
        count += len(test.examples)
        assert runner.run(test).failed == 0, name
    assert count > 5


def test_when_a_pass_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its commands do what it shows."""
    text = GUIDES["when-a-pass-is-wrong"]
    monkeypatch.chdir(tmp_path)
    for step in steps(text):
        if step.kind == "file":
            Path(step.path).write_text(step.text)
            continue
        name, *words = shlex.split(step.text)
        code = opt.run(words) if name == "headrace-opt" else execute(words)
        assert code == (name == "headrace-opt"), step.text
    shown = capsys.readouterr()
    shown_lines = {" ".join(line.split()) for line in (shown.out + shown.err).splitlines()}
    for line in re.findall(r"^    (?! )(.+)$", FENCE.sub("", text), re.M):
        part = " ".join(line.removesuffix("…").split())
        assert part == "" or any(part in one for one in shown_lines), line
    assert Path("small.mlir").read_text().count(" = tensor.") == 2


def test_files_and_flags_that_they_name_are_there() -> None:
    for name in set(re.findall(r"`((?:dialects|passes|frontends|runtime|test|docs)/[\w./]+?\.(?:py|md|mlir))`", TEXT)):
        assert (ROOT / name).exists() or "multiply_by_inverse" in name, name
    flags = set(re.findall(r"--[a-z][a-z-]+", TEXT))
    texts = "".join(p.read_text() for p in (ROOT / "tools").rglob("*.py")) + "--check-prefixes --fix"
    assert [flag for flag in flags if flag not in texts] == []


def test_commands_parse() -> None:
    """The lines that call the driver have flags that it knows, also where they are not run."""
    for text in re.findall(r"^headrace-opt .*?(?=  |$)", TEXT, re.M):
        arguments().parse_args(shlex.split(text, comments=True)[1:])
