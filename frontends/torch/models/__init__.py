"""Language models of transformers from their configurations: one step each, shapes without weights."""

from headrace.frontends.torch.models.configurations import NAMES, configuration, is_configuration
from headrace.frontends.torch.models.importing import ModelImport, import_model

__all__ = ["NAMES", "ModelImport", "configuration", "import_model", "is_configuration"]
