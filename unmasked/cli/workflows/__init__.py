"""The main jobs behind the commands: data in, results, plots and report out."""
