"""Who starts when, one policy per file, by name."""
