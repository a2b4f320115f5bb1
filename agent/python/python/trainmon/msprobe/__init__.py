"""Replacements of msprobe's monitors."""
