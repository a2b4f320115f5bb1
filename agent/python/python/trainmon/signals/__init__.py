"""The measured signals of a training: gradients, moments, activations, losses, scalars, features, structure."""
