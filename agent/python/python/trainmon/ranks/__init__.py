"""What ranks exchange beside the training: sums for the norm, changes they agree on, where a job hangs."""
