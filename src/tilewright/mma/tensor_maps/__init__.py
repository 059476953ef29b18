"""TMA tensor maps: their 128 bytes, the rules for them, and what a tensor copy does."""
