"""The ONNX importer: `import_onnx` gives a `tensor` module, `plan_onnx` says what would become of every node."""

from headrace.frontends.onnx.importer import import_onnx, plan_onnx

__all__ = ["import_onnx", "plan_onnx"]
