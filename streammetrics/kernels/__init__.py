"""Numba kernels: plain loops over arrays, without classes, type checks or options.

Kernels share some conventions:

- `y` has the labels of rows, `s` their scores, `w` their weights; an empty `w` means that all weights are 1.
- `at` has the cell (slice) of each row; an empty `at` means that all rows belong to one cell.
- `rows` counts rows, and `excess` has the sums of w - 1, which are 0 without weights.
- A block of rows starts at row `a` and has `m` or `n` rows. Some cells are folded: they count scores in buckets.
- An argument that is called scratch is working memory, which the caller allocates.
- f8, i8, u8 and so on are types of numpy. Indexes are cast to u8, because numba adds code for negative indexes otherwise.
"""
