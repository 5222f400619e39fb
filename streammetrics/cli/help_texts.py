"""Help texts of options and commands."""

from __future__ import annotations

from streammetrics.cli.task_types import TASK_TYPES

LOG = (
    "Files, folders or patterns: Parquet, ORC, Avro, CSV, TSV, JSON lines (.jsonl, .json) or Arrow; - reads standard "
    "input. Also URLs, such as s3://bucket/log/*.parquet, and tables: a folder with a _delta_log, delta:URL, "
    "iceberg:CATALOG/NAMESPACE.TABLE or iceberg:PATH.metadata.json."
)
SQL = "Score the result of a DuckDB query instead of LOG: \"select * from 'log/*.parquet' where day = 3\"."
INVALID = "What to do with an invalid row: stop with an error, or drop the row and count it as dropped."
LABEL = (
    "Column of labels: 0 or 1, classes, grades, or numbers for regression. For several labels of each row, a pattern "
    "such as 'y_*'."
)
SCORE = (
    "Column of scores, or of predictions for regression. For several classes, a pattern such as 'p_*' or a column of "
    "lists. Repeat the option for several models; the first is the control (see --control)."
)
POSITIVE = "Value of the positive label, such as yes, if it is not 1; all other values are negative."
PRED = "Column of decisions (0 or 1) or of predicted classes, instead of --score."
CLASSES = "Number of classes or labels, or their names: cat,dog. The default is the number of score columns."
VALUE = (
    "Column of values, such as revenue, for metrics of values such as mean and quantile@0.9. Without other metrics, "
    "--label is not needed."
)
GROUP = "Column of groups, such as users, for metrics by group (group_auc). A comma combines several columns."
QUERY = "Column of queries or users; the rows of each query form one ranking."
WHERE = (
    "Count only rows that meet this condition: country=br, price>0, is_test=false, or the name of a 0/1 column. Repeat "
    "the option for several conditions."
)
RATE = "Share of the negatives that a down-sampled log kept, such as 0.1. Needs --corrects."
BY = (
    "Slice by a column, or by the combinations of several columns: country,device. Repeat the option for several "
    "tables. Quote a name that contains a comma: '\"a,b\",device'."
)
LIMIT = "Number of slices to keep for each --by. The other slices are merged into one."
KEEP = (
    "Which slices --limit keeps. rows: the slices with the most rows; this reads the keys of the log twice. hash: the "
    "slices whose keys have the smallest hashes. This choice does not depend on the rows of a log, so saved states "
    "can be merged. The default is hash with --save, --checkpoint or standard input, and rows otherwise."
)
SITE = "Write the guide, the notebooks and the API reference as a website into this folder (extra docs)."
FROM = (
    "Show the equivalent of a metric of another library: --from sklearn roc_auc_score. Without a metric, list all "
    "metrics of the library."
)
METRICS = (
    "Metrics, such as auc,log_loss,precision@0.1. `streammetrics catalog` lists all. The default depends on --task-type; "
    f"for binary labels, it is {', '.join(TASK_TYPES['binary'].default_metrics)}."
)
BITS = "Resolution of score histograms in bits. The default, 16, takes 1 MiB for each slice."
SORT = "Sort slices by a metric, such as calibration, worst first; or by rows or positives, largest first."
FEW = "Hide slices with fewer rows."
ROLLUP = (
    "Show slices by these columns, such as country. Slices that were saved by more columns, such as country,device, are "
    "merged. Repeat the option for several tables."
)
REPORT = "Write a self-contained HTML page with tables and charts to this file, such as report.html."
SAVE = (
    "Save the states in this file, for the commands merge, show, compare and power. With --arm and --unit, the file "
    "contains hashes of the units, such as user IDs; treat them as personal data."
)
CHECKPOINT = (
    "File that stores the counts so far. The command updates the file after parts of the log (a part is a row group, or "
    "a whole text file), and spends at most 5 % of its time on the updates. If the command is killed, run it again: it "
    "resumes, and the result is the same, bit for bit."
)
PUSH = (
    "Post the states, sliced by --arm, to a dashboard (streammetrics serve), under --experiment and --hour. The token is "
    "read from the environment variable STREAMMETRICS_TOKEN. A part that is pushed again counts once."
)
SENDER = "eval"
TYPES = (
    "Type of a column in all files of the log: string, int, float, bool, date or timestamp. zip=string keeps the "
    "spelling of a key. user_id=int reads integers, and stops at the first value that is not an integer. Repeat the "
    "option for several columns. By default, keys in CSV files and partition names are text, and keys in Parquet and "
    "JSON files keep their type."
)
DELIMITER = "Separator of values in text files, such as ; or ::. The default is a comma, or a tab for .tsv files."
NULLS = (
    "Additional spellings of missing values in text files, such as NA,N/A. Empty text, NULL, null and \\N are missing "
    "values by default."
)
NO_QUOTES = "Read quotation marks in text files as ordinary characters."
LACKING = "What to do if a file lacks a column that other files have: stop with an error (default), or read nulls."
COLUMNS = "Names of the columns of text files that have no header: user,item,rating."
SOURCE = (
    "With --push: name of the sender of these rows. Use the same name on every machine that may score this log again, so "
    "that the rows count only once."
)
SAVED = (
    "Files that --save or sm.save wrote, folders of such files, or patterns: 'parts/*.smet'. Quote a pattern that matches "
    "thousands of files."
)
SMALLEST = (
    "Planned number of users in both arms together. The command then prints the smallest difference that an experiment of "
    "this size can detect."
)
COVARIATE = (
    "Data of the same users from before the treatment, which make intervals narrower (CUPED): a file that --save wrote "
    "from the log of an earlier time with the same --arm and --unit, or a column of the table --exposures. Repeat the "
    "option for several covariates, at most three for each metric."
)
COVARIATE_FILES = (
    "Saved states of the same arms from before the treatment, which make intervals narrower (CUPED): one file for each "
    "of the compared files, in the same order, separated by commas. Repeat the option for several covariates."
)
POWER_TABLE = (
    "Print a table of the users that differences of 0.5, 1, 2, 5 and 10 % need, with a column for each metric, and of the "
    "users that guardrails need."
)
HELD = (
    "With --table: a metric that must not become worse by more than a relative margin, such as calibration=0.02 for 2 %. "
    "The table has the users needed to show this. Repeat the option for several metrics."
)
PER_DAY = "With --table: new users per day in both arms together, to print days as well."
STATES = "Files that --save or sm.save wrote from logs counted with --unit. The first file is the control."
TASK = "TOML file with several tasks, instead of --label, --score and so on."


