"""A watch: its start, its work in each step, and its end."""
