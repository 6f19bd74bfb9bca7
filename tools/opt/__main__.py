"""`python -m headrace.tools.opt`."""

from headrace.tools.opt import main

main()
