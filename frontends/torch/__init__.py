"""PyTorch programs: modules, exported programs and `.pt2` files become `tensor` modules."""

from headrace.frontends.torch.importer import (
    GraphProgram,
    ImportedProgram,
    import_graph,
    import_program,
    plan_program,
)
from headrace.frontends.torch.program import export, load

__all__ = ["GraphProgram", "ImportedProgram", "export", "import_graph", "import_program", "load", "plan_program"]
