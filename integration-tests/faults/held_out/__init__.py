"""Nets, sizes and faults that the judgement was not developed against."""
