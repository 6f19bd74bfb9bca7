"""Runs the routed program of an artifact: numbers and cycles."""
