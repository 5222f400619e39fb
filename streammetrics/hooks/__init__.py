"""Metrics for training frameworks, such as PyTorch, Keras and LightGBM.

Each framework has its own module, which imports the framework. Install only the frameworks whose modules you use.
"""
