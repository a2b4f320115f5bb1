"""Callbacks for training libraries. Each module requires its library; importing this package requires none."""
