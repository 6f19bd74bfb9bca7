"""What every pass stands on: the registry, the pass manager, rewriting with locations."""
