"""The byte format in which states (the counts and sums of metrics) are saved; this package needs only numpy.

A frame (`frame`) is a file or message with any number of states. Each state is one section of the frame (`section`), and
most numbers in a section have a variable-length encoding (`varint`).
"""
