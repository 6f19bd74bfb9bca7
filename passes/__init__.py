"""The passes, one file each, and the pipelines made of them."""
