"""``python -m unmasked``."""

from unmasked.cli import main

if __name__ == "__main__":
    main()
