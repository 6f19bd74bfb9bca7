"""Importers: a model file in, tensor IR out."""
