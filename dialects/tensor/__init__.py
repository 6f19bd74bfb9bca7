"""The tensor level: whole tensors, value semantics, static shapes."""
