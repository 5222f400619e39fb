"""The byte format in which states, the contents of metrics such as counts and sums, are saved. It needs only numpy.

A frame (`frame`) is a file or message with any number of states. Each state is one section of the frame (`section`), and
most numbers in a section have a variable-length encoding (`varint`).
"""
