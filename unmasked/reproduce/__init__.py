"""The paper's experiments run again, ours beside the published."""
