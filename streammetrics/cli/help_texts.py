"""Help texts of options and commands."""

from __future__ import annotations

LOG = (
    "Files, folders, patterns: Parquet, ORC, Avro, CSV, TSV, JSON lines (.jsonl, .json), Arrow; - is standard input. URLs "
    "such as s3://bucket/log/*.parquet. Tables: a folder with a _delta_log, delta:URL, iceberg:CATALOG/NAMESPACE.TABLE or "
    "iceberg:PATH.metadata.json."
)
SQL = "Score the result of a DuckDB query instead of LOG: \"select * from 'log/*.parquet' where day = 3\"."
INVALID = "Stop at an invalid row, or drop it and count the dropped rows."
SCORE = (
    "Column of scores (of predictions, for regression); for several classes a pattern such as 'p_*', or a column of "
    "lists. Repeat the option for several models, side by side."
)
POSITIVE = "Label of the positive class if it is not 1, such as yes; all other labels are negative."
PRED = "Column of decisions, 0 or 1, or of predicted classes, instead of scores."
CLASSES = "Number of classes (or labels), or their names: cat,dog. By default the number of score columns."
GROUP = "Column of users, over which group_auc averages; a comma combines several columns."
QUERY = "Column of queries (or users): the rows of each query form one ranking."
WHERE = (
    "Count only rows that meet this condition: a 0/1 column, or country=br, price>0, is_test=false. Repeat the option for "
    "several conditions."
)
RATE = "Fraction of negatives that a down-sampled log kept."
BY = (
    "Slice by a column, or by all combinations of several: country,device. Repeat the option for several tables. Put a "
    "name with a comma in quotation marks: '\"a,b\",device'."
)
KEEP = (
    "Which slices --limit keeps: 'rows' keeps those with the most rows, and reads the keys of the log twice; 'hash' keeps "
    "those with the smallest hash, which are the same in every log, so that saved states merge. 'hash' is the default "
    "with --save or --checkpoint, and for standard input."
)
FROM = (
    "The equivalent of a metric of another library: --from sklearn roc_auc_score; without a name, of all its metrics."
)
METRICS = "Metrics, such as auc,log_loss,precision@0.1; `streammetrics catalog` lists all."
BITS = "Resolution of score histograms in bits; 16 by default, which takes 1 MiB a slice."
SORT = "Sort slices by this metric, such as calibration, worst first; or by rows or positives, largest first."
FEW = "Hide slices with fewer rows."
ROLLUP = (
    "Show slices by these columns, aggregated from saved slices by more columns: country. Repeat the option for several "
    "tables."
)
REPORT = "Write a self-contained HTML page with tables and charts: report.html."
CHECKPOINT = (
    "File that stores the counts so far. It is updated after each part of the log (row group; for text, whole file), and "
    "takes at most 5 % of the time. If the command is killed, run it again: it resumes, and the result has the same bits."
)
PUSH = (
    "Post the states by --arm to a dashboard (streammetrics serve), under --experiment and --hour. The token is read from "
    "the environment variable STREAMMETRICS_TOKEN. A part that is pushed again counts once."
)
SENDER = "eval"
TYPES = (
    "The type of a column in all files of the log: string, int, float, bool, date or timestamp. zip=string keeps the "
    "spelling of a key; user_id=int reads integers, and stops at the first value that is not one. Repeat the option for "
    "several columns. By default, keys in CSV files and partition names are text as spelled, and keys in Parquet and JSON "
    "files keep their type."
)
DELIMITER = (
    "Separator of values in text files, one character or several, such as ::; by default a comma, or a tab for .tsv."
)
NULLS = "More spellings of a missing value in text files, such as NA,N/A, besides the empty text, NULL, null and \\N."
NO_QUOTES = "Read quotation marks in text files as ordinary characters."
LACKING = "What to do if a file lacks a column that other files have: raise an error (default), or read null."
COLUMNS = "Names of the columns of text files that have no header: user,item,rating."
SOURCE = "With --push: name of the sender of these rows. Use one name on all machines that may score this log again."
SAVED = (
    "Files that --save or sm.save wrote, folders of them, patterns (quoted where there are thousands): 'parts/*.smet'."
)
SMALLEST = "Planned number of users in both arms: print the smallest difference that they can detect instead."
STATES = "Files that --save or sm.save wrote, counted with --unit: first the control."
TASK = "TOML file with several tasks, instead of --label, --score and so on."


UNIT = (
    "Column of the units of randomization or sampling, such as user_id. Values get confidence intervals, and models "
    "(arms) are compared. row: treat all rows as independent; rows of one user rarely are."
)
SHARDS = (
    "Number of shards to hash units into, 8 to 4096; 64 by default. States to compare or merge need the same number."
)
MISSING = "Stop at a row without a unit, or skip it and count the skipped rows."
CONFIDENCE = "Confidence level of intervals."
WINDOW = "Width of event-time windows: 15m, 1h, 1d; or a number of steps. Needs --time."
TIME = "Column of timestamps (or steps) for --window."
ARM = "Column of the arms of an experiment; slices of --by are then compared arm by arm."
CONTROL = "The arm or model that the others are compared with; for models, the first by default."
PRIMARY = "The metric that decides; by default the first metric for which better values are known."
GUARDRAIL = (
    "A metric that must not become worse by more than a relative margin: calibration=0.02 is 2 %. Exit code 3 if one "
    "does. Repeat the option for several metrics."
)
BETTER = (
    "Whether high or low values are better, for a metric without a direction: ctr=high. Repeat for several metrics."
)
PLANNED = "Planned number of users at the end, in both arms together: no decision is made before."
USERS = "Number of users so far, in both arms together."
SEQUENTIAL = (
    "Use sequential intervals, which are valid for repeated looks, for experiments that are monitored continuously."
)
INDEPENDENT = "State that no unit is in two files. Files without common shards are then compared by Welch's test."
GATE = """Compare saved states with the first of them: which is better, by how much, and how reliable that is.

    A gate in a pipeline:

    streammetrics compare live.smet new.smet --guardrail calibration=0.02 || exit 1

    The exit code is 0 if no guardrail is broken, 3 if one is, and 2 if the states cannot be compared.
    """
