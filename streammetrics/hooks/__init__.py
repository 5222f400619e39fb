"""Metrics for training frameworks, such as PyTorch, Keras and LightGBM.

Each framework has its own module, which imports the framework. A framework must be installed only if its module is used.
"""
