"""The version of Headrace; a test holds it against the package's metadata, which costs more to read."""

VERSION = "0.1.0"
