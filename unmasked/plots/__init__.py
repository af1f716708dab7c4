"""Pictures: plots, selections drawn over images, bars and tables in notebooks."""

from unmasked.plots.figures import heat_map, one_row, over_image, pixel_map, sparsity_path

__all__ = ["heat_map", "one_row", "over_image", "pixel_map", "sparsity_path"]
