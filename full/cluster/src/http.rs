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
const TIMEOUT: Duration = Duration::from_secs(8);

/// How long an answer may be: those of large clusters are some hundred kilobytes.
const MAX_RESPONSE: u64 = 16 << 20;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// Nobody is there, or does not answer.
    Unreachable(String),
    /// Somebody else is there.
    NotSluice,
}

/// What is answered to `path` by who listens at this address.
pub(crate) async fn get_json<T: DeserializeOwned>(
    to: &Address,
    path: &str,
) -> Result<T, RequestError> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    let response = timeout(TIMEOUT, exchange(to, &request)).await;
    let response =
        response.map_err(|_| RequestError::Unreachable("no answer within 8 s".into()))?;
    let response = response.map_err(|e| RequestError::Unreachable(e.to_string()))?;
    parse_response(&response)
}

/// Says something to who listens at this address. Whether that is heard is not told.
pub(crate) async fn post_json<T: Serialize>(to: &Address, path: &str, body: &T) {
    let Ok(text) = serde_json::to_string(body) else { return };
    let length = text.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{text}"
    );
    drop(timeout(TIMEOUT, exchange(to, &request)).await);
}

async fn exchange(to: &Address, request: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((to.host.as_str(), to.port)).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.take(MAX_RESPONSE).read_to_end(&mut response).await?;
    Ok(response)
}

/// What an answer says. No answer at all is what a tunnel gives to a scheduler that is not there now.
fn parse_response<T: DeserializeOwned>(response: &[u8]) -> Result<T, RequestError> {
    if response.is_empty() {
        return Err(RequestError::Unreachable("it hung up without an answer".into()));
    }
    let body = response_body(response).ok_or(RequestError::NotSluice)?;
    serde_json::from_slice(body).map_err(|_| RequestError::NotSluice)
}

/// What stands behind the head of an answer that says that all is well.
fn response_body(response: &[u8]) -> Option<&[u8]> {
    let end = response.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(response.get(..end)?).ok()?;
    let mut words = head.lines().next()?.split(' ');
    let is_ok = words.next()?.starts_with("HTTP/1.") && words.next()? == "200";
    if is_ok { response.get(end + 4..) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_a_good_answer_is_what_stands_behind_its_head() {
        assert_eq!(response_body(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}"), Some(&b"{}"[..]));
        assert_eq!(response_body(b"HTTP/1.1 404 Not Found\r\n\r\n{}"), None);
        assert_eq!(response_body(b"SSH-2.0-OpenSSH\r\n"), None);
        assert_eq!(response_body(b""), None);
    }

    #[test]
    fn no_answer_is_told_from_one_that_is_something_else() {
        let parse_response = |response: &str| parse_response::<Vec<u8>>(response.as_bytes());
        assert_eq!(parse_response("HTTP/1.1 200 OK\r\n\r\n[1]"), Ok(vec![1]));
        assert!(matches!(parse_response(""), Err(RequestError::Unreachable(_))));
        for other in ["SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\n\r\n[1"] {
            assert_eq!(parse_response(other), Err(RequestError::NotSluice), "{other}");
        }
    }
}
