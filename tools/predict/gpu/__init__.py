"""GPUs as a reference: time of decoder steps on H100, H200, B200 (and B300, with low confidence).

    gpu = load_gpu("h200")
    serve(sizes_of(config), gpu, Layout(8), NUMBERS["fp8"], requests=32, prompt=8192, output=1024)

`python -m headrace.tools.predict.gpu` holds the model against published figures.
"""

from __future__ import annotations

from headrace.tools.predict.gpu.facts import Gpu, gpu_bases, gpu_names, load_gpu
from headrace.tools.predict.gpu.serving import Served, prompt_time, serve
from headrace.tools.predict.gpu.sizes import Sizes, sizes_of
from headrace.tools.predict.gpu.step import NUMBERS, Layout, Numbers, Step, step_kernels, step_time

__all__ = ["NUMBERS", "Gpu", "Layout", "Numbers", "Served", "Sizes", "Step", "gpu_bases", "gpu_names", "load_gpu"]
__all__ += ["prompt_time", "serve", "sizes_of", "step_kernels", "step_time"]