UNIT = (
    "Column of the units of randomization or sampling, such as user_id. Values get confidence intervals, and models or "
    "arms are compared. --unit row treats all rows as independent, although rows of the same user rarely are."
)
SHARDS = (
    "Number of shards to hash units into, 8 to 4096; 64 by default. States to compare or merge need the same number."
)
MISSING = "What to do with a row without a unit: stop with an error, or skip the row and count it as skipped."
CONFIDENCE = "Confidence level of intervals."
WINDOW = "Width of event-time windows, such as 15m, 1h or 1d, or a number of steps. Days are in UTC. Needs --time."
TIME = "Column of timestamps or steps for --window."
ARM = "Column of the arms of an experiment. Arms are compared in total, and in each slice of --by."
CONTROL = "The arm or model with which the others are compared. For models, the default is the first."
PRIMARY = (
    "The metric that decides which side is better. The default is the first metric for which it is known whether high or "
    "low values are better."
)
GUARDRAIL = (
    "A metric that must not become worse by more than a relative margin: calibration=0.02 is 2 %. The exit code is 3 if "
    "a guardrail is breached. Repeat the option for several metrics."
)
ABSOLUTE = (
    "Show changes in the unit of the metric rather than in percent of the control, and read the margins of --guardrail "
    "in this unit. Use it for metrics such as profit that may be 0 or negative."
)
BETTER = (
    "Whether high or low values are better, for a metric for which this is unknown: ctr=high. Repeat the option for "
    "several metrics."
)
PLANNED = (
    "Planned number of users, in both arms together. There is no decision before the experiment has this number, and "
    "the first look from then on is the only one that counts."
)
FINAL = (
    "The experiment is over, and no more users will come. The intervals are for this single look; with --sequential, for "
    "an experiment that was looked at before, they stay valid at all looks."
)
USERS = (
    "Number of users so far, in both arms together, for --planned and --sequential. By default, eval counts the users of "
    "each arm if --unit names their column."
)
SHARES = (
    "Planned shares of users in each arm, in any unit, such as old=50,new=50. If users are split differently, "
    "eval gives no verdict."
)
EXPOSURES = (
    "File, folder or pattern with a row for each user who was assigned to an arm, in columns with the names of --unit and "
    "--arm. Users are counted from it rather than from the log."
)
SEQUENTIAL = (
    "Use intervals that stay valid if you look repeatedly while the experiment runs. They are about 1.6 times as wide. "
    "With --planned, they are narrowest at the planned number of users, otherwise at 10,000 users."
)
PLANNED_LOOKS = "Plan for intervals that stay valid if you look repeatedly while the experiment runs."
INDEPENDENT = (
    "Assert that no unit occurs in more than one file. Files with different units or shards are then compared by Welch's "
    "test."
)
GATE = """Compare saved states with the first of them.

    The command prints which state is better, by how much, and how certain
    that is. The exit code is 0 if no guardrail is breached, 3 if one is, and 2
    if the states cannot be compared.
    """

