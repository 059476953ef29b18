"""One module for each subcommand of ``tilewright``."""
