"""What comes in: tables, images, targets, and what is said of them."""
