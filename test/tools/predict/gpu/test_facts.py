"""Numbers of GPUs: each has its source, and files that are wrong are refused."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from headrace.dialects.support.diagnostics import CompileError
from headrace.tools.predict.gpu import Gpu, gpu_bases, gpu_names, load_gpu


@pytest.mark.parametrize("name", gpu_names())
def test_every_number_has_its_source_or_a_reason(name: str) -> None:
    gpu, bases = load_gpu(name), gpu_bases(name)
    parts = [one.name for one in fields(Gpu) if one.name != "name"]
    numbers = {f"{part}.{one.name}" for part in parts for one in fields(getattr(gpu, part))}
    assert set(bases) == numbers
    assert all(basis.kind in ("source", "inferred") and len(basis.text) > 5 and basis.unit for basis in bases.values())


def test_one_starts_from_another() -> None:
    h100, h200 = load_gpu("h100"), load_gpu("h200")
    assert h200.sm == h100.sm and h200.rates == h100.rates and h200.kernel == h100.kernel
    assert h200.memory.bandwidth == 4.8e12 and h200.memory.usable == h100.memory.usable


def test_a_name_that_is_not_known_has_a_hint() -> None:
    with pytest.raises(CompileError, match="did you mean 'h200'") as caught:
        load_gpu("h20")
    assert caught.value.code == "unknown-gpu"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ('base = "h100"\n[link]\ngpus = 4\n', "bad-device", "link.gpus = 4 has no basis"),
        ('base = "h100"\n[link]\ngpu = { value = 4, source = "x" }\n', "bad-device", "did you mean 'gpus'"),
        ('base = "h100"\n[host]\nstep = { value = 1, unit = "ms", source = "x" }\n', "bad-device", "give it in 's'"),
        ("[memory\n", "bad-device", "is not TOML"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str, code: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(CompileError, match=message) as caught:
        load_gpu(str(path))
    assert caught.value.code == code


def test_a_file_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "half.toml"
    path.write_text('base = "h100"\n[memory]\nbandwidth = { value = 1e12, unit = "B/s", inferred = "a study" }\n')
    gpu = load_gpu(str(path))
    assert gpu.name == "half" and gpu.memory.bandwidth == 1e12 and gpu.memory.bytes == load_gpu("h100").memory.bytes
