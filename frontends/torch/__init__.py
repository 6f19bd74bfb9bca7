"""PyTorch programs: modules, exported programs and `.pt2` files become `tensor` modules."""

from headrace.frontends.torch.importer import ImportedProgram, import_program, plan_program
from headrace.frontends.torch.program import export, load

__all__ = ["ImportedProgram", "export", "import_program", "load", "plan_program"]
