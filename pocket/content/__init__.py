"""What documents are about: words, numbers, topics, tables, charts. Nothing here is drawn."""
