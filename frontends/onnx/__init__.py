"""The ONNX importer and its op table."""
