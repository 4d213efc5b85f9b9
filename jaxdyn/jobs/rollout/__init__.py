"""The verb `jaxdyn rollout`: simulation of many samples of one mechanism."""
