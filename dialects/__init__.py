"""The three levels of the compiler and what they share: one package per dialect."""
