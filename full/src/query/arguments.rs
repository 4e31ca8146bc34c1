//! Tells the query and the logs apart in the arguments.

use std::path::Path;

/// The query and its logs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueryArguments {
    /// The query, if the arguments have it.
    pub(super) query: Option<String>,
    /// The logs, in order.
    pub(super) logs: Vec<LogArgument>,
}

/// A log: a path, glob or URL, and the name of its table, if any.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogArgument {
    pub(super) name: Option<String>,
    pub(super) path: String,
}

impl QueryArguments {
    /// The first argument is the query, unless `query_is_elsewhere` or it is a log.
    pub(super) fn parse(words: &[String], query_is_elsewhere: bool) -> Self {
        let (query, logs) = match words.split_first() {
            Some((first, rest)) if !query_is_elsewhere && !is_log(first, rest.is_empty()) => {
                (Some(first.clone()), rest)
            }
            _ => (None, words),
        };
        Self { query, logs: logs.iter().map(|argument| LogArgument::parse(argument)).collect() }
    }
}

impl LogArgument {
    fn parse(argument: &str) -> Self {
        let named = argument.split_once('=').filter(|(name, path)| {
            // Paths may contain `=`, as folders of partitioned tables do.
            !name.is_empty()
                && !path.is_empty()
                && !name.contains('/')
                && !Path::new(argument).exists()
        });
        match named {
            Some((name, path)) => Self { name: Some(name.to_owned()), path: path.to_owned() },
            None => Self { name: None, path: argument.to_owned() },
        }
    }
}

/// Whether the first argument is a log. Queries have blanks; the name of a file may have blanks
/// only if it is the only argument.
fn is_log(argument: &str, is_only: bool) -> bool {
    let has_blank = argument.contains(char::is_whitespace);
    (is_only || !has_blank) && {
        let log = LogArgument::parse(argument);
        let path = Path::new(&log.path);
        let is_there = log.path == "-" || path.exists();
        is_there || (!has_blank && (log.name.is_some() || looks_like_paths(&log.path)))
    }
}

/// Whether an argument without blanks is a glob or a URL rather than a query.
fn looks_like_paths(argument: &str) -> bool {
    !argument.contains(['(', ';']) && (argument.contains("://") || argument.contains(['*', '?']))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn arguments(words: &[&str], query_is_elsewhere: bool) -> QueryArguments {
        let words: Vec<String> = words.iter().map(|argument| (*argument).to_owned()).collect();
        QueryArguments::parse(&words, query_is_elsewhere)
    }

    fn log(name: Option<&str>, path: &str) -> LogArgument {
        LogArgument { name: name.map(str::to_owned), path: path.to_owned() }
    }

    #[test]
    fn the_first_argument_is_the_query_unless_it_names_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a drive.lcm");
        fs::write(&file, "").unwrap();
        let file = file.to_str().unwrap();
        let parsed = arguments(&["select 1", file], false);
        assert_eq!(
            (parsed.query.as_deref(), &*parsed.logs),
            (Some("select 1"), &[log(None, file)][..])
        );
        assert_eq!(
            arguments(&[file], false),
            QueryArguments { query: None, logs: vec![log(None, file)] }
        );
        assert_eq!(arguments(&["select 1"], false).query.as_deref(), Some("select 1"));
        // With blanks in it, and followed by others, it is a query.
        assert_eq!(arguments(&[file, file], false).query.as_deref(), Some(file));
        assert_eq!(arguments(&[file, file], true).query, None);
        assert_eq!(arguments(&["logs/*.lcm"], false).query, None);
        assert_eq!(arguments(&["select*from(t)"], false).query.as_deref(), Some("select*from(t)"));
        assert_eq!(arguments(&[], false), QueryArguments { query: None, logs: vec![] });
    }

    #[test]
    fn a_table_name_precedes_an_equals_sign() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a=b.lcm");
        fs::write(&odd, "").unwrap();
        let odd = odd.to_str().unwrap();
        let logs =
            arguments(&["x=drive.lcm", odd, "t/channel=*/p.parquet", "=a", "a b=c=d"], true).logs;
        let expected = [
            log(Some("x"), "drive.lcm"),
            log(None, odd),
            log(None, "t/channel=*/p.parquet"),
            log(None, "=a"),
            log(Some("a b"), "c=d"),
        ];
        assert_eq!(logs, expected);
    }
}
