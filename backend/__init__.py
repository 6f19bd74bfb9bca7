"""Routed rdu IR in, artifact out."""
