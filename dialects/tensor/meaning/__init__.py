"""The NumPy meaning of each tensor op."""
