"""What hides features: maskers, distributions of random masks, samplers of selectors."""
