"""The verb `jaxdyn optimize`: optimal motions of a mechanism."""
