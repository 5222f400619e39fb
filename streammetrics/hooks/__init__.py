"""Metrics for training frameworks, such as PyTorch, Keras and LightGBM.

Each framework has its own module. Only this module imports the framework, so other frameworks need not be installed.
"""
