"""Shape, tiling and flop rules of each tensor op, in plain Python."""
