"""Passes on the rdu level."""
