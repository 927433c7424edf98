"""The Collection tab: pictures and PDFs are read once, and all of them are asked."""
