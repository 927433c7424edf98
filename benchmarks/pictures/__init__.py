"""What a stored picture saves, and what it costs in answers: a part a module."""
