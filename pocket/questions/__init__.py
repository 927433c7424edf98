"""The questions about a document, and their wordings."""
