"""Hooks into torch: its modules' hooks, functions that are wrapped, and attributes that are replaced for a while."""
