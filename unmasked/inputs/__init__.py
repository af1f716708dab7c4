"""Read tables, images and targets into numbers, and say what is remarkable about them."""
