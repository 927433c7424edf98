"""A walk over every image-text-to-text class that the installed transformers knows."""
