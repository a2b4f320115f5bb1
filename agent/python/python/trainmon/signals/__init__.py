"""What is measured of a training: gradients, moments, activations, losses, scalars, features, structure."""
