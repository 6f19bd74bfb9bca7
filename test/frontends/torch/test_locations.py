"""Places in a module, its path and the user's line, are kept to the profile, its files, and other commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import succeeds

import headrace

torch: Any = pytest.importorskip("torch")

FILE = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        weights = torch.softmax(q @ k.transpose(-2, -1), -1)
        return self.out(weights @ v)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attn = Attention(width)

    def forward(self, x):
        return x + self.attn(self.norm(x))


class Model(nn.Module):
    def __init__(self, width: int = 16, depth: int = 2):
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""


def place(path: str, text: str) -> str:
    return f"{path} (blocks.py:{FILE[: FILE.index(text)].count(chr(10)) + 1})"


PLACES = [
    place(f"layers.{layer}{path}", text)
    for layer in (0, 1)
    for path, text in (
        (".norm/layer_norm", "return x + self.attn"),
        (".attn.qkv/linear", "q, k, v = self.qkv"),
        (".attn/_softmax", "weights = torch.softmax"),
        (".attn/matmul", "weights = torch.softmax"),
        (".attn/matmul", "return self.out(weights @ v)"),
        (".attn.out/linear", "return self.out(weights @ v)"),
        ("/add", "return x + self.attn"),
    )
]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blocks")
    (folder / "blocks.py").write_text(FILE)
    succeeds("compile", f"{folder / 'blocks.py'}:Model", "--input", "x=1x8x16")
    return folder / "Model.sn"


def test_the_rows_of_a_profile_are_at_the_users_lines(artifact: Path) -> None:
    profile = headrace.load(artifact).profile()
    rows = {one.location for one in profile.ops}
    assert set(PLACES) <= rows
    text = profile.text(100)
    assert all(one in text for one in PLACES)


def test_the_command_line_shows_them(artifact: Path) -> None:
    trace, page = artifact.with_suffix(".json"), artifact.with_suffix(".html")
    out = succeeds("run", artifact, "--profile", "--top", 100, "--trace", trace, "--page", page).out
    assert all(one in out for one in PLACES)
    events = json.dumps(json.loads(trace.read_text())["traceEvents"])
    assert all(one in events for one in PLACES)
    html = page.read_text()
    assert all(one in html for one in PLACES)


def test_every_row_names_its_module_or_a_port(artifact: Path) -> None:
    """What a row is at: a call of the module, an input, or a parameter."""
    for one in headrace.load(artifact).profile().ops:
        assert re.search(r"\(blocks\.py:\d+\)", one.location) or one.location in ("x", "add_1") or "layers." in str(one)


def test_equal_layers_keep_their_paths(artifact: Path) -> None:
    out = succeeds(
        *("why", f"{artifact.with_name('blocks.py')}:Model", "--depth", 6, "--input", "x=1x8x16"), "--op", "softmax"
    ).out
    assert all(f"layers.{layer}.attn/_softmax (blocks.py:" in out for layer in range(6))


WITHOUT = """\
import sys

sys.modules["torch"] = None  # as where it is not installed
import numpy as np

import headrace

executable = headrace.load(sys.argv[1])
(result,) = executable({"x": np.load(sys.argv[2])}).values()
np.save(sys.argv[3], result)
"""


def test_an_artifact_of_a_module_runs_without_pytorch(artifact: Path, tmp_path: Path) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    import numpy as np

    spec = spec_from_file_location("blocks", artifact.with_name("blocks.py"))
    assert spec is not None and spec.loader is not None
    blocks = module_from_spec(spec)
    spec.loader.exec_module(blocks)
    torch.manual_seed(0)  # as on the command line
    module, x = blocks.Model(), torch.randn(1, 8, 16)
    np.save(tmp_path / "x.npy", x.numpy())
    files = [str(tmp_path / name) for name in ("x.npy", "y.npy")]
    subprocess.run([sys.executable, "-c", WITHOUT, str(artifact), *files], check=True)
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(np.load(tmp_path / "y.npy")), module(x), rtol=1e-4, atol=1e-5)
