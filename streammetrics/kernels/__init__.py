"""Numba kernels: compiled loops over arrays, without classes, type checks or options.

Kernels share some conventions:

- `y` holds the labels of rows, `s` their scores and `w` their weights. An empty `w` means that all weights are 1.
- `at` holds the cell (slice) of each row; an empty `at` means that all rows belong to one cell.
- `rows` holds row counts, and `excess` the sums of w - 1 over the counted rows (0 if all weights are 1).
- A block of rows starts at row `a` and has `m` or `n` rows.
- A cell with few rows counts rows by exact score. A cell that counts them by score bucket instead is called folded.
- Arguments described as working memory are allocated by the caller.
- f8, i8, u8 and so on are numpy types. Indexes are cast to u8, because otherwise numba adds code for negative indexes.
"""
