"""The rdu level: configured units, the flows between them and the launches, virtual, placed or routed."""
