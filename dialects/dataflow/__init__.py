"""The dataflow level: sections of stages joined by streams of tiles."""
