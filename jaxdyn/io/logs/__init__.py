"""Files of other programs as tables of named columns: one module for each library that reads them, imported when it is needed.

Each module has a function `columns(files, wanted)` that returns the names of all columns, and the values of those that are wanted.
For a damaged file, the libraries raise errors of many kinds, which `jaxdyn.io.recordings` converts.
"""
