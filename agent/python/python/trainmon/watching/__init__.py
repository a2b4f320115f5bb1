"""A watch: how it starts, what it does in each step, and how it ends."""
