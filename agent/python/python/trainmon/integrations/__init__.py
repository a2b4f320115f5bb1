"""Callbacks for training libraries. Each module needs its library; importing this package needs none."""
