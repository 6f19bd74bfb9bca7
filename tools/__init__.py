"""The command line tools and the checks of this repository."""
