"""What the tests share: launching ranks, a tiny model with its reference, reading run directories."""
