"""All that touches the insides of transformers: attention, cache arguments, packed sequences."""
