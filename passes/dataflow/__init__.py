"""Passes on the dataflow level."""
