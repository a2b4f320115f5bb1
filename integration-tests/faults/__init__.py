"""Pairs of dumps with one planted fault each, and the truth about where the two runs first part."""
