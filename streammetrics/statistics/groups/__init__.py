"""Statistics of rows by group, for metrics such as the mean AUC of users.

While a group is open, more of its rows may come, so the state keeps all of them. When all groups are complete, they are
closed, and only sums over all groups remain.
"""
