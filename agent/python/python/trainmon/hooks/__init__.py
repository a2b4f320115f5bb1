"""Hooks into torch: its modules' hooks, wrapped functions, and attributes that are replaced temporarily."""
