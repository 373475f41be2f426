"""How a model is prepared, synchronised, clipped and stepped on the available hardware."""
