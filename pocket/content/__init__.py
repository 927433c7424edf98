"""The contents of documents: words, numbers, topics, tables, charts. Nothing here is drawn."""
