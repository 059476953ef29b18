"""What becomes of a picture: its legend, themes and files."""
