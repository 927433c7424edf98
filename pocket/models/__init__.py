"""The two pocket models: shapes, tokenizer, and the forwards that training runs."""