MAIN_EXAMPLES = """Start with a demo log, then score it by country:

streammetrics demo

streammetrics eval demo-log/full --label click --score pctr_a --by country

`streammetrics COMMAND --help` shows the options of a command.

`streammetrics guide` lists the pages of the guide.
"""
EVAL_EXAMPLES = """Score one model by country:

streammetrics eval log/ --label click --score new --by country

Compare two models, with confidence intervals by user:

streammetrics eval log/ --label click --score old --score new --unit user_id

`streammetrics guide logs` explains the options.
"""
MERGE_EXAMPLES = """Example:

streammetrics merge monday.smet tuesday.smet -o both.smet
"""
SHOW_EXAMPLES = """Example:

streammetrics show both.smet --by country --sort calibration --min-rows 1000
"""
COMPARE_EXAMPLES = """A gate in a pipeline:

streammetrics compare old.smet new.smet --guardrail calibration=0.02 || exit 1
"""
POWER_EXAMPLES = """How many users does it take to detect a CTR that is 2 % higher?

streammetrics power week.smet --users 100000 --metric ctr --relative 0.02

How many users and days do several differences and a guardrail need?

streammetrics power week.smet --users 100000 --table --guardrail calibration=0.02 --per-day 5000
"""
CATALOG_EXAMPLES = """Examples:

streammetrics catalog auc

streammetrics catalog --from sklearn roc_auc_score
"""
GUIDE_EXAMPLES = """Examples:

streammetrics guide logs

streammetrics guide --site website
"""
DEMO_EXAMPLES = """Examples:

streammetrics demo

streammetrics demo --live
"""
SERVE_EXAMPLES = """Example:

streammetrics serve token my-experiment

streammetrics serve --experiments definitions/
"""
STORE = "The database: an SQLite file, or postgresql://user@host/database."
EXPERIMENTS = "Folder of definitions, one file ID.toml for each experiment. The server reads changes while it runs."
WATCH = (
    "Folder or URL from which the server reads parts, such as s3://bucket/parts. Each part is a file "
    "below this folder, with the path experiment/hour/source-seq.smet."
)
AUTH = "How to authenticate readers: login (with a token), or proxy-header=NAME, a header that a proxy sets."
CATALOG = "TOML file with the metrics that definitions may name, a table for each metric. By default, any metric."
GROUPS = "Header in which the proxy sends the groups of a user, separated by commas."
GROUP_RIGHTS = (
    "Rights of a group of the proxy: GROUP=owner, GROUP=reader, or GROUP=tag:TAG for the experiments with a tag. "
    "Repeat the option for several groups."
)
TRUST = (
    "Address of a proxy whose forwarded headers are trusted; none by default. Repeat the option for several addresses."
)
CALLED = (
    "Host name of the dashboard, such as dashboard.example.com. Requests for other names are refused. Repeat the option "
    "for several names."
)
WHOSE = "ID of an experiment, or the word owner or reader."
