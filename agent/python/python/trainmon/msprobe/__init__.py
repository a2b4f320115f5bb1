"""What takes the place of msprobe's monitors in a script."""
