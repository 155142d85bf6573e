"""From what users have to rows of float32: numbers, pixels, texts."""
