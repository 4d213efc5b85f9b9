"""The verbs that work on one file: new, show, check, convert, animate and view."""
