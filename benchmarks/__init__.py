"""Programs that measure Foretell against data and regenerate every figure the docs state."""
