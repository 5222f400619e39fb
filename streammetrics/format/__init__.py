"""The byte format of states. It needs only numpy.

A frame (`frame`) is a file or message with any number of states. Each state is one section of the frame (`section`), and
most numbers in a section have a variable-length encoding (`varint`).
"""
