"""What `--help` says of options and commands."""

from __future__ import annotations

LOG = (
    "Files, folders, patterns: Parquet, ORC, Avro, CSV, TSV, JSON lines (.jsonl, .json), Arrow; - is standard input. URLs "
    "such as s3://bucket/log/*.parquet. Tables: a folder with a _delta_log, delta:URL, iceberg:CATALOG/NAMESPACE.TABLE or "
    "iceberg:PATH.metadata.json."
)
SQL = "Score what a query of DuckDB gives instead of LOG: \"select * from 'log/*.parquet' where day = 3\"."
INVALID = "Stop at a bad row, or leave it out and count it."
SCORE = (
    "Column of scores (of predictions, for regression); for several classes a pattern such as 'p_*', or a column of "
    "lists. Repeat the option for several models, side by side."
)
POSITIVE = "What the label says of a positive, such as yes, if not 1; everything else is negative."
PRED = "Column of decisions, 0 or 1, or of predicted classes, instead of scores."
CLASSES = (
    "How many classes (or labels) there are, or what they are called: cat,dog. By default as many as score columns."
)
GROUP = "Column of users (a comma makes a key of several): what group_auc averages over."
QUERY = "Column of queries (or users) whose rows stand together, each a ranking."
WHERE = (
    "Only rows count for which this holds: a 0/1 column, or country=br, price>0, is_test=false. Repeat the option for "
    "several conditions."
)
RATE = "Share of negatives that a down-sampled log kept."
BY = (
    "Slice by a column, or by the cross of several: country,device. Repeat the option for several tables. Quotation "
    "marks enclose a name with a comma: '\"a,b\",device'."
)
KEEP = (
    "Which slices --limit keeps: those with most rows, for which the keys of the log are read first; or those with the "
    "smallest hash, which are the same in every log, so that saved states merge. The second is the default with --save or "
    "--checkpoint, and for standard input."
)
FROM = "What stands for a metric of another library: --from sklearn roc_auc_score; without a name, for all of them."
METRICS = "Such as auc,log_loss,precision@0.1; `streammetrics catalog` lists all."
BITS = "Resolution of score histograms; 16 by default, which takes 1 MiB a slice."
SORT = "Show slices worst first by this metric, such as calibration; or most first, by rows or positives."
FEW = "Slices of fewer rows are left out."
ROLLUP = (
    "Slices by these columns, rolled up from slices by them and others: country. Repeat the option for several tables."
)
REPORT = "Write a page with tables and pictures, which needs nothing else: report.html."
CHECKPOINT = (
    "File that holds what was counted so far, replaced as parts of the log are done (row groups; of text whole files), "
    "in at most 5 % of the time. The same command goes on from it, wherever it was killed, to the same bits."
)
PUSH = (
    "Post the states by --arm to a dashboard (streammetrics serve), under --experiment and --hour; the token is that of "
    "the environment, STREAMMETRICS_TOKEN. Pushing a part again is harmless: it counts once."
)
SENDER = "eval"
TYPES = (
    "The type of a column in all files of the log: string, int, float, bool, date or timestamp. zip=string keeps the "
    "spelling of a key; user_id=int reads integers, and stops at the first row that is not one. Repeat the option for "
    "several columns. Without it keys of CSV files and partitions are text as it is spelled, those of Parquet and JSON "
    "have their own type."
)
DELIMITER = (
    "What separates the values of text files, one character or several, such as ::; comma by default, tab for .tsv."
)
NULLS = "Spellings of a missing value in text files, such as NA,N/A, besides empty, NULL, null and \\N."
NO_QUOTES = "Read quotation marks in text files as ordinary characters."
LACKING = "What to do if a file lacks a column that other files have: raise an error (default), or read null."
COLUMNS = "Names of the columns of text files that have no header: user,item,rating."
SOURCE = "With --push: who counted these rows. The same on every machine that may score this log again."
SAVED = (
    "Files that --save or sm.save wrote, folders of them, patterns (quoted where there are thousands): 'parts/*.smet'."
)
SMALLEST = "Users that there will be, in both arms: prints the smallest differences that they show instead."
STATES = "Files that --save or sm.save wrote, counted with --unit: first the control."
TASK = "TOML file with several tasks, instead of --label, --score and so on."


UNIT = (
    "Column of the units that belong together, such as user_id: values get intervals, and models (arms) are compared. "
    "row: every row stands for itself, which rows of one user hardly do."
)
SHARDS = "Hash classes of units, 8 to 4096; 64 by default. What is to be compared or merged must have the same."
MISSING = "Stop at a row without a unit, or leave it out and count it."
CONFIDENCE = "Nominal coverage of intervals."
WINDOW = "Windows of event time: 15m, 1h, 1d; or so many steps. Needs --time."
TIME = "Column of timestamps (or steps) that --window is of."
ARM = "Column of the arms of an experiment; slices of --by are then compared arm by arm."
CONTROL = "The arm, or model, that the others are compared with; of models the first by default."
PRIMARY = "The metric that decides; by default the first that says which values are better."
GUARDRAIL = (
    "A metric that must not become worse by more than a relative margin: calibration=0.02 is 2 %. Exit code 3 if one "
    "does. Repeat the option for several metrics."
)
BETTER = "Which values are good, of a metric that does not say it: ctr=high. Repeat the option for several metrics."
PLANNED = "Users at the planned end, in the two arms compared: nothing is decided before."
USERS = "Users so far, in the two arms compared."
SEQUENTIAL = "Intervals that hold at all looks together, for experiments that are looked at all along."
INDEPENDENT = "Say that no unit is in two files: without common shards they are then compared by Welch's rule."
GATE = """Compare saved states with the first of them: which is better, by how much, and can it be trusted.

    A gate in a pipeline:

    streammetrics compare live.smet new.smet --guardrail calibration=0.02 || exit 1

    The exit code is 0 if no guardrail is broken, 3 if one is, 2 for what cannot be compared.
    """
