"""Facts about a program that passes ask for; nothing here changes IR."""
