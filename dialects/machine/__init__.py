"""The device: an attribute in the module, read from a TOML file, and the cost formulas on it."""
