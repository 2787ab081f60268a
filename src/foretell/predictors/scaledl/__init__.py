"""ScaleDL: a learned layer model inside a roofline, and a network over the graph of operators."""
