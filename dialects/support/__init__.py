"""What every level shares: diagnostics, locations, dtypes, address programs, weight stores."""
