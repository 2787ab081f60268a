"""Jobs on a shared cluster: what they are, where they run, in which order, and how that ends."""
