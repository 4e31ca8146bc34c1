//! Asks a scheduler a question over HTTP and reads the answer. One small question a connection, so that
//! it needs no client library; what is asked and answered is the business of others.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::address::Address;

/// How long a question may take in all.
const PATIENCE: Duration = Duration::from_secs(8);

/// How long an answer may be: those of large clusters are some hundred kilobytes.
const LONGEST: u64 = 16 << 20;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Nobody is there, or does not answer.
    Silent(String),
    /// Somebody else is there.
    Stranger,
}

/// What is answered to `path` by who listens at this address.
pub(crate) async fn ask<T: DeserializeOwned>(to: &Address, path: &str) -> Result<T, NoAnswer> {
    let question = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    let answer = timeout(PATIENCE, exchange(to, &question)).await;
    let answer = answer.map_err(|_| NoAnswer::Silent("no answer within 8 s".into()))?;
    let answer = answer.map_err(|e| NoAnswer::Silent(e.to_string()))?;
    understood(&answer)
}

/// Says something to who listens at this address. Whether that is heard is not told.
pub(crate) async fn say<T: Serialize>(to: &Address, path: &str, what: &T) {
    let Ok(text) = serde_json::to_string(what) else { return };
    let length = text.len();
    let question = format!(
        "POST {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{text}"
    );
    drop(timeout(PATIENCE, exchange(to, &question)).await);
}

async fn exchange(to: &Address, question: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((to.host.as_str(), to.port)).await?;
    stream.write_all(question.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// What an answer says. No answer at all is what a tunnel gives to a scheduler that is not there now.
fn understood<T: DeserializeOwned>(answer: &[u8]) -> Result<T, NoAnswer> {
    if answer.is_empty() {
        return Err(NoAnswer::Silent("it hung up without an answer".into()));
    }
    let body = body(answer).ok_or(NoAnswer::Stranger)?;
    serde_json::from_slice(body).map_err(|_| NoAnswer::Stranger)
}

/// What stands behind the head of an answer that says that all is well.
fn body(answer: &[u8]) -> Option<&[u8]> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(answer.get(..end)?).ok()?;
    let mut words = head.lines().next()?.split(' ');
    let is_well = words.next()?.starts_with("HTTP/1.") && words.next()? == "200";
    if is_well { answer.get(end + 4..) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_a_good_answer_is_what_stands_behind_its_head() {
        assert_eq!(body(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}"), Some(&b"{}"[..]));
        assert_eq!(body(b"HTTP/1.1 404 Not Found\r\n\r\n{}"), None);
        assert_eq!(body(b"SSH-2.0-OpenSSH\r\n"), None);
        assert_eq!(body(b""), None);
    }

    #[test]
    fn no_answer_is_told_from_one_that_is_something_else() {
        let understood = |answer: &str| understood::<Vec<u8>>(answer.as_bytes());
        assert_eq!(understood("HTTP/1.1 200 OK\r\n\r\n[1]"), Ok(vec![1]));
        assert!(matches!(understood(""), Err(NoAnswer::Silent(_))));
        for other in ["SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\n\r\n[1"] {
            assert_eq!(understood(other), Err(NoAnswer::Stranger), "{other}");
        }
    }
}
