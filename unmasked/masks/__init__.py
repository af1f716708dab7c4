"""Hide features: maskers, distributions of random masks, and samplers of selectors' masks."""
