"""The verbs `jaxdyn identify` and `jaxdyn evaluate`: parameters of machines from recordings, and predictions of recordings."""
