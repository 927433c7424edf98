"""The command line, one file a command; `rotatek.cli.main` is where it begins.

A command's file has `add_arguments`, which tells a parser its flags, and `run`, which returns the
exit status where that is not 0. It is imported when its command is given, so that `rotatek --help`
needs none of them.
"""
