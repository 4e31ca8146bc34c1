//! Arguments of `sluice query`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use sluice_model::options::ByteSize;

use sluice::extension::{DecodingArgs, FormatArgs};

#[derive(Debug, Default, Args)]
#[command(after_help = "\
Each log is a table, named like its file without extension: drive.lcm is `drive`, and
2007-11-03.lcm is `\"2007-11-03\"`. Names that are not plain words need double quotes. A single log
is also the table `log`. NAME=FILE renames a log; several files or a glob under one NAME are one
table, in that order.

The table of a log has the columns timestamp, source, channel, sequence and payload. The table
drive.CHANNEL has the events of one channel, with the fields of its messages as columns; this needs
--types, unless the log has its types.

Without a query, statements are read from standard input, each up to its semicolon. On a terminal
there is a prompt; type `.help` there. Its history is in $XDG_STATE_HOME/sluice/query_history, or
~/.local/state/sluice/query_history.

A query that reads a whole log of 64 MiB or more stores the columns that it reads (never payloads)
in $XDG_CACHE_HOME/sluice/queries, or ~/.cache/sluice/queries, which only you can read. Later
queries on the unchanged log take them from there. --no-cache turns this off.

Examples:
  sluice query \"select channel, count(*) from drive group by 1 order by 2 desc\" drive.lcm
  sluice query \"select * from drive where channel = 'POSE' limit 5\" drive.lcm
  sluice query \"select avg(vel[1]) from drive.POSE\" drive.lcm --types lcmtypes/
  sluice query \"select min(timestamp) from days\" days='logs/*.lcm' --to first.parquet
  sluice query --file gaps.sql a=monday.lcm b=tuesday.vel --format csv > gaps.csv
  sluice query drive.lcm                         a prompt

Exit codes: 0 done; 1 failed, nothing written; 2 wrong SQL or wrong use; 3 done, but input was
damaged or events could not be decoded, all of it reported.")]
pub(crate) struct QueryArgs {
    /// The query, then the logs to query: files, globs, or NAME=FILE; `-` is standard input. If the
    /// first argument has no blanks and names a file, it is a log, and there is no query.
    #[arg(value_name = "QUERY_OR_LOG", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) words: Vec<String>,

    /// Read the query from this file, which may hold several statements; `-` is standard input. All
    /// arguments are logs then.
    #[arg(short, long, value_name = "QUERY.sql")]
    pub(crate) file: Option<PathBuf>,

    /// Write the rows to this file: .parquet, .arrow, .csv, .jsonl or .json (an array), the last
    /// three also compressed as .zst. It appears only when complete. `-` is standard output.
    #[arg(
        long,
        short_alias = 'o',
        alias = "output",
        value_name = "FILE",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) to: Option<String>,

    /// The format of the rows; by default from the extension of --to. On standard output it is
    /// `table`, which is for people; scripts should use csv, json or jsonl.
    #[arg(long, value_name = "FORM")]
    pub(crate) format: Option<RowFormat>,

    /// Show at most N rows of a table, and say how many more there are; 1000 on a terminal by
    /// default.
    #[arg(long, value_name = "N")]
    pub(crate) limit_rows: Option<u64>,

    /// Replace the file of --to if it exists, once the query has succeeded.
    #[arg(long, alias = "force")]
    pub(crate) overwrite: bool,

    #[command(flatten)]
    pub(crate) decoding: DecodingArgs,

    #[command(flatten)]
    pub(crate) log_format: FormatArgs,

    /// How many threads to use; one per core by default. Does not change the result.
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<usize>,

    /// How much memory to use, such as 2GiB; 512MiB by default. What does not fit goes to temporary
    /// files.
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse_positive)]
    pub(crate) memory: Option<ByteSize>,

    /// Read the logs even if an earlier query has stored what this one needs, and store nothing.
    #[arg(long)]
    pub(crate) no_cache: bool,
}

/// A format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowFormat {
    /// Aligned columns, for people. Long values are cut.
    Table,
    /// CSV with a header. Binary is base64, structs and lists are JSON, times are RFC 3339.
    Csv,
    /// A JSON array with one object per row.
    Json,
    /// JSON lines: one JSON object per row.
    Jsonl,
    /// Parquet.
    Parquet,
    /// An Arrow IPC file.
    Arrow,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::QueryArgs;

    #[derive(Debug, Parser)]
    struct Query {
        #[command(flatten)]
        args: QueryArgs,
    }

    #[test]
    fn a_query_needs_memory() {
        let parse = |memory| Query::try_parse_from(["query", "log.lcm", "--memory", memory]);
        assert_eq!(parse("64MiB").unwrap().args.memory.unwrap().0, 64 << 20);
        assert!(parse("0").unwrap_err().to_string().contains("expected a size above 0"));
    }
}
