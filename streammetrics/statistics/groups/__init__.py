"""Statistics of rows by group, for metrics such as the mean AUC of users.

A group is open as long as more of its rows may still arrive. A state keeps the scores of all rows of its open groups.
Once all groups are complete, the state can close them, and then keeps only sums over groups.
"""
