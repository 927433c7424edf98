"""What is asked about a document, and in which words."""
