"""Training of classifiers of whole images."""
